//! Waits and their causes: found by the code that polls the trace, published with the next
//! snapshot. The sampler only joins them to its series, so that both have the same lifetime.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::container::{ContainerIdentity, ContainerRow};
use crate::node::{FeatureState, PodIdentity};

/// Upper bounds of the run-queue latency histogram, nanoseconds; one more bucket is unbounded.
pub const LATENCY_BOUNDS_NS: [u64; 9] = [
    10_000,
    100_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    100_000_000,
    1_000_000_000,
];

/// Upper bounds of the throttle-stall histogram, nanoseconds; one more bucket is unbounded.
pub const STALL_BOUNDS_NS: [u64; 9] = [
    1_000_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    75_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
];

/// A histogram: counts by bucket, and the sum of the values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Counts by bucket, not cumulative; the last bucket has no upper bound.
    pub counts: [u64; 10],
    /// Sum of the values, nanoseconds.
    pub sum_ns: u64,
}

impl Histogram {
    /// Adds the counts and the sum of `other`.
    pub fn add(&mut self, other: &Self) {
        for (count, other) in self.counts.iter_mut().zip(other.counts) {
            *count += other;
        }
        self.sum_ns += other.sum_ns;
    }
}

/// Time on a CPU by what the other thread of the core ran at the same time, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SmtShares {
    /// The same pod.
    pub self_ns: u64,
    /// Another pod, or the system.
    pub other_ns: u64,
    /// Nothing: the other thread was idle.
    pub idle_ns: u64,
}

/// Wait counters of a container by cause, since its threads were first seen. Unit:
/// thread-nanoseconds; two threads waiting 1 s add 2 s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContainerWaits {
    /// The quota of the container or of a cgroup above it was used up.
    pub throttled_ns: u64,
    /// Another pod was running.
    pub neighbor_ns: u64,
    /// The same pod was running.
    pub self_ns: u64,
    /// A host service or the kernel was running, or the CPU was still waking up.
    pub system_ns: u64,
    /// Reported by the kernel, but without a known cause.
    pub unattributed_ns: u64,
    /// Waits minus throttled time, by length; bounds: [`LATENCY_BOUNDS_NS`].
    pub latency: Histogram,
    /// Throttles of its run queues, by length; bounds: [`STALL_BOUNDS_NS`].
    pub stalls: Histogram,
    /// Time on a CPU, by what ran on the core's other thread; `None` if no core has two known
    /// threads.
    pub smt: Option<SmtShares>,
}

/// Time that one pod waited because of one aggressor.
#[derive(Debug, Clone, Default)]
pub struct InterferenceRow {
    /// The pod that waited.
    pub victim: Arc<PodIdentity>,
    /// Namespace of the pod that was running; `system` for processes outside the pods, `other` for
    /// all other pods.
    pub aggressor_namespace: Arc<str>,
    /// Name of that pod; empty for `system` and `other`.
    pub aggressor_pod: Arc<str>,
    /// Counter, thread-nanoseconds.
    pub wait_ns: u64,
}

/// Holder of the CPU while a pod lost time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Culprit {
    /// Another pod.
    Pod(Arc<PodIdentity>),
    /// A host service or the kernel.
    System,
    /// Not known.
    Unattributed,
}

/// Time that a pod lost to others: per CPU, the time in which at least one of its threads was queued
/// there and not throttled, and none of its own threads ran there. A union, not a sum over threads:
/// six threads that wait beside one rival on one CPU lose one second per second.
#[derive(Debug, Clone)]
pub struct LostTime {
    /// The pod that lost the time.
    pub victim: Arc<PodIdentity>,
    /// What ran meanwhile, each with the time, core-nanoseconds. A wait that has not ended counts up
    /// to the poll, except in a container that was ever throttled.
    pub by: Vec<(Culprit, u64)>,
    /// Number of wakeups of its threads, also of those after which the thread ran at once.
    pub wakeups: u64,
    /// Number of those after which the thread waited for at least ten milliseconds, throttled time
    /// not counted.
    pub late_wakeups: u64,
}

