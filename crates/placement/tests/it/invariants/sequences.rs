//! Invariants of every intermediate state of every write sequence, on both hierarchies, including
//! after a crash.

use std::path::Path;

use kernel_text::CgroupVersion;
use placement::{Plan, Step, drain_steps, widen_steps};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::sim::ROOT;
use super::stage::Stage;
use super::world::{Event, World, any_event, any_world};

type Checked = Result<(), TestCaseError>;

fn any_version() -> impl Strategy<Value = CgroupVersion> {
    prop_oneof![Just(CgroupVersion::V1), Just(CgroupVersion::V2)]
}

fn any_events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(any_event(), 1..16)
}

/// Carries the steps out and checks that no step moves a pod that keeps its CPUs.
fn carry_out(stage: &mut Stage, steps: &[Step], plan: &Plan) -> Checked {
    let unmoved = stage.unmoved(plan, &stage.world.current);
    for step in steps {
        if let Err(wrong) = stage.carry_out(step, plan) {
            return Err(TestCaseError::fail(format!(
                "{wrong}\n at {step:?}\n of {steps:#?}\n to {plan:#?}"
            )));
        }
        for (path, cpus) in &unmoved {
            prop_assert_eq!(&stage.kernel.effective(path), cpus, "{:?} moved at {:?}", path, step);
        }
    }
    Ok(())
}

/// Plays the events, each with its transition; `check` sees the stage after each commit, and the
/// plan.
fn play(
    world: World,
    version: CgroupVersion,
    events: &[Event],
    check: impl Fn(&mut Stage, &Plan, &[Step]) -> Checked,
) -> Checked {
    let mut stage = Stage::new(world, version);
    for event in events {
        stage.happen(event);
        let Some(plan) = stage.plan() else { continue };
        let steps = stage.steps(&plan, &stage.world.current);
        carry_out(&mut stage, &steps, &plan)?;
        check(&mut stage, &plan, &steps)?;
        stage.commit(&plan);
    }
    Ok(())
}

