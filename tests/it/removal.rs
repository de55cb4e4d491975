//! `cargo bench --bench verdict`: the truth by removal, the score of an answer, and the cases that
//! its table must contain.

use std::collections::BTreeSet;

#[allow(dead_code, reason = "the bench uses the rest")]
#[path = "../../benches/verdict/model.rs"]
mod model;
#[allow(dead_code, reason = "the bench uses the rest")]
#[path = "../../benches/verdict/scenarios.rs"]
mod scenarios;
#[allow(dead_code, reason = "the bench uses the rest")]
#[path = "../../benches/verdict/truth.rs"]
mod truth;

use model::{Limit, Part, Removal};
use truth::{Answer, Latency, Score, Slowed, Truth, score};

fn ms(mean_ms: f64) -> Latency {
    Latency { mean_ms, p99_ms: mean_ms, requests: 50.0 }
}

/// The truth about a service that takes 3 ms alone.
fn truth(together: f64, without: &[(Removal, Latency)]) -> Truth {
    Truth::of(ms(3.0), ms(together), without)
}

const A: Removal = Removal::Freeze("a");
const B: Removal = Removal::Freeze("b");

#[test]
fn what_restores_half_of_the_excess_is_the_cause() {
    let cures = |without: &[(Removal, Latency)]| truth(13.0, without).cures;
    assert_eq!(cures(&[(A, ms(8.0)), (B, ms(8.1))]), ["a"]);
    assert_eq!(cures(&[(A, ms(9.0)), (B, ms(9.0))]), [""; 0]);
    assert_eq!(cures(&[(A, ms(4.0)), (B, ms(5.0))]), ["a", "b"]);
    // Without a caller there are fewer requests.
    let calls_stop = Latency { requests: 25.0, ..ms(4.0) };
    assert_eq!(cures(&[(A, calls_stop), (B, ms(5.0))]), ["b"]);
}

#[test]
fn a_service_is_slowed_if_its_mean_latency_grows_by_half() {
    let slowed = |together: f64| truth(together, &[(A, ms(3.0))]).slowed;
    assert_eq!([3.2, 4.2, 4.5].map(slowed), [Slowed::No, Slowed::Slightly, Slowed::Yes]);
    // Nothing is cured where nothing is slowed.
    assert_eq!(truth(3.2, &[(A, ms(3.0))]).cures, [""; 0]);
    // A growth below a millisecond does not matter.
    let short = Truth::of(ms(0.1), ms(0.9), &[(A, ms(0.1))]);
    assert_eq!(short.slowed, Slowed::No);
}

#[test]
fn limits_controls_and_requests_are_no_names() {
    let above = Removal::Lift(Limit::Above);
    let of = truth(
        13.0,
        &[
            (above, ms(3.0)),
            (A, ms(3.0)),
            (Removal::Control("cart"), ms(12.0)),
            (Removal::Raise(1000), ms(4.0)),
        ],
    );
    assert_eq!((of.limit, &of.cures[..]), (Some(Limit::Above), &["a"][..]));
    assert_eq!((of.request_cures, of.is_disturbed), (Some(true), false));
    // The phases of a run cannot be compared if the control cures.
    assert!(truth(13.0, &[(Removal::Control("cart"), ms(7.0))]).is_disturbed);
}

