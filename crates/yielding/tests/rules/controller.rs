//! The controller of the yield steps: tables of what it does in time, and properties over random
//! histories.

use std::time::Duration;

use proptest::prelude::*;
use yielding::rules::{Controller, ControllerSettings, Harm, Harms, Reason, Signal, Step, Target};

const NODE_CPUS: usize = 16;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn waits(lost: f64) -> Signal {
    weighed_waits(lost, lost)
}

fn weighed_waits(worst: f64, weighed: f64) -> Signal {
    let [worst, weighed] =
        [worst, weighed].map(|lost| Harm { lost, victim: "shop/cart".to_owned() });
    Signal::Waits(Harms { worst, weighed })
}

/// Feeds the same harm once per second and returns the seconds of the transitions with their
/// targets.
fn run(
    controller: &mut Controller,
    seconds: std::ops::Range<u64>,
    lost: f64,
) -> Vec<(u64, Target)> {
    seconds
        .filter_map(|second| {
            let transition = controller.tick(at(second), waits(lost), NODE_CPUS)?;
            Some((second, transition.to))
        })
        .collect()
}

fn target(idle: bool, cpus: Option<usize>, quota_cores: Option<f64>) -> Target {
    Target { idle, cpus, quota_cores }
}

#[test]
fn lasting_harm_takes_one_step_after_the_other() {
    let mut controller =
        Controller::new(ControllerSettings { floor_cpus: 4, ..ControllerSettings::default() });
    assert_eq!(
        run(&mut controller, 0..16, 0.2),
        [
            (3, target(true, None, None)),
            (6, target(true, Some(8), None)),
            (9, target(true, Some(4), None)),
            (12, target(true, Some(4), Some(2.0))),
            (15, target(true, Some(4), Some(1.0))),
        ]
    );
}

#[test]
fn a_pod_with_a_small_request_takes_no_cpu_from_best_effort() {
    let mut controller = Controller::new(ControllerSettings::default());
    let mut tick = |second, weighed| {
        controller.tick(at(second), weighed_waits(0.99, weighed), NODE_CPUS);
        controller.target()
    };
    assert_eq!((0..100).map(|second| tick(second, 0.0)).last(), Some(target(true, None, None)));
    // A pod whose request counts, for some seconds.
    assert!((100..110).map(|second| tick(second, 0.2)).last().unwrap().step() > Step::Idle);
    let end = (110..1000).map(|second| tick(second, 0.0)).last();
    assert_eq!(end, Some(target(true, None, None)), "the first pod still waits");
}

#[test]
fn a_quota_is_halved_to_the_floor_while_the_harm_falls() {
    let mut controller =
        Controller::new(ControllerSettings { floor_cpus: 4, ..ControllerSettings::default() });
    for second in 0..60 {
        let lost = 0.9f64.powf(second as f64 / 2.0).max(0.06);
        controller.tick(at(second), waits(lost), NODE_CPUS);
    }
    assert_eq!(controller.target(), target(true, Some(4), Some(0.1)));
}

#[test]
fn a_quota_stays_while_halving_does_not_help_and_shrinks_after_a_pause_of_the_harm() {
    let mut controller =
        Controller::new(ControllerSettings { floor_cpus: 4, ..ControllerSettings::default() });
    run(&mut controller, 0..16, 0.2);
    assert_eq!(run(&mut controller, 16..600, 0.19), []);
    assert_eq!(controller.target(), target(true, Some(4), Some(1.0)));
    assert_eq!(run(&mut controller, 600..610, 0.03), [], "not without harm");
    let smaller = target(true, Some(4), Some(0.5));
    assert_eq!(run(&mut controller, 610..614, 0.2), [(613, smaller)]);
}

#[test]
fn brief_harm_takes_no_step() {
    let mut controller = Controller::new(ControllerSettings::default());
    for second in 0..60 {
        let lost = if second % 3 == 0 { 0.0 } else { 0.5 };
        assert_eq!(controller.tick(at(second), waits(lost), NODE_CPUS), None);
    }
}

#[test]
fn harm_between_the_thresholds_holds_the_step() {
    let mut controller = Controller::new(ControllerSettings::default());
    assert_eq!(run(&mut controller, 0..4, 0.2).len(), 1);
    assert_eq!(run(&mut controller, 4..600, 0.03), []);
    assert_eq!(controller.target().step(), Step::Idle);
}

