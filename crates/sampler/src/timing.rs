//! Time spans by which the sampler decides what to read. Durations, so that each means the same at every sample interval.

use std::time::{Duration, Instant};

/// Every such time span.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// A cgroup is idle once nothing has run in it and no counter of it has moved for this long. From then on its
    /// counters can only move together with its usage: a period that still runs ends within a second, the longest that
    /// the kernel allows, and a throttled cgroup counts each period.
    pub(crate) idle_after: Duration,
    /// By then a runtime has made a container's cgroup in every v1 hierarchy: missing files and settings are looked for
    /// until one look has come after this time.
    pub(crate) complete_after: Duration,
    /// Every container's slow files and threads are read once in this time.
    pub(crate) round: Duration,
    /// The same where nothing has run since the last look: memory changes only by reclaim, threads not at all. Settings
    /// are rechecked as often, though inotify reports their changes.
    pub(crate) idle_round: Duration,
    /// A container found so soon after its pod was started together with it.
    pub(crate) started_together: Duration,
}

/// The time spans in force.
pub(crate) const TIMING: Timing = Timing {
    idle_after: Duration::from_secs(2),
    complete_after: Duration::from_secs(5),
    round: Duration::from_secs(10),
    idle_round: Duration::from_secs(60),
    started_together: Duration::from_secs(1),
};

/// Place of a cgroup within a round, as a part of 65,536.
pub(crate) type Phase = u16;

/// Spreads the cgroups evenly over a round: multiples of the golden ratio.
pub(crate) fn phase(cgroup: usize) -> Phase {
    (cgroup as u16).wrapping_mul(40_503)
}

/// The part of a round that has passed since the tick before: those cgroups are due whose phase lies in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Turn {
    /// In parts of a round since the first round began.
    from: u64,
    to: u64,
}

impl Turn {
    /// Goes on to `now`; rounds began at `started`.
    pub(crate) fn advance(&mut self, started: Instant, now: Instant, round: Duration) {
        let parts = now.saturating_duration_since(started).as_micros() * 65_536 / round.as_micros().max(1);
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
                assert!(ids.len() as u64 <= due.len() as u64 * millis / 10_000 + 5, "a burst of {}", ids.len());
                ids.into_iter().for_each(|id| due[id] += 1);
            }
            assert!(due.iter().all(|&count| (20..=22).contains(&count)), "every {millis} ms: {due:?}");
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
