//! Pods that make others wait, by the trace: suggestions for the owners of the victims, and delays
//! for the advice about the aggressors.

use std::time::{Duration, Instant};

use analysis::{Delay, Delays};
use colocation::{PairMeter, Suggestion, Suggestions};
use kubepods::PodIndex;
use kubepods::model::Pod;
use snapshot::{NodeSnapshot, TraceMode};

/// Decides which waits for a pod are suggested to the owners, and which are shown as advice.
pub struct InterferencePolicy {
    meter: PairMeter,
    suggestions: Suggestions,
    is_best_effort: fn(&Pod) -> bool,
    /// Time zero of the suggestions.
    start: Instant,
    now: Duration,
}

impl InterferencePolicy {
    /// A policy that begins at `start`. `is_best_effort` is the rule for known pods.
    #[must_use]
    pub fn new(start: Instant, is_best_effort: fn(&Pod) -> bool) -> Self {
        let (meter, suggestions) = (PairMeter::default(), Suggestions::default());
        Self { meter, suggestions, is_best_effort, start, now: Duration::ZERO }
    }

    /// Reads a snapshot and returns the suggestions that are due.
    pub fn read(
        &mut self,
        now: Instant,
        snapshot: &NodeSnapshot,
        index: &PodIndex,
    ) -> Vec<Suggestion> {
        self.now = now.saturating_duration_since(self.start);
        let of_known = self.is_best_effort;
        let best_effort = |namespace: &str, pod: &str| {
            let known = index.pod_by_name(namespace, pod).map(|pod| of_known(pod));
            known.unwrap_or_else(|| has_best_effort_cgroup(snapshot, namespace, pod))
        };
        let pairs = match self.meter.read(snapshot, best_effort) {
            Some(pairs) => pairs,
            None if is_traced(snapshot) => return Vec::new(),
            // Unmeasured time counts as no delay.
            None => Vec::new(),
        };
        self.suggestions.tick(self.now, pairs, |name| {
            name.split_once('/').is_some_and(|(namespace, pod)| best_effort(namespace, pod))
        })
    }

    /// The worst delay of each pod that causes one.
    pub fn delays(&mut self) -> Delays {
        let mut delays = Delays::new();
        for Suggestion { pair, cause } in self.suggestions.in_force(self.now) {
            let Some((namespace, pod)) = pair.aggressor.split_once('/') else { continue };
            let delay = Delay {
                victim: pair.victim.clone(),
                lost: pair.lost,
                used_cores: pair.facts.used_cores,
                request_cores: pair.facts.request_cores,
                limit_cores: pair.facts.limit_cores,
                runnable_threads: pair.facts.runnable_threads,
                remedy: cause.to_string(),
            };
            let worst = delays.entry((namespace.to_owned(), pod.to_owned())).or_default();
            if delay.lost > worst.lost {
                *worst = delay;
            }
        }
        delays
    }
}

fn is_traced(snapshot: &NodeSnapshot) -> bool {
    let trace = snapshot.waits.trace.as_ref();
    trace.is_some_and(|trace| trace.mode != TraceMode::Detached)
}

/// Whether the cgroup of a pod, which the pod list does not have, is that of a best-effort pod.
fn has_best_effort_cgroup(snapshot: &NodeSnapshot, namespace: &str, pod: &str) -> bool {
    let row = snapshot
        .containers
        .iter()
        .find(|row| row.identity.namespace == namespace && row.identity.pod == pod);
    row.is_some_and(|row| row.identity.qos_class == "BestEffort")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use snapshot::{
        ContainerIdentity, ContainerRow, InterferenceRow, Losses, NodeWaits, PodIdentity, TraceRow,
    };

    use super::*;

    fn container(pod: &str, qos_class: &str, usage_ns: u64) -> ContainerRow {
        let identity = ContainerIdentity {
            namespace: "n".into(),
            pod: pod.into(),
            qos_class: qos_class.into(),
            ..ContainerIdentity::default()
        };
        let (identity, usage_ns) = (Arc::new(identity), Some(usage_ns));
        ContainerRow { identity, live: true, usage_ns, ..ContainerRow::default() }
    }

    /// `victim` waits a fifth of its time for each of two pods.
    fn node(start: Instant, second: u64) -> NodeSnapshot {
        let waits_for = |aggressor: &str| InterferenceRow {
            victim: Arc::new(PodIdentity {
                namespace: "n".into(),
                pod: "victim".into(),
                ..PodIdentity::default()
            }),
            aggressor_namespace: "n".into(),
            aggressor_pod: aggressor.into(),
            wait_ns: second * 200_000_000,
        };
        let losses = Losses::default();
        let trace = TraceRow { mode: TraceMode::Continuous, run_ns: 0, switches: 0, losses };
        let waits = NodeWaits {
            interference: vec![waits_for("batch"), waits_for("hog")],
            trace: Some(trace),
            ..NodeWaits::default()
        };
        NodeSnapshot {
            read_at: Some(start + Duration::from_secs(second)),
            containers: vec![
                container("batch", "BestEffort", second * 1_000_000_000),
                container("hog", "Burstable", second * 1_000_000_000),
                container("victim", "Burstable", second * 800_000_000),
            ],
            waits: Arc::new(waits),
            ..NodeSnapshot::default()
        }
    }

    #[test]
    fn a_lasting_delay_is_suggested_and_in_force_for_ten_minutes() {
        let (start, index) = (Instant::now(), PodIndex::default());
        let mut policy = InterferencePolicy::new(start, |_| false);
        let mut said = Vec::new();
        for second in (0..=300).step_by(10) {
            let now = start + Duration::from_secs(second);
            let due = policy.read(now, &node(start, second), &index);
            said.extend(due.into_iter().map(|due| (second, due.pair.victim, due.pair.aggressor)));
            assert_eq!(policy.delays().is_empty(), second < 70, "{second}");
        }
        // Best-effort pods are the controller's matter. The first reading has no pairs.
        assert_eq!(said, [(70, "n/victim".to_owned(), "n/hog".to_owned())]);
        let delays = policy.delays();
        let delay = &delays[&("n".to_owned(), "hog".to_owned())];
        assert!((delay.lost - 0.2).abs() < 1e-9 && delay.victim == "n/victim", "{delay:?}");
        policy.read(start + Duration::from_secs(671), &NodeSnapshot::default(), &index);
        assert!(policy.delays().is_empty());
    }

    #[test]
    fn time_without_a_trace_is_no_delay() {
        let (start, index) = (Instant::now(), PodIndex::default());
        let mut policy = InterferencePolicy::new(start, |_| false);
        let mut read = |second: u64, node: &NodeSnapshot| {
            policy.read(start + Duration::from_secs(second), node, &index).len()
        };
        // Twenty seconds of harm, five minutes without a trace, and harm again.
        (0..=20).step_by(10).for_each(|second| assert_eq!(read(second, &node(start, second)), 0));
        assert_eq!(read(30, &NodeSnapshot::default()), 0);
        let due = (330..=390).step_by(10).map(|second| read(second, &node(start, second)));
        assert_eq!(due.collect::<Vec<_>>(), [0, 0, 0, 0, 0, 0, 1]);
    }
}
