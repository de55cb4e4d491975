//! Time spans that decide what is read. They are durations, so that each means the same at every
//! sample interval.

use std::time::{Duration, Instant};

/// All time spans of the read plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// A cgroup is idle once nothing has run in it and none of its counters has moved for this
    /// long. From then on its counters move only together with its usage: a running period ends
    /// within one second, the kernel's maximum, and a throttled cgroup counts each period.
    pub(crate) idle_after: Duration,
    /// Time by which a runtime has created a container's cgroup in every v1 hierarchy. Missing
    /// files and settings are looked for until one look has come after this time.
    pub(crate) complete_after: Duration,
    /// Every container's slow files and threads are read once in this time.
    pub(crate) round: Duration,
    /// The same if nothing has run since the last read: memory then changes only by reclaim,
    /// threads not at all. Settings are rechecked at this rate, too, although inotify reports their
    /// changes.
    pub(crate) idle_round: Duration,
    /// A container found within this time after its pod was started together with it.
    pub(crate) started_together: Duration,
}

/// The time spans in use.
pub(crate) const TIMING: Timing = Timing {
    idle_after: Duration::from_secs(2),
    complete_after: Duration::from_secs(5),
    round: Duration::from_secs(10),
    idle_round: Duration::from_secs(60),
    started_together: Duration::from_secs(1),
};

/// Position of a cgroup within a round, in units of 1/65,536.
pub(crate) type Phase = u16;

/// Spreads the cgroups evenly over a round: multiples of the golden ratio.
pub(crate) fn phase(cgroup: usize) -> Phase {
    (cgroup as u16).wrapping_mul(40_503)
}

/// Part of a round that has passed since the previous tick. Cgroups whose phase lies in it are due.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Turn {
    /// Start, in units of 1/65,536 round since the first round began.
    from: u64,
    to: u64,
}

impl Turn {
    /// Advances to `now`; the first round began at `started`.
    pub(crate) fn advance(&mut self, started: Instant, now: Instant, round: Duration) {
        let parts =
            now.saturating_duration_since(started).as_micros() * 65_536 / round.as_micros().max(1);
        self.from = self.to;
        self.to = u64::try_from(parts).unwrap_or(u64::MAX - 65_536).max(self.from);
    }

    pub(crate) fn contains(self, phase: Phase) -> bool {
        let rounds = |parts: u64| (parts + 65_536 - u64::from(phase)) >> 16;
        rounds(self.from) != rounds(self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cgroup_is_due_once_a_round_at_any_interval() {
        let started = Instant::now();
        for millis in [100, 333, 1000, 1500, 7000] {
            let mut turn = Turn::default();
            let mut due = [0_u32; 500];
            let rounds = 21;
            for tick in 1..=(rounds * 10_000 / millis) {
                turn.advance(started, started + Duration::from_millis(millis * tick), TIMING.round);
                let ids = (0..due.len()).filter(|&id| turn.contains(phase(id)));
                let ids: Vec<usize> = ids.collect();
                assert!(
                    ids.len() as u64 <= due.len() as u64 * millis / 10_000 + 5,
                    "a burst of {}",
                    ids.len()
                );
                ids.into_iter().for_each(|id| due[id] += 1);
            }
            assert!(
                due.iter().all(|&count| (20..=22).contains(&count)),
                "every {millis} ms: {due:?}"
            );
        }
    }

    #[test]
    fn every_cgroup_is_due_in_each_tick_that_is_longer_than_a_round() {
        let started = Instant::now();
        let mut turn = Turn::default();
        for tick in 1..10 {
            turn.advance(started, started + Duration::from_secs(60 * tick), TIMING.round);
            assert!((0..500).all(|id| turn.contains(phase(id))));
        }
    }
}
