//! Counts of the program between two polls, by cgroup, summed over all CPUs. Pure, except that it
//! clears what it reads.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use snapshot::Histogram;

use crate::layout::{CgroupWaits, Pair};

/// Waits of one cgroup's tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CgroupSample {
    pub(crate) throttled_ns: u64,
    pub(crate) self_ns: u64,
    pub(crate) idle_ns: u64,
    pub(crate) unknown_ns: u64,
    pub(crate) smt_self_ns: u64,
    pub(crate) smt_idle_ns: u64,
    /// Time that the pod lost while the CPU was idle, and without a known cause.
    pub(crate) lost_idle_ns: u64,
    pub(crate) lost_unknown_ns: u64,
    /// Waits after a wakeup, and those of at least ten milliseconds.
    pub(crate) wakeups: u64,
    pub(crate) late_wakeups: u64,
    pub(crate) latency: Histogram,
    pub(crate) stalls: Histogram,
    /// Number of polls that this sample has waited for its cgroup to be identified.
    pub(crate) age: u32,
}

/// A pair of cgroups: the waiting one and the one that held the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PairKey {
    pub(crate) victim: u64,
    pub(crate) holder: u64,
}

/// Waits of one cgroup caused by another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PairSample {
    pub(crate) wait_ns: u64,
    /// Part of it that the victim's pod lost.
    pub(crate) lost_ns: u64,
    pub(crate) smt_ns: u64,
    /// Number of polls that this sample has waited for its cgroups to be identified.
    pub(crate) age: u32,
}

/// All samples that are not yet rolled up by pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    pub(crate) cgroups: HashMap<u64, CgroupSample>,
    pub(crate) pairs: HashMap<PairKey, PairSample>,
}

impl Batch {
    /// Adds the entries of one half of the tables, multiplied by `scale`, and clears them. The
    /// program must not be writing to that half.
    ///
    /// Lost time and wakeups are for verdicts on single seconds, and are not estimated: with a
    /// `scale` they are left out.
    pub(crate) fn drain<'a>(
        &mut self,
        cgroups: impl Iterator<Item = &'a CgroupWaits>,
        pairs: impl Iterator<Item = &'a Pair>,
        scale: u32,
    ) {
        let scale = u64::from(scale);
        for entry in cgroups {
            if let Some(cgroup) = used(&entry.cgroup) {
                self.cgroups.entry(cgroup).or_default().take(entry, scale);
            }
        }
        for entry in pairs {
            if let Some(victim) = used(&entry.victim) {
                let holder = entry.holder.load(Relaxed);
                let sample = self.pairs.entry(PairKey { victim, holder }).or_default();
                sample.wait_ns += take(&entry.wait_ns) * scale;
                sample.lost_ns += take(&entry.lost_ns) * u64::from(scale == 1);
                sample.smt_ns += take(&entry.smt_ns) * scale;
                entry.victim.store(0, Relaxed);
            }
        }
    }
}

impl CgroupSample {
    fn take(&mut self, entry: &CgroupWaits, scale: u64) {
        self.throttled_ns += take(&entry.throttled_ns) * scale;
        self.self_ns += take(&entry.self_ns) * scale;
        self.idle_ns += take(&entry.idle_ns) * scale;
        self.unknown_ns += take(&entry.unknown_ns) * scale;
        self.smt_self_ns += take(&entry.smt_self_ns) * scale;
        self.smt_idle_ns += take(&entry.smt_idle_ns) * scale;
        let exact = u64::from(scale == 1);
        self.lost_idle_ns += take(&entry.lost_idle_ns) * exact;
        self.lost_unknown_ns += take(&entry.lost_unknown_ns) * exact;
        self.wakeups += take_u32(&entry.wakeups) * exact;
        self.late_wakeups += take_u32(&entry.late_wakeups) * exact;
        self.latency.sum_ns += take(&entry.latency_ns) * scale;
        self.stalls.sum_ns += take(&entry.stall_ns) * scale;
        for (histogram, counts) in
            [(&mut self.latency, &entry.latencies), (&mut self.stalls, &entry.stalls)]
        {
            for (count, new) in histogram.counts.iter_mut().zip(counts) {
                *count += take_u32(new) * scale;
            }
        }
        entry.cgroup.store(0, Relaxed);
    }
}

