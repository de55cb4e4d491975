//! What the trace counted between two polls, and the upper bound that follows from it. Pure.
//!
//! Wanted is the length of the union, over the threads of a scope and over all CPUs, of the times in
//! which they waited. It is at most the sum over the pods of: the time that they lost to others, and
//! the time that their threads waited for each other. For the first there are two counts, its union
//! per CPU and the thread time; the larger one is taken. Time without a cause counts too, because it
//! may not have been throttling, and so do waits that the program or the agent could not assign to a
//! container. The union is at most the interval, which is the bound where counts are missing: while
//! a container has no name yet, and after one is gone.

use std::sync::Arc;

use foldhash::HashMap;
use snapshot::{ContainerIdentity, ContainerRow, CpusetRow, PodIdentity, PressureScope};

use crate::waits::{LostTo, TracedLoss};

/// Waits between two polls.
#[derive(Debug, Default)]
pub(super) struct Interval<'a> {
    pub(super) elapsed_ns: u64,
    /// Number of CPUs that threads could run on; `None` if it is unknown.
    pub(super) cpus: Option<u32>,
    /// By namespace and name.
    pub(super) pods: HashMap<(&'a str, &'a str), PodWaits>,
    /// Wait time that may be any pod's, nanoseconds.
    pub(super) unknown_ns: u64,
    /// Whether there is a container whose waits have no name yet.
    pub(super) any_unnamed: bool,
}

/// Waits of a pod, nanoseconds.
#[derive(Debug, Default)]
pub(super) struct PodWaits {
    pub(super) scoped: Scoped,
    /// Effective cpuset of each live container.
    pub(super) cpusets: Vec<Option<Arc<CpusetRow>>>,
    /// Lost time by holder, without what may be of earlier intervals.
    pub(super) lost: LostBy,
    /// Lost time, with that.
    lost_ns: u64,
    /// Thread time of waits for others.
    pub(super) others_ns: u64,
    /// Thread time of waits for itself.
    pub(super) self_ns: u64,
    /// Thread time without a cause.
    pub(super) unattributed_ns: u64,
    /// Whether a wait of more than a second has ended.
    pub(super) any_long: bool,
    /// Whether its lost time may be of earlier intervals.
    pub(super) is_late: bool,
}

/// Number of scopes.
pub(super) const SCOPES: usize = PressureScope::CLASSES.len() + 1;

/// The scopes that cover a container, by their number.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Scoped(pub(super) [bool; SCOPES]);

/// Lost time by holder, in the order of the holders, nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct LostBy(Vec<(LostTo, u64)>);

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

impl LostBy {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn parts(&self) -> &[(LostTo, u64)] {
        &self.0
    }

    pub(super) fn total_ns(&self) -> u64 {
        self.0.iter().map(|(_, ns)| ns).sum()
    }

    fn add(&mut self, to: LostTo, ns: u64) {
        match self.0.binary_search_by_key(&to, |&(to, _)| to) {
            Ok(at) => self.0[at].1 += ns,
            Err(at) => self.0.insert(at, (to, ns)),
        }
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|&(to, ns)| self.add(to, ns));
    }
}

impl Scoped {
    pub(super) fn of(identity: &ContainerIdentity) -> Self {
        let mut covered = [false; SCOPES];
        for scope in [PressureScope::Node].into_iter().chain(PressureScope::CLASSES) {
            covered[scope as usize] = scope.covers(&identity.qos_class, identity.best_effort);
        }
        Self(covered)
    }

    pub(super) fn is_in(self, scope: PressureScope) -> bool {
        self.0[scope as usize]
    }
}

impl Upper {
    /// The trivial bound.
    pub(super) fn whole(elapsed_ns: u64) -> Self {
        Self { counted_ns: elapsed_ns, ..Self::default() }
    }
}

impl<'a> Interval<'a> {
    /// The pod of this container.
    pub(super) fn pod(&mut self, row: &'a ContainerRow) -> &mut PodWaits {
        let ContainerIdentity { namespace, pod, .. } = &*row.identity;
        let new = || PodWaits { scoped: Scoped::of(&row.identity), ..PodWaits::default() };
        self.pods.entry((namespace, pod)).or_insert_with(new)
    }

    /// Adds lost time. Of a pod without containers it may be any pod's.
    pub(super) fn add_lost(&mut self, victim: &'a PodIdentity, lost: &TracedLoss) {
        match self.pods.get_mut(&(&*victim.namespace, &*victim.pod)) {
            Some(pod) => pod.add_lost(lost),
            None => self.unknown_ns += lost.by.iter().map(|part| part.ns).sum::<u64>(),
        }
    }

    /// Whether a container of the scope is live.
    pub(super) fn has_live(&self, scope: PressureScope) -> bool {
        self.pods_of(scope).any(|pod| !pod.cpusets.is_empty())
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
        self.pods.values().filter(move |pod| pod.scoped.is_in(scope))
    }
}

impl PodWaits {
    fn add_lost(&mut self, lost: &TracedLoss) {
        for part in &lost.by {
            self.lost_ns += part.ns;
            if part.ns > part.late_ns {
                self.lost.add(part.to, part.ns - part.late_ns);
            }
        }
    }

    /// The cpuset that all its live containers have.
    pub(super) fn cpuset(&self) -> Option<&Arc<CpusetRow>> {
        let first = self.cpusets.first()?.as_ref()?;
        let is_the_same = |other: &Option<Arc<CpusetRow>>| other.as_ref() == Some(first);
        self.cpusets.iter().all(is_the_same).then_some(first)
    }
}
