//! The lower bound, over some seconds. Pure.
//!
//! The program counts each pod's *lost time*: per CPU, the union of the times in which a thread of
//! the pod waited there while something else ran. On one CPU only one thing runs at a time, so the
//! times that were lost to different holders do not overlap there. Of the times lost to one holder,
//! the union is at least that of the pod that lost most. So the union of all pods on a CPU is at
//! least the sum over the holders of the most that a pod lost to them. The union over all CPUs is at
//! least the mean of those on each, hence at least this sum, over all CPUs, divided by their
//! number. Time that is lost to nobody known may overlap with any other, and counts only together
//! with the other losses of its pod. Pods with one cpuset, as last read, divide by its size instead.
//!
//! Lost time may be counted late, so a block of some seconds begins with time of the block before:
//! [`LATE`] on each CPU, which is taken off. The waits in containers under a limit count when they
//! end, at any lateness. A pod with such a container is left out of a block in which a wait of more
//! than 100 ms ended, and so is what waited for its cgroups to be identified.
//!
//! Numbers of threads are in no bound: the agent reads them every ten seconds, and threads that
//! began and ended since then are in none of them. Waits inside a pod are not in the lower bound
//! either: how many threads shared them is not known.

use std::collections::BTreeMap;
use std::sync::Arc;

use snapshot::{CpusetRow, PressureScope};

use super::interval::{Interval, PodWaits, Scoped};
use crate::waits::LostTo;

/// Number of intervals of a block.
const INTERVALS: usize = 10;
/// Time by which lost time is counted late, at most, nanoseconds: the program looks at the waits in
/// progress four times per second.
const LATE: u64 = 250_000_000;

/// Lost time since the block's start.
#[derive(Debug, Default)]
pub(super) struct Block {
    intervals: usize,
    elapsed_ns: u64,
    /// Largest number of CPUs; 0 if it is unknown.
    cpus: u32,
    /// By namespace and name.
    pods: BTreeMap<(Box<str>, Box<str>), PodBlock>,
}

#[derive(Debug)]
struct PodBlock {
    scoped: Scoped,
    /// Effective cpuset of all its containers in all intervals.
    cpuset: Option<Arc<CpusetRow>>,
    lost: BTreeMap<LostTo, u64>,
    is_late: bool,
}

impl Block {
    /// Adds an interval.
    pub(super) fn add(&mut self, interval: &Interval<'_>) {
        self.cpus = match (self.intervals, interval.cpus) {
            (0, now) => now.unwrap_or(0),
            (_, Some(now)) if self.cpus > 0 => self.cpus.max(now),
            _ => 0,
        };
        self.intervals += 1;
        self.elapsed_ns += interval.elapsed_ns;
        for (&(namespace, name), pod) in &interval.pods {
            if pod.lost.is_empty() {
                continue;
            }
            let known = self.pods.entry((namespace.into(), name.into()));
            known.and_modify(|known| known.add(pod)).or_insert_with(|| PodBlock::of(pod));
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.intervals >= INTERVALS
    }

    /// Lower bound of the scope since the block's start.
    pub(super) fn lower_ns(&self, scope: PressureScope) -> u64 {
        let covered = |pod: &&PodBlock| pod.scoped.is_in(scope) && !pod.is_late;
        let losing: Vec<_> = self.pods.values().filter(covered).collect();
        let mut pinned: BTreeMap<&str, (u32, Vec<&PodBlock>)> = BTreeMap::new();
        for pod in &losing {
            if let Some(cpuset) = &pod.cpuset {
                let (count, pods) = pinned.entry(&cpuset.cpus).or_default();
                *count = cpuset.count;
                pods.push(*pod);
            }
        }
        let pinned = pinned.into_values().map(|(count, pods)| least_ns(&pods, count));
        let least = pinned.fold(least_ns(&losing, self.cpus), u64::max);
        least.min(self.elapsed_ns).saturating_sub(LATE)
    }
}

impl PodBlock {
    fn of(pod: &PodWaits) -> Self {
        let (cpuset, lost) = (pod.cpuset().cloned(), pod.lost.clone());
        Self { scoped: pod.scoped, cpuset, lost, is_late: pod.is_late }
    }

    fn add(&mut self, pod: &PodWaits) {
        self.is_late |= pod.is_late;
        self.cpuset.take_if(|cpuset| pod.cpuset() != Some(cpuset));
        for (holder, ns) in &pod.lost {
            *self.lost.entry(*holder).or_default() += ns;
        }
    }
}

/// Shortest union of these pods' waits, if all of them ran on the same `cpus` CPUs.
fn least_ns(pods: &[&PodBlock], cpus: u32) -> u64 {
    let mut by_holder: BTreeMap<LostTo, u64> = BTreeMap::new();
    let mut most_ns = 0;
    for pod in pods {
        most_ns = most_ns.max(pod.lost.values().sum());
        for (&holder, &ns) in pod.lost.iter().filter(|(to, _)| **to != LostTo::Unattributed) {
            let most = by_holder.entry(holder).or_default();
            *most = ns.max(*most);
        }
    }
    let sum_ns = by_holder.values().sum::<u64>().max(most_ns);
    sum_ns.checked_div(u64::from(cpus)).unwrap_or(0)
}