/// Time that pods lost between two polls of the trace.
#[derive(Debug, Clone)]
pub struct PollLosses {
    /// Time of the second poll.
    pub polled_at: Instant,
    /// By victim: the pods that lost time or woke up.
    pub victims: Vec<LostTime>,
}

/// Operating mode of the trace's eBPF program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceMode {
    /// Attached all the time.
    Continuous,
    /// Attached for one of `one_of` seconds, to stay within the budget: all counts are scaled up
    /// and thus estimates.
    Bursts {
        /// Length of the cycle, seconds.
        one_of: u32,
    },
    /// Detached: even bursts would exceed the budget, or the program could not be attached again.
    Detached,
}

/// Losses since the start, all counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Waits that were dropped because a table was full.
    pub lost_waits: u64,
    /// Time of the dropped waits, nanoseconds; part of the unattributed time if run delays are
    /// reported.
    pub lost_ns: u64,
    /// Number of evicted throttle histories; each makes one wait unattributed.
    pub evicted_histories: u64,
    /// Time of cgroups that were never identified, nanoseconds.
    pub unknown_cgroup_ns: u64,
}

/// The trace's own metrics.
#[derive(Debug, Clone, Copy)]
pub struct TraceRow {
    /// Mode of the trace: continuous, in bursts, or off.
    pub mode: TraceMode,
    /// CPU time of the trace, nanoseconds.
    pub run_ns: u64,
    /// Number of context switches traced.
    pub switches: u64,
    /// Waits and histories that the trace lost.
    pub losses: Losses,
}

/// Pods that a pressure covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureScope {
    /// The latency-sensitive pods of the node: all that are not best effort.
    Node,
    /// QoS class `Guaranteed`.
    Guaranteed,
    /// QoS class `Burstable`.
    Burstable,
    /// QoS class `BestEffort`.
    BestEffort,
}

impl PressureScope {
    /// The scopes of one QoS class.
    pub const CLASSES: [Self; 3] = [Self::Guaranteed, Self::Burstable, Self::BestEffort];

    /// Name of the QoS class as in the pod's status; `None` for the node.
    #[must_use]
    pub const fn qos_class(self) -> Option<&'static str> {
        match self {
            Self::Node => None,
            Self::Guaranteed => Some("Guaranteed"),
            Self::Burstable => Some("Burstable"),
            Self::BestEffort => Some("BestEffort"),
        }
    }

    /// Whether a pod of this QoS class is covered. `best_effort`: also a Burstable pod may be best
    /// effort, by its priority.
    #[must_use]
    pub fn covers(self, qos_class: &str, best_effort: bool) -> bool {
        match self {
            Self::Node => !best_effort,
            class => class.qos_class() == Some(qos_class),
        }
    }
}

/// Contention-only pressure: wall-clock time in which at least one thread of the scope waited for a
/// CPU for a reason other than its own quota. Known as a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PressureRow {
    /// The pods.
    pub scope: PressureScope,
    /// Counter, nanoseconds: at least this time.
    pub lower_ns: u64,
    /// Counter, nanoseconds: at most this time.
    pub upper_ns: u64,
    /// Share of the last interval between two polls, 0 to 1: at least.
    pub lower: f64,
    /// Share of the last interval between two polls, 0 to 1: at most.
    pub upper: f64,
}