proptest! {
    #![proptest_config(super::cases(96))]

    #[test]
    fn no_step_lets_another_class_onto_a_granted_cpu_or_is_rejected(
        world in any_world(), version in any_version(), events in any_events(),
    ) {
        play(world, version, &events, |stage, plan, _| {
            prop_assert!(stage.violations(plan).is_empty(), "{:?}", stage.violations(plan));
            stage.settled(plan).map_err(TestCaseError::fail)
        })?;
    }

    #[test]
    fn cpus_are_granted_only_when_everybody_else_has_left_them(
        world in any_world(), version in any_version(), events in any_events(),
    ) {
        let mut stage = Stage::new(world, version);
        for event in &events {
            stage.happen(event);
            let Some(plan) = stage.plan() else { continue };
            for step in stage.steps(&plan, &stage.world.current) {
                stage.carry_out(&step, &plan).map_err(TestCaseError::fail)?;
                if let Step::Grant { holding, uid } = &step {
                    prop_assert_eq!(plan.placements[uid].class, holding.class);
                    let inside = stage.violations(&plan).into_iter().find(|(_, cpu)| holding.cpus.contains(*cpu));
                    prop_assert!(inside.is_none(), "{:?} granted with {:?} inside", holding, inside);
                }
            }
            stage.commit(&plan);
            prop_assert_eq!(stage.granted(), stage.world.current.held.clone());
        }
    }

    #[test]
    fn every_grant_is_verified_after_the_last_write_that_made_room(
        world in any_world(), version in any_version(), events in any_events(),
    ) {
        play(world, version, &events, |_, _, steps| {
            let mut unverified = Vec::new();
            for step in steps {
                match step {
                    Step::Write { path, .. } => unverified.push(path),
                    Step::Verify { path, .. } => unverified.retain(|written| *written != path),
                    Step::Grant { .. } => prop_assert!(unverified.is_empty(), "{:?} not verified", unverified),
                    Step::Release { .. } => {}
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn the_second_transition_writes_nothing(world in any_world(), version in any_version(), events in any_events()) {
        play(world, version, &events, |stage, plan, _| {
            let again = stage.steps(plan, &plan.outcome());
            prop_assert!(again.is_empty(), "{:?}", again);
            Ok(())
        })?;
    }

    #[test]
    fn nothing_is_released_of_a_pod_that_keeps_what_it_has(
        world in any_world(), version in any_version(), events in any_events(),
    ) {
        play(world, version, &events, |stage, plan, steps| {
            for step in steps {
                if let Step::Release { uid, cpus } = step {
                    let kept = plan.placements.get(uid).filter(|placement| placement.class.is_exclusive());
                    prop_assert!(kept.is_none_or(|kept| kept.cpus.is_disjoint(cpus)), "{:?}", step);
                    prop_assert!(stage.world.current.held.contains_key(uid));
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_crash_after_any_step_converges_without_moving_a_running_pod(
        world in any_world(), version in any_version(), events in any_events(), crashes in prop::collection::vec(any::<prop::sample::Index>(), 16),
        intent_survives in any::<bool>(),
    ) {
        let mut stage = Stage::new(world, version);
        for (event, crash) in events.iter().zip(crashes) {
            stage.happen(event);
            let Some(plan) = stage.plan() else { continue };
            let steps = stage.steps(&plan, &stage.world.current);
            let done = crash.index(steps.len() + 1);
            carry_out(&mut stage, &steps[..done], &plan)?;
            // After the restart: the committed state, or the logged intent, and the state of the
            // kernel.
            let mut restarted = stage.clone();
            if intent_survives {
                restarted.world.current = plan.outcome();
            }
            let again = restarted.plan().expect("nothing has changed");
            prop_assert_eq!(&again.placements, &plan.placements);
            let rest = restarted.steps(&again, &stage.world.current);
            carry_out(&mut stage, &rest, &again)?;
            stage.settled(&plan).map_err(TestCaseError::fail)?;
            prop_assert!(stage.violations(&plan).is_empty());
            stage.commit(&plan);
        }
    }

    #[test]
    fn draining_widens_every_cgroup_and_releases_everything(
        world in any_world(), version in any_version(), events in any_events(),
    ) {
        play(world, version, &events, |stage, plan, _| {
            let mut drained = stage.clone();
            let steps = drain_steps(&drained.hierarchy(), &drained.cgroups(), &plan.outcome().held);
            let full = drained.kernel.effective(Path::new(ROOT));
            for step in steps.expect("something is online") {
                drained.carry_out(&step, plan).map_err(TestCaseError::fail)?;
            }
            prop_assert!(drained.granted().values().all(|held| held.cpus.is_empty()));
            for cgroup in drained.cgroups().iter().flat_map(|pod| &pod.cgroups).filter(|cgroup| cgroup.ours) {
                prop_assert_eq!(&cgroup.effective, &full);
            }
            Ok(())
        })?;
    }

    #[test]
    fn widening_takes_no_cpu_from_any_cgroup_and_is_never_rejected(
        world in any_world(), version in any_version(), events in any_events(), some in any::<bool>(),
    ) {
        play(world, version, &events, |stage, _, _| {
            let mut stage = stage.clone();
            let hierarchy = stage.hierarchy();
            for (at, pod) in stage.cgroups().into_iter().enumerate() {
                let may_widen = |cgroup: &placement::CpusetCgroup| cgroup.ours && (some || at % 2 == 0);
                for step in widen_steps(&hierarchy, &pod, &hierarchy.ceiling, may_widen) {
                    let Step::Write { path, cpus, effective, .. } = step else { panic!("{step:?}") };
                    prop_assert!(stage.kernel.write(&path, &cpus).is_ok(), "{:?} := {:?}", path, cpus);
                    prop_assert_eq!(stage.kernel.effective(&path), effective);
                }
                // On v2 a set chosen by an application applies again as soon as its container has
                // those CPUs.
                for cgroup in pod.cgroups.iter().filter(|cgroup| cgroup.ours || version == CgroupVersion::V1) {
                    let now = stage.kernel.effective(&cgroup.path);
                    prop_assert!(cgroup.effective.is_subset(&now), "{:?} lost of {:?}", cgroup, now);
                    prop_assert!(!may_widen(cgroup) || now == hierarchy.ceiling);
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_pod_that_is_left_alone_is_neither_written_nor_in_the_way(
        world in any_world(), version in any_version(), events in any_events(), n in any::<usize>(),
    ) {
        play(world, version, &events, |stage, plan, _| {
            let mut stage = stage.clone();
            let Some(left) = stage.world.pods.get(n % stage.world.pods.len().max(1)).map(|pod| pod.uid.clone()) else {
                return Ok(());
            };
            // The pod runs on all CPUs again and in the shared pool, whatever it requests.
            let everything = stage.hierarchy().ceiling;
            let pod = stage.cgroups().into_iter().find(|pod| pod.uid == left).expect("it has cgroups");
            for step in widen_steps(&stage.hierarchy(), &pod, &everything, |cgroup| cgroup.ours) {
                let Step::Write { path, cpus, .. } = step else { panic!("{step:?}") };
                prop_assert!(stage.kernel.write(&path, &cpus).is_ok());
            }
            stage.world.current = plan.outcome();
            stage.world.current.withheld = [left.clone()].into();
            let Some(mut next) = stage.plan() else { return Ok(()) };
            prop_assert!(!next.placements.get(&left).is_some_and(|placement| placement.class.is_exclusive()));
            next.placements.remove(&left);
            for step in stage.steps(&next, &plan.outcome()) {
                let is_its_own = matches!(&step, Step::Write { uid, .. } | Step::Grant { uid, .. } if *uid == left);
                prop_assert!(!is_its_own, "{:?}", step);
                stage.carry_out(&step, &next).map_err(TestCaseError::fail)?;
            }
            stage.settled(&next).map_err(TestCaseError::fail)?;
            Ok(())
        })?;
    }
}
