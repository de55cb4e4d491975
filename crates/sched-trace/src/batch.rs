//! Counts of the program between two polls, by cgroup and CPU, and those whose cgroups are not
//! identified yet. Pure, except that it clears what it reads.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use foldhash::HashMap;
use snapshot::Histogram;

use crate::layout::{BUCKETS, CgroupWaits, Pair};

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

/// Samples whose cgroups are not identified yet, summed over all CPUs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    pub(crate) cgroups: HashMap<u64, CgroupSample>,
    pub(crate) pairs: HashMap<PairKey, PairSample>,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.cgroups.len() + self.pairs.len()
    }

    pub(crate) fn add_cgroup(&mut self, cgroup: u64, sample: &CgroupSample) {
        self.cgroups.entry(cgroup).or_default().add(sample);
    }

    pub(crate) fn add_pair(&mut self, key: PairKey, sample: &PairSample) {
        self.pairs.entry(key).or_default().add(sample);
    }
}

/// Takes the counts out of the entries of one half of the tables, which the program must not be
/// writing to: of each CPU, one for each cgroup that waited. The counts are multiplied by `scale`.
///
/// Lost time and wakeups are for verdicts on single seconds, and are not estimated: with a `scale`
/// they are left out.
pub(crate) fn drain_cgroups<'a>(
    entries: impl Iterator<Item = &'a CgroupWaits>,
    scale: u32,
) -> impl Iterator<Item = (u64, CgroupSample)> {
    entries.filter_map(move |entry| {
        let cgroup = used(&entry.cgroup)?;
        Some((cgroup, CgroupSample::take(entry, u64::from(scale))))
    })
}

/// As [`drain_cgroups`], for each pair of cgroups.
pub(crate) fn drain_pairs<'a>(
    entries: impl Iterator<Item = &'a Pair>,
    scale: u32,
) -> impl Iterator<Item = (PairKey, PairSample)> {
    entries.filter_map(move |entry| {
        let victim = used(&entry.victim)?;
        let key = PairKey { victim, holder: entry.holder.load(Relaxed) };
        Some((key, PairSample::take(entry, u64::from(scale))))
    })
}

impl PairSample {
    fn take(entry: &Pair, scale: u64) -> Self {
        let sample = Self {
            wait_ns: take(&entry.wait_ns) * scale,
            lost_ns: take(&entry.lost_ns) * u64::from(scale == 1),
            smt_ns: take(&entry.smt_ns) * scale,
            age: 0,
        };
        entry.victim.store(0, Relaxed);
        sample
    }

    fn add(&mut self, other: &Self) {
        self.wait_ns += other.wait_ns;
        self.lost_ns += other.lost_ns;
        self.smt_ns += other.smt_ns;
        self.age = self.age.max(other.age);
    }
}

impl CgroupSample {
    fn take(entry: &CgroupWaits, scale: u64) -> Self {
        let exact = u64::from(scale == 1);
        let counts = |counts: &[AtomicU32; BUCKETS]| {
            std::array::from_fn(|bucket| take_u32(&counts[bucket]) * scale)
        };
        let sample = Self {
            throttled_ns: take(&entry.throttled_ns) * scale,
            self_ns: take(&entry.self_ns) * scale,
            idle_ns: take(&entry.idle_ns) * scale,
            unknown_ns: take(&entry.unknown_ns) * scale,
            smt_self_ns: take(&entry.smt_self_ns) * scale,
            smt_idle_ns: take(&entry.smt_idle_ns) * scale,
            lost_idle_ns: take(&entry.lost_idle_ns) * exact,
            lost_unknown_ns: take(&entry.lost_unknown_ns) * exact,
            wakeups: take_u32(&entry.wakeups) * exact,
            late_wakeups: take_u32(&entry.late_wakeups) * exact,
            latency: Histogram {
                counts: counts(&entry.latencies),
                sum_ns: take(&entry.latency_ns) * scale,
            },
            stalls: Histogram {
                counts: counts(&entry.stalls),
                sum_ns: take(&entry.stall_ns) * scale,
            },
            age: 0,
        };
        entry.cgroup.store(0, Relaxed);
        sample
    }

    fn add(&mut self, other: &Self) {
        self.throttled_ns += other.throttled_ns;
        self.self_ns += other.self_ns;
        self.idle_ns += other.idle_ns;
        self.unknown_ns += other.unknown_ns;
        self.smt_self_ns += other.smt_self_ns;
        self.smt_idle_ns += other.smt_idle_ns;
        self.lost_idle_ns += other.lost_idle_ns;
        self.lost_unknown_ns += other.lost_unknown_ns;
        self.wakeups += other.wakeups;
        self.late_wakeups += other.late_wakeups;
        self.latency.add(&other.latency);
        self.stalls.add(&other.stalls);
        self.age = self.age.max(other.age);
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
    fn each_entry_is_read_once_and_free_afterwards() {
        let cgroups = [
            cgroup(5, 10, [1, 0]),
            CgroupWaits::default(),
            cgroup(5, 20, [2, 1]),
            cgroup(6, 40, [0, 0]),
        ];
        let found: Vec<_> = drain_cgroups(cgroups.iter(), 1).collect();
        assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [5, 5, 6]);
        let mut pending = Pending::default();
        found.iter().for_each(|(id, sample)| pending.add_cgroup(*id, sample));
        assert_eq!(pending.cgroups[&5].self_ns, 30);
        assert_eq!(
            pending.cgroups[&5].latency,
            Histogram { counts: [3, 0, 0, 0, 0, 0, 0, 0, 0, 1], sum_ns: 30 }
        );
        assert_eq!(drain_cgroups(cgroups.iter(), 1).count(), 0, "nothing counts twice");

        let pairs = [pair(5, 6, 3), pair(6, 5, 7), pair(5, 6, 4), Pair::default()];
        drain_pairs(pairs.iter(), 1).for_each(|(key, sample)| pending.add_pair(key, &sample));
        let both = PairKey { victim: 5, holder: 6 };
        assert_eq!(pending.pairs[&both], PairSample { wait_ns: 7, lost_ns: 2, smt_ns: 2, age: 0 });
        assert_eq!(pending.len(), 4);
        assert_eq!(drain_pairs(pairs.iter(), 1).count(), 0, "nothing counts twice");
    }

    #[test]
    fn in_bursts_each_entry_stands_for_several() {
        let entry = cgroup(5, 10, [1, 2]);
        entry.wakeups.store(3, Relaxed);
        let (_, sample) = drain_cgroups([entry].iter(), 8).next().unwrap();
        assert_eq!(sample.wakeups, 0, "not estimated");
        assert_eq!(sample.self_ns, 80);
        assert_eq!(sample.latency.counts, [8, 0, 0, 0, 0, 0, 0, 0, 0, 16]);
        let (_, sample) = drain_pairs([pair(5, 6, 3)].iter(), 8).next().unwrap();
        assert_eq!((sample.wait_ns, sample.lost_ns), (24, 0));
    }
}