#[test]
fn a_name_is_wrong_if_its_removal_cures_nothing() {
    let (half, none) = (ms(7.0), ms(13.0));
    let by_a = truth(13.0, &[(A, half), (B, none)]);
    let by_both = truth(13.0, &[(A, none), (B, none)]);
    let by_either = truth(13.0, &[(A, half), (B, half)]);
    let nobody = truth(3.0, &[(A, ms(3.0))]);
    let slightly = truth(4.2, &[(A, ms(3.0)), (B, ms(4.2))]);
    let own = truth(13.0, &[(A, none), (Removal::Lift(Limit::Own), half)]);
    let above = truth(13.0, &[(A, half), (B, none), (Removal::Lift(Limit::Above), half)]);
    let one = |name: &str| Answer::One(name.to_owned());
    let several = || Answer::Several(vec!["a".to_owned(), "b".to_owned()]);
    let by_limit = |limit, name: Option<&str>| Answer::Limit(limit, name.map(str::to_owned));
    let cases = [
        (&by_a, one("a"), Score::Right),
        (&by_a, one("b"), Score::Wrong),
        (&by_a, several(), Score::Undecided),
        (&by_a, Answer::Silent, Score::Undecided),
        (&by_a, Answer::Unknown, Score::Undecided),
        (&by_a, by_limit(Limit::Own, None), Score::Wrong),
        (&by_a, Answer::OwnThreads, Score::Wrong),
        (&by_both, several(), Score::Right),
        (&by_both, one("a"), Score::Wrong),
        (&by_either, several(), Score::Right),
        (&by_either, one("b"), Score::Right),
        (&nobody, Answer::Silent, Score::Right),
        (&nobody, Answer::OwnThreads, Score::Right),
        (&nobody, Answer::Unknown, Score::Undecided),
        (&nobody, several(), Score::Wrong),
        (&nobody, by_limit(Limit::Own, None), Score::Wrong),
        (&slightly, Answer::Silent, Score::Right),
        (&slightly, one("a"), Score::Right),
        (&slightly, one("b"), Score::Wrong),
        (&own, by_limit(Limit::Own, None), Score::Right),
        (&own, by_limit(Limit::Above, None), Score::Wrong),
        (&own, one("a"), Score::Wrong),
        (&above, by_limit(Limit::Above, Some("a")), Score::Right),
        (&above, by_limit(Limit::Above, Some("b")), Score::Wrong),
        (&above, by_limit(Limit::Above, None), Score::Right),
        (&above, one("a"), Score::Undecided),
    ];
    for (truth, answer, expected) in cases {
        assert_eq!(score(truth, &answer), expected, "{truth:?} {answer:?}");
    }
}

/// Parts of the names of scenarios that the table must contain.
const REQUIRED: [&str; 27] = [
    "incident",
    "its own limit",
    "the pod's limit, which a sidecar",
    "a limit above all pods",
    "a request that is too low",
    "the host",
    "softirqs",
    "in the kernel",
    "that is gone",
    "preempts a spinner at once",
    "preempts often",
    "SCHED_IDLE",
    "nice 19",
    "moved each 7 ms",
    "300 ms each 10 s",
    "best effort beside",
    "best-effort spinner, which is owed nothing",
    "pinned",
    "two culprits",
    "short-lived threads",
    "short-lived processes",
    "nothing wrong",
    "a load of 50m",
    "two pods of six spinners",
    "a database within its request",
    "a CronJob of forty pods",
    "a caller",
];

#[test]
fn the_table_has_every_required_case() {
    let all = scenarios::all();
    let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), all.len(), "a name twice");
    for part in REQUIRED.iter().chain(&["60 to 40", "system 55 %"]) {
        assert!(names.iter().any(|name| name.contains(part)), "no scenario of {part}");
    }
}

#[test]
fn each_scenario_has_one_service_a_control_and_its_cause() {
    for scenario in scenarios::all() {
        let parts = |part: Part| {
            let all = scenario.pods.iter().flat_map(|pod| &pod.containers);
            all.filter(|container| container.part == part).count()
        };
        assert_eq!((parts(Part::Service), parts(Part::Control)), (1, 1), "{}", scenario.name);
        let removals = scenario.removals();
        let has = |removal| removals.contains(&removal);
        let is_there = match scenario.made_for.rsplit(", ").next().unwrap() {
            "nobody" => true,
            "several" => parts(Part::Suspect) > 1,
            "own limit" => has(Removal::Lift(Limit::Own)),
            name => has(Removal::Freeze(name)),
        };
        assert!(is_there, "{}: nothing removes {}", scenario.name, scenario.made_for);
        let has_limit_above = scenario.made_for.starts_with("limit above");
        assert_eq!(has_limit_above, has(Removal::Lift(Limit::Above)), "{}", scenario.name);
    }
}
