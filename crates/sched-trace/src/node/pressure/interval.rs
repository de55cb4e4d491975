//! What the trace counted between two polls, and the bounds that follow from it. Pure.
//!
//! Wanted is the length of the union, over the threads of a scope and over all CPUs, of the times in
//! which they waited. Take an interval of length E.
//!
//! **Lower.** The program counts each pod's *lost time*: per CPU, the union of the times in which a
//! thread of the pod waited there while something else ran. On one CPU only one thing runs at a
//! time, so the times that were lost to different holders do not overlap there. Of the times lost to
//! one holder, the union is at least that of the pod that lost most. So the union on a CPU is at
//! least the sum over the holders of the most that a pod lost to them. The union over all CPUs is at
//! least the mean of those on each, hence at least this sum, over all CPUs, divided by their
//! number. Time that is lost to nobody known may overlap with any other, and counts only together
//! with the other losses of its pod. Pods with one cpuset divide by its size instead.
//!
//! Numbers of threads are in no bound: the agent reads them every ten seconds, and threads that
//! began and ended since then are in none of them. Waits inside a pod are in no lower bound either:
//! how many threads shared them is not known. A series that is new counts from its second reading,
//! because its first value may be of earlier times.
//!
//! **Upper.** The union is at most the sum over the pods of: the time that they lost to others, and
//! the time that their threads waited for each other. For the first there are two counts, its union
//! per CPU, which contains waits that have not ended, and the thread time; the larger one is taken.
//! Time without a cause counts too, because it may not have been throttling, and so do waits that
//! the program or the agent could not assign to a container. The union is at most E, and E is the
//! bound where counts are missing: while a container has no name yet, and after one is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use snapshot::{ContainerRow, CpusetRow, PressureScope};

/// Namespace and name of a pod.
pub(super) type PodKey = (Box<str>, Box<str>);

/// What ran while a pod lost time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    Pod(PodKey),
    System,
    Unattributed,
}

/// Waits between two polls.
#[derive(Debug, Default)]
pub(super) struct Interval {
    pub(super) elapsed_ns: u64,
    /// Number of CPUs that threads could run on; `None` if it is unknown.
    pub(super) cpus: Option<u32>,
    pub(super) pods: BTreeMap<PodKey, PodWaits>,
    /// Wait time that may be any pod's, nanoseconds.
    pub(super) unknown_ns: u64,
    /// Whether there is a container whose waits have no name yet.
    pub(super) any_unnamed: bool,
}

/// Waits of a pod, nanoseconds.
#[derive(Debug, Default)]
pub(super) struct PodWaits {
    qos_class: Box<str>,
    best_effort: bool,
    /// Effective cpuset of each live container.
    pub(super) cpusets: Vec<Option<Arc<CpusetRow>>>,
    /// Lost time of series that had a value before.
    lost: BTreeMap<Holder, u64>,
    /// Lost time, new series included.
    lost_ns: u64,
    /// Thread time of waits for others.
    pub(super) others_ns: u64,
    /// Thread time of waits for itself.
    pub(super) self_ns: u64,
    /// Thread time without a cause.
    pub(super) unattributed_ns: u64,
    /// Whether a wait of more than a second has ended.
    pub(super) any_long: bool,
}

/// Upper bound of an interval.
#[derive(Debug, Default)]
pub(super) struct Upper {
    /// Counted time, which may exceed the interval.
    pub(super) counted_ns: u64,
    /// The part that may have been waited up to a minute ago.
    pub(super) late_ns: u64,
    /// Whether any part may have been waited up to a minute ago.
    pub(super) any_long: bool,
}

impl Upper {
    /// The trivial bound.
    pub(super) fn whole(elapsed_ns: u64) -> Self {
        Self { counted_ns: elapsed_ns, ..Self::default() }
    }
}

impl Interval {
    /// The pod of this container.
    pub(super) fn pod(&mut self, row: &ContainerRow) -> &mut PodWaits {
        let key = (row.identity.namespace.as_str().into(), row.identity.pod.as_str().into());
        self.pods.entry(key).or_insert_with(|| PodWaits {
            qos_class: row.identity.qos_class.as_str().into(),
            best_effort: row.identity.best_effort,
            ..PodWaits::default()
        })
    }

    /// Whether a container of the scope is live.
    pub(super) fn has_live(&self, scope: PressureScope) -> bool {
        self.pods_of(scope).any(|pod| !pod.cpusets.is_empty())
    }

    pub(super) fn lower_ns(&self, scope: PressureScope) -> u64 {
        let losing: Vec<_> = self.pods_of(scope).filter(|pod| !pod.lost.is_empty()).collect();
        let mut pinned: BTreeMap<&str, (u32, Vec<&PodWaits>)> = BTreeMap::new();
        for pod in &losing {
            if let Some(cpuset) = pod.cpuset() {
                let (count, pods) = pinned.entry(&cpuset.cpus).or_default();
                *count = cpuset.count;
                pods.push(*pod);
            }
        }
        let pinned = pinned.into_values().map(|(count, pods)| least_ns(&pods, count));
        let anywhere = self.cpus.map_or(0, |cpus| least_ns(&losing, cpus));
        pinned.fold(anywhere, u64::max).min(self.elapsed_ns)
    }

    pub(super) fn upper(&self, scope: PressureScope) -> Upper {
        let mut upper =
            Upper { counted_ns: self.unknown_ns, late_ns: self.unknown_ns, any_long: false };
        for pod in self.pods_of(scope) {
            let waited_ns = pod.lost_ns.max(pod.others_ns) + pod.self_ns;
            upper.counted_ns += waited_ns + pod.unattributed_ns;
            upper.late_ns += pod.unattributed_ns;
            upper.any_long |= pod.any_long;
        }
        upper
    }

    fn pods_of(&self, scope: PressureScope) -> impl Iterator<Item = &PodWaits> {
        self.pods.values().filter(move |pod| scope.covers(&pod.qos_class, pod.best_effort))
    }
}

impl PodWaits {
    /// Adds lost time. `is_current`: all of it was lost since the last reading.
    pub(super) fn add_lost(&mut self, holder: &Holder, ns: u64, is_current: bool) {
        self.lost_ns += ns;
        if is_current && ns > 0 {
            *self.lost.entry(holder.clone()).or_default() += ns;
        }
    }

    /// The cpuset that all its live containers have.
    fn cpuset(&self) -> Option<&CpusetRow> {
        let first = self.cpusets.first()?.as_deref()?;
        let is_the_same = |other: &Option<Arc<CpusetRow>>| other.as_deref() == Some(first);
        self.cpusets.iter().all(is_the_same).then_some(first)
    }
}

/// Shortest union of these pods' waits, if all of them ran on the same `cpus` CPUs.
fn least_ns(pods: &[&PodWaits], cpus: u32) -> u64 {
    let mut by_holder: BTreeMap<&Holder, u64> = BTreeMap::new();
    let mut most_ns = 0;
    for pod in pods {
        most_ns = most_ns.max(pod.lost.values().sum());
        for (holder, &ns) in pod.lost.iter().filter(|(holder, _)| **holder != Holder::Unattributed)
        {
            let most = by_holder.entry(holder).or_default();
            *most = ns.max(*most);
        }
    }
    by_holder.values().sum::<u64>().max(most_ns) / u64::from(cpus.max(1))
}