#[test]
fn steps_are_given_back_slowly_and_in_reverse() {
    let mut controller =
        Controller::new(ControllerSettings { floor_cpus: 14, ..ControllerSettings::default() });
    run(&mut controller, 0..10, 0.2);
    assert_eq!(controller.target(), target(true, Some(14), Some(7.0)));
    let back = run(&mut controller, 10..200, 0.0);
    let steps: Vec<Step> = back.iter().map(|(_, target)| target.step()).collect();
    assert!(steps.is_sorted_by(|a, b| a >= b), "{steps:?}");
    assert_eq!(back.first().map(|(second, _)| *second), Some(40), "30 s without harm");
    assert_eq!(controller.target(), Target::default());
    // Each further step waits for the whole time again.
    let first = |step| back.iter().find(|(_, target)| target.step() == step).unwrap().0;
    assert!(first(Step::None) - first(Step::Idle) >= 30, "{back:?}");
}

#[test]
fn a_relapse_doubles_the_time_before_steps_are_given_back() {
    let mut controller = Controller::new(ControllerSettings::default());
    assert_eq!(run(&mut controller, 0..4, 0.2).len(), 1);
    assert_eq!(run(&mut controller, 4..40, 0.0), [(34, Target::default())]);
    assert_eq!(run(&mut controller, 40..44, 0.2).len(), 1);
    assert_eq!(run(&mut controller, 44..110, 0.0), [(104, Target::default())], "60 s");
}

#[test]
fn without_cpu_idle_or_cpusets_the_next_step_is_taken() {
    let settings = ControllerSettings { can_idle: false, ..ControllerSettings::default() };
    let mut controller = Controller::new(settings);
    assert_eq!(run(&mut controller, 0..4, 0.2), [(3, target(false, Some(8), None))]);
    let mut controller = Controller::new(ControllerSettings { can_move: false, ..settings });
    assert_eq!(run(&mut controller, 0..4, 0.2), [(3, target(false, None, Some(8.0)))]);
}

#[test]
fn the_fallback_follows_the_budget_with_limited_growth() {
    let mut controller = Controller::new(ControllerSettings::default());
    let mut tick = |second, budget| {
        controller.tick(at(second), Signal::Utilization(budget), NODE_CPUS).map(|t| t.to)
    };
    assert_eq!(tick(0, 20.0), None);
    assert_eq!(tick(1, 3.2), Some(target(false, Some(4), None)), "shrinks at once");
    assert_eq!(tick(2, 3.5), None);
    assert_eq!(tick(3, 20.0), Some(target(false, Some(6), None)), "a tenth of 16, rounded up");
    assert_eq!(tick(4, 2.0), Some(target(false, Some(2), None)), "the floor");
}

#[test]
fn a_budget_below_the_floor_of_cpus_is_a_quota() {
    let mut controller = Controller::new(ControllerSettings::default());
    let mut tick = |second, budget| {
        controller.tick(at(second), Signal::Utilization(budget), 2).map(|t| t.to.quota_cores)
    };
    let near = |quota: Option<Option<f64>>, cores: f64| {
        assert!((quota.unwrap().unwrap() - cores).abs() < 1e-9, "{quota:?}, not {cores}");
    };
    assert_eq!(tick(0, 2.0), None);
    near(tick(1, 0.73), 0.73);
    assert_eq!(tick(2, 0.745), None, "a change below a hundredth of the node");
    near(tick(3, 1.9), 0.93);
    near(tick(4, -4.0), 0.1);
    for second in 5..15 {
        tick(second, 2.0);
    }
    assert_eq!(controller.target(), Target::default(), "the budget is the whole node");
}

#[test]
fn on_a_large_node_the_budget_is_cpus_and_then_a_quota() {
    let mut controller = Controller::new(ControllerSettings::default());
    let transition = controller.tick(at(0), Signal::Utilization(0.7), NODE_CPUS).unwrap();
    assert_eq!(transition.to, target(false, Some(2), Some(0.7)));
}

#[test]
fn a_quota_is_given_back_before_the_cpus_grow() {
    let mut controller = Controller::new(ControllerSettings::default());
    let mut tick = |second, budget| {
        controller.tick(at(second), Signal::Utilization(budget), NODE_CPUS).unwrap().to
    };
    assert_eq!(tick(0, 0.25), target(false, Some(2), Some(0.25)));
    assert_eq!(tick(1, 20.0), target(false, Some(2), Some(1.85)), "a tenth of 16 cores");
    assert_eq!(tick(2, 20.0), target(false, Some(2), None), "3.45 cores are more than 2 CPUs");
    assert_eq!(tick(3, 20.0), target(false, Some(4), None));
}