fn used(key: &AtomicU64) -> Option<u64> {
    Some(key.load(Relaxed)).filter(|&key| key != 0)
}

/// Reads a counter and clears it. The program does not write to it meanwhile, so that no locked
/// operation is needed; most counters are 0.
fn take(counter: &AtomicU64) -> u64 {
    let count = counter.load(Relaxed);
    if count != 0 {
        counter.store(0, Relaxed);
    }
    count
}

/// As [`take`].
fn take_u32(counter: &AtomicU32) -> u64 {
    let count = counter.load(Relaxed);
    if count != 0 {
        counter.store(0, Relaxed);
    }
    count.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(id: u64, self_ns: u64, latencies: [u32; 2]) -> CgroupWaits {
        let entry = CgroupWaits::default();
        entry.cgroup.store(id, Relaxed);
        entry.self_ns.store(self_ns, Relaxed);
        entry.latency_ns.store(self_ns, Relaxed);
        entry.latencies[0].store(latencies[0], Relaxed);
        entry.latencies[9].store(latencies[1], Relaxed);
        entry
    }

    fn pair(victim: u64, holder: u64, wait_ns: u64) -> Pair {
        let entry = Pair::default();
        entry.victim.store(victim, Relaxed);
        entry.holder.store(holder, Relaxed);
        entry.wait_ns.store(wait_ns, Relaxed);
        entry.lost_ns.store(wait_ns / 3, Relaxed);
        entry.smt_ns.store(1, Relaxed);
        entry
    }

    #[test]
    fn entries_of_all_cpus_add_up_and_are_free_afterwards() {
        let cgroups = [
            cgroup(5, 10, [1, 0]),
            CgroupWaits::default(),
            cgroup(5, 20, [2, 1]),
            cgroup(6, 40, [0, 0]),
        ];
        let pairs = [pair(5, 6, 3), pair(6, 5, 7), pair(5, 6, 4), Pair::default()];
        let mut batch = Batch::default();
        batch.drain(cgroups.iter(), pairs.iter(), 1);
        assert_eq!(batch.cgroups[&5].self_ns, 30);
        assert_eq!(
            batch.cgroups[&5].latency,
            Histogram { counts: [3, 0, 0, 0, 0, 0, 0, 0, 0, 1], sum_ns: 30 }
        );
        assert_eq!(batch.cgroups.len(), 2);
        let both = PairKey { victim: 5, holder: 6 };
        assert_eq!(batch.pairs[&both], PairSample { wait_ns: 7, lost_ns: 2, smt_ns: 2, age: 0 });
        assert_eq!(batch.pairs.len(), 2);

        let drained = batch.clone().cgroups;
        batch.drain(cgroups.iter(), pairs.iter(), 1);
        assert_eq!(batch.cgroups, drained, "nothing counts twice");
    }

    #[test]
    fn in_bursts_each_entry_stands_for_several() {
        let mut batch = Batch::default();
        let entry = cgroup(5, 10, [1, 2]);
        entry.wakeups.store(3, Relaxed);
        batch.drain([entry].iter(), [pair(5, 6, 3)].iter(), 8);
        assert_eq!(batch.cgroups[&5].wakeups, 0, "not estimated");
        assert_eq!(batch.pairs[&PairKey { victim: 5, holder: 6 }].lost_ns, 0);
        assert_eq!(batch.cgroups[&5].self_ns, 80);
        assert_eq!(batch.cgroups[&5].latency.counts, [8, 0, 0, 0, 0, 0, 0, 0, 0, 16]);
        assert_eq!(batch.pairs[&PairKey { victim: 5, holder: 6 }].wait_ns, 24);
    }
}
