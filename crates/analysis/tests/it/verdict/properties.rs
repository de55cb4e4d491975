//! What holds on every node.

use std::collections::BTreeMap;
use std::sync::Arc;

use analysis::verdict::{PodSecond, Second, Verdicts, WorkloadName};
use api::{CauseKind, SlowedReason, Verdict};
use proptest::prelude::*;
use snapshot::{Culprit, TraceMode};

use super::scene::{identity, pod};

const PODS: usize = 6;
/// Number of pods of the same workload.
const SHARED: usize = 3;

fn shared() -> Arc<WorkloadName> {
    let (namespace, kind, name) = ("ns".into(), "Deployment".into(), "shared".into());
    Arc::new(WorkloadName { namespace, kind, name })
}

fn name(number: usize) -> String {
    format!("ns/pod-{number}")
}

/// One second of a pod: lost time to each pod (itself too, which a broken trace might report), to
/// the system and to what is unknown.
fn any_pod(number: usize) -> impl Strategy<Value = PodSecond> {
    let lost = proptest::collection::vec(prop_oneof![Just(0.0), 0.0..1.0], PODS + 2);
    let amount = || prop_oneof![Just(0.0), 0.0..1.0];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (lost, (amount(), amount(), amount(), amount()), flags, proptest::option::of(0.0..2.0))
        .prop_map(
            move |(
                lost,
                (used, own, ancestor, itself),
                (best_effort, restricted, sleeps, quota),
                request,
            )| {
                let others = (0..PODS).map(|other| Culprit::Pod(identity(&name(other))));
                let culprits = others.chain([Culprit::System, Culprit::Unattributed]);
                let pod = pod(&name(number), 0.0, used);
                PodSecond {
                    workload: if number < SHARED { shared() } else { Arc::clone(&pod.workload) },
                    request_cores: request,
                    best_effort,
                    is_restricted: restricted && best_effort,
                    sleeps,
                    lost: culprits.zip(lost).filter(|(_, lost)| *lost > 0.0).collect(),
                    throttled_own: own,
                    throttled_ancestor: ancestor,
                    waited_self: itself,
                    has_pod_quota: quota,
                    containers: vec![("app".into(), used * 0.4), ("sidecar".into(), used * 0.6)],
                    ..pod
                }
            },
        )
}

fn any_second() -> impl Strategy<Value = Second> {
    let pods: Vec<_> = (0..PODS).map(any_pod).collect();
    let stolen = prop_oneof![Just(0.0), 0.0..1.0];
    let trace = proptest::option::of(prop_oneof![
        Just(TraceMode::Continuous),
        Just(TraceMode::Bursts { one_of: 8 })
    ]);
    (pods, trace, stolen).prop_map(|(pods, trace, stolen)| Second {
        seconds: 1.0,
        stolen,
        trace,
        pods,
    })
}

fn check(verdict: &Verdict, second: &Second, was_traced: bool) {
    let victim = second.pods.iter().find(|pod| pod.pod.pod == verdict.victim.pod).unwrap();
    for culprit in &verdict.culprits {
        names_another(verdict, culprit, victim);
    }
    match verdict.cause {
        CauseKind::One => {
            assert_eq!(verdict.culprits.len(), 1);
            assert!(verdict.culprits[0].share >= 0.5, "{verdict:?}");
        }
        CauseKind::Several => assert!(verdict.culprits.len() <= 3),
        CauseKind::Unknown | CauseKind::Own => assert!(verdict.culprits.is_empty()),
    }
    if !was_traced {
        assert!(!matches!(verdict.reason, SlowedReason::Neighbor | SlowedReason::System));
    }
    assert!((1.0..=100.0).contains(&verdict.factor()), "{verdict:?}");
    assert!(!verdict.summary.is_empty() && !verdict.remedy.is_empty());
}

/// The cause is never the victim. Another pod of its workload may be, where it waits for that one.
fn names_another(verdict: &Verdict, culprit: &api::Culprit, victim: &PodSecond) {
    let is_own = culprit.kind == victim.workload.kind && culprit.name == victim.workload.name;
    let may_be_sibling = victim.workload == shared() && verdict.reason.is_of_others();
    assert!(!is_own || may_be_sibling, "{verdict:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_verdict_names_another_with_half_of_the_time(
        seconds in proptest::collection::vec(any_second(), 1..30)
    ) {
        let mut verdicts = Verdicts::default();
        let mut counted: BTreeMap<String, f64> = BTreeMap::new();
        for (at, second) in seconds.iter().enumerate() {
            let judged = verdicts.push(second);
            let was_traced = seconds[..=at].iter().any(Second::is_traced);
            judged.verdicts.iter().for_each(|verdict| check(verdict, second, was_traced));
            let victims: Vec<&str> =
                judged.verdicts.iter().map(|verdict| &*verdict.victim.pod).collect();
            let mut once = victims.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), victims.len(), "one line per victim");
            for slowed in judged.slowed {
                *counted.entry(slowed.pod.pod.clone()).or_default() += slowed.seconds;
            }
            // No pod is slowed for longer than time has passed.
            prop_assert!(counted.values().all(|seconds| *seconds <= (at + 1) as f64));
        }
    }

    #[test]
    fn the_order_of_the_pods_does_not_matter(second in any_second()) {
        let mut reversed = second.clone();
        reversed.pods.reverse();
        let (mut one, mut other) = (Verdicts::default(), Verdicts::default());
        let last = (0..6).map(|_| (one.push(&second), other.push(&reversed))).last();
        let (one, other) = last.unwrap();
        let names = |judged: &analysis::verdict::Judged| super::scene::lines(judged);
        prop_assert_eq!(names(&one), names(&other));
    }
}