#[test]
fn everything_is_given_back_when_nothing_is_measured() {
    let settings = ControllerSettings { signal_timeout: at(60), ..ControllerSettings::default() };
    let mut controller = Controller::new(settings);
    run(&mut controller, 0..10, 0.2);
    for second in 10..69 {
        assert_eq!(controller.tick(at(second), Signal::Missing, NODE_CPUS), None);
    }
    let transition = controller.tick(at(69), Signal::Missing, NODE_CPUS).unwrap();
    assert_eq!(transition.to, Target::default());
    assert_eq!(transition.reason, Reason::SignalLost(at(60)));
}

#[test]
fn harm_lasts_over_ticks_without_a_new_measurement() {
    let mut controller = Controller::new(ControllerSettings::default());
    let steps: Vec<u64> = (0..9)
        .filter(|&second| {
            let signal = if second % 2 == 0 { waits(0.2) } else { Signal::Missing };
            controller.tick(at(second), signal, NODE_CPUS).is_some()
        })
        .collect();
    assert_eq!(steps, [4, 8]);
}

#[test]
fn reasons_name_the_victim_and_the_figures() {
    let mut controller = Controller::new(ControllerSettings::default());
    run(&mut controller, 0..3, 0.2);
    let transition = controller.tick(at(3), waits(0.2), NODE_CPUS).unwrap();
    assert_eq!(
        transition.reason.to_string(),
        "shop/cart waits for best-effort pods 20.0 % of its time"
    );
    assert_eq!(transition.reason.name(), "harm");
    assert_eq!((transition.from.step(), transition.to.step()), (Step::None, Step::Idle));
}

fn signal() -> impl Strategy<Value = Signal> {
    prop_oneof![
        6 => (0.0..0.3f64).prop_map(waits),
        4 => Just(waits(0.0)),
        2 => (-5.0..40.0f64).prop_map(Signal::Utilization),
        1 => Just(Signal::Missing),
    ]
}

proptest! {
    #[test]
    fn targets_stay_within_their_bounds_and_grow_slowly(
        history in proptest::collection::vec((signal(), 1..40usize), 1..60),
        node in 0..200usize, floor in 0..6usize, can_idle: bool, can_move: bool,
    ) {
        let settings = ControllerSettings { floor_cpus: floor, can_idle, can_move, ..ControllerSettings::default() };
        let mut controller = Controller::new(settings);
        let mut second = 0;
        for (signal, times) in history {
            for _ in 0..times {
                second += 1;
                let before = controller.target();
                let transition = controller.tick(at(second), signal.clone(), node);
                let after = controller.target();
                prop_assert_eq!(transition.is_some(), before != after);
                if let Some(cpus) = after.cpus {
                    prop_assert!(cpus >= floor.max(2).min(node) && cpus < node && can_move);
                }
                if let Some(cores) = after.quota_cores {
                    // Where no CPU is left for best effort, the floor still is.
                    let most = (node as f64).max(settings.floor_cores);
                    prop_assert!(cores >= settings.floor_cores && cores <= most);
                }
                prop_assert!(can_idle || !after.idle);
                let Some(transition) = transition else { continue };
                if let Reason::SignalLost(_) = transition.reason {
                    prop_assert_eq!(after, Target::default());
                } else {
                    let cores = |target: Target| {
                        let cpus = target.cpus.unwrap_or(node) as f64;
                        target.quota_cores.map_or(cpus, |quota| cpus.min(quota))
                    };
                    // Whole CPUs are rounded up, quotas to a microsecond.
                    let most = match before.quota_cores {
                        Some(_) => node as f64 * 0.1 + 1e-4,
                        None => node.div_ceil(10) as f64,
                    };
                    let grown = cores(after) - cores(before);
                    prop_assert!(grown <= most, "{before:?} to {after:?} grows by {grown}");
                }
                if let Reason::Harm(harm) = &transition.reason {
                    prop_assert!(harm.lost >= settings.harm_above);
                    prop_assert!(after.step() >= before.step());
                }
            }
        }
    }

    #[test]
    fn without_harm_every_history_ends_without_restrictions(
        history in proptest::collection::vec((signal(), 1..40usize), 1..30), node in 3..64usize,
    ) {
        let mut controller = Controller::new(ControllerSettings::default());
        let mut second = 0;
        for (signal, times) in history {
            for _ in 0..times {
                second += 1;
                controller.tick(at(second), signal.clone(), node);
            }
        }
        for _ in 0..16 * 30 * 4 + 3 * 40 {
            second += 1;
            controller.tick(at(second), waits(0.0), node);
        }
        prop_assert_eq!(controller.target(), Target::default());
    }
}
