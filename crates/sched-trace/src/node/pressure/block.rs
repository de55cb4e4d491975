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

use std::sync::Arc;

use foldhash::HashMap;
use snapshot::CpusetRow;

use super::interval::{Interval, LostBy, PodWaits, SCOPES, Scoped};
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
    /// By namespace, then by name.
    pods: HashMap<Box<str>, HashMap<Box<str>, PodBlock>>,
}

#[derive(Debug)]
struct PodBlock {
    scoped: Scoped,
    /// Effective cpuset of all its containers in all intervals.
    cpuset: Option<Arc<CpusetRow>>,
    lost: LostBy,
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
            match self.pods.get_mut(namespace).and_then(|pods| pods.get_mut(name)) {
                Some(known) => known.add(pod),
                None => {
                    let pods = self.pods.entry(namespace.into()).or_default();
                    pods.insert(name.into(), PodBlock::of(pod));
                }
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.intervals >= INTERVALS
    }

    /// Lower bound of each scope since the block's start.
    pub(super) fn lower_ns(&self) -> [u64; SCOPES] {
        let mut all = Least::default();
        let mut pinned: HashMap<&str, (u32, Least)> = HashMap::default();
        for pod in self.pods.values().flat_map(HashMap::values).filter(|pod| !pod.is_late) {
            all.add(pod);
            // With all CPUs, the bound is not above that of all pods.
            let fewer = |cpuset: &&Arc<CpusetRow>| self.cpus == 0 || cpuset.count < self.cpus;
            if let Some(cpuset) = pod.cpuset.as_ref().filter(fewer) {
                let (count, least) = pinned.entry(&cpuset.cpus).or_default();
                *count = cpuset.count;
                least.add(pod);
            }
        }
        let pinned = pinned.into_values().map(|(count, least)| least.ns(count));
        let least = pinned.fold(all.ns(self.cpus), |most, least| {
            std::array::from_fn(|scope| most[scope].max(least[scope]))
        });
        least.map(|ns| ns.min(self.elapsed_ns).saturating_sub(LATE))
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
        self.lost.add_all(&pod.lost);
    }
}

/// Shortest union of the waits of some pods, by scope.
#[derive(Debug, Default)]
struct Least {
    /// Most that a pod lost to each holder.
    by_holder: HashMap<LostTo, [u64; SCOPES]>,
    /// Most that a pod lost.
    most_ns: [u64; SCOPES],
}

impl Least {
    fn add(&mut self, pod: &PodBlock) {
        let raise = |most: &mut [u64; SCOPES], ns: u64| {
            for (most, is_in) in most.iter_mut().zip(pod.scoped.0) {
                *most = (*most).max(if is_in { ns } else { 0 });
            }
        };
        raise(&mut self.most_ns, pod.lost.total_ns());
        for &(holder, ns) in pod.lost.parts() {
            if holder != LostTo::Unattributed {
                raise(self.by_holder.entry(holder).or_default(), ns);
            }
        }
    }

    /// The length, if all of them ran on the same `cpus` CPUs.
    fn ns(&self, cpus: u32) -> [u64; SCOPES] {
        std::array::from_fn(|scope| {
            let sum_ns: u64 = self.by_holder.values().map(|most| most[scope]).sum();
            sum_ns.max(self.most_ns[scope]).checked_div(u64::from(cpus)).unwrap_or(0)
        })
    }
}