/// All findings of the trace up to its last poll.
#[derive(Debug, Clone, Default)]
pub struct NodeWaits {
    /// Waits of each container, `None` before its first; in the order of the rows of the snapshot
    /// that the trace knew.
    pub containers: Vec<(Arc<ContainerIdentity>, Option<Arc<ContainerWaits>>)>,
    /// Waits by victim and aggressor.
    pub interference: Vec<InterferenceRow>,
    /// Lost time of the last polls, the oldest first, so that a reader may miss some. Empty unless
    /// waits are traced all the time.
    pub lost: Vec<Arc<PollLosses>>,
    /// Pressure of the node and of each QoS class that has containers, by scope. Empty unless waits
    /// are traced all the time, because estimates are not bounds.
    pub pressure: Vec<PressureRow>,
    /// `None` if nothing is traced.
    pub trace: Option<TraceRow>,
    /// Whether waits are traced, and the reason if not; `None` before that is known.
    pub feature: Option<FeatureState>,
}

impl NodeWaits {
    /// Time of the last poll that counted lost time.
    #[must_use]
    pub fn lost_until(&self) -> Option<Instant> {
        self.lost.last().map(|poll| poll.polled_at)
    }

    /// Time lost after the poll at `since`, in one row per victim and poll. Nothing without an
    /// earlier poll, which is the baseline.
    pub fn lost_since(&self, since: Option<Instant>) -> impl Iterator<Item = &LostTime> {
        let is_new =
            move |poll: &&Arc<PollLosses>| since.is_some_and(|since| poll.polled_at > since);
        self.lost.iter().filter(is_new).flat_map(|poll| &poll.victims)
    }

    /// Stores each container's waits in its row.
    pub fn join(&self, rows: &mut [ContainerRow]) {
        let mut containers = ByRow::new(&self.containers);
        for (at, row) in rows.iter_mut().enumerate() {
            let waits = containers.get(at, &row.identity).and_then(Option::as_ref);
            share(&mut row.waits, waits);
        }
    }
}

/// Makes `to` a share of `from`, unless it is one. The count of a value that nobody has touched for a
/// second is not in the CPU's cache.
pub fn share<T: ?Sized>(to: &mut Option<Arc<T>>, from: Option<&Arc<T>>) {
    let is_shared = match (&*to, from) {
        (Some(to), Some(from)) => Arc::ptr_eq(to, from),
        (to, from) => to.is_none() && from.is_none(),
    };
    if !is_shared {
        *to = from.cloned();
    }
}

/// Values of containers in the order of the rows of an earlier snapshot. Rows mostly stay where they
/// were, and then need no search.
#[derive(Debug)]
pub struct ByRow<'a, T> {
    values: &'a [(Arc<ContainerIdentity>, T)],
    by_labels: Option<HashMap<&'a str, &'a T>>,
}

impl<'a, T> ByRow<'a, T> {
    /// `values` with the identity of each container.
    #[must_use]
    pub fn new(values: &'a [(Arc<ContainerIdentity>, T)]) -> Self {
        Self { values, by_labels: None }
    }

    /// The value of the container whose row is now at `at`.
    pub fn get(&mut self, at: usize, identity: &Arc<ContainerIdentity>) -> Option<&'a T> {
        match self.values.get(at) {
            Some((known, value)) if Arc::ptr_eq(known, identity) => Some(value),
            _ => {
                let values = self.values.iter();
                let by_labels = || values.map(|(known, value)| (&*known.labels, value)).collect();
                self.by_labels.get_or_insert_with(by_labels).get(&*identity.labels).copied()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_has_moved_is_found_by_its_labels() {
        let identity = |labels: &str| {
            Arc::new(ContainerIdentity { labels: labels.into(), ..ContainerIdentity::default() })
        };
        let known = ["a", "b", "c"].map(|labels| (identity(labels), labels.to_owned()));
        let mut values = ByRow::new(&known);
        let mut get = |at, identity: &_| values.get(at, identity).cloned();
        assert_eq!(get(0, &known[0].0).as_deref(), Some("a"));
        assert_eq!(get(0, &identity("new")), None);
        assert_eq!(get(1, &known[0].0).as_deref(), Some("a"));
        assert_eq!(get(2, &identity("b")).as_deref(), Some("b"));
        assert_eq!(get(3, &known[2].0).as_deref(), Some("c"));
    }
}
