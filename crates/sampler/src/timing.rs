//! Time spans that decide what is read, and when. They are durations, so that each means the same
//! at every sample interval.

use std::time::{Duration, Instant};

/// All time spans of the read plan, of the reads and lookups between ticks, of the naming, and of
/// the sample interval. The default is what the agent uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// A cgroup is idle once nothing has run in it and none of its counters has moved for this
    /// long: 2 s. From then on its counters move only together with its usage: a running period
    /// ends within one second, the kernel's maximum, and a throttled cgroup counts each period.
    pub(crate) idle_after: Duration,
    /// A cgroup's descriptors are closed once it has been idle for this long: 60 s. To open a file
    /// costs 6 µs more than to read an open one, which costs 5 KiB of kernel memory.
    pub(crate) close_after: Duration,
    /// Time by which a runtime has created a container's cgroup in every v1 hierarchy: 5 s. Missing
    /// files and settings are rechecked until one recheck has come after this time.
    pub(crate) complete_after: Duration,
    /// Every container's pressure and threads are read once in this time: 10 s.
    pub(crate) recheck: Duration,
    /// Memory and effective CPUs are read once in this time: 30 s. To open a file for a read costs eight
    /// times as much as to read an open one.
    pub(crate) memory_recheck: Duration,
    /// Of the slow files, the memory limit and the memory of each NUMA node are read once in this
    /// time: 60 s.
    pub(crate) rare_recheck: Duration,
    /// The slow files are read once in this time if nothing has run since the last read: 120 s. Memory
    /// then changes only by reclaim. Settings are rechecked at this rate, too, although inotify
    /// reports their changes.
    pub(crate) idle_recheck: Duration,
    /// The threads are read at most once in this time if nothing has run since the last read: 60 s. They
    /// may only have waited. After [`Timing::close_after`] they are read at the idle recheck.
    pub(crate) idle_scan: Duration,
    /// A container found within this time after its pod was started together with it: 1 s.
    pub(crate) started_together: Duration,
    /// Delay of the second read of a cgroup that may be about to disappear: 2 ms. A process is
    /// charged for its last microseconds after its end was reported; a runtime takes longer to
    /// remove the cgroup.
    pub(crate) last_read_delay: Duration,
    /// Polling interval between ticks while a new cgroup has no name or no usage yet: 100 ms.
    pub(crate) pending_poll: Duration,
    /// Polling interval between ticks while a cgroup is shown without a name: 1 s.
    pub(crate) unnamed_poll: Duration,
    /// Delay before the second lookup of an unnamed cgroup: 100 ms; doubles with each lookup.
    pub(crate) first_lookup_delay: Duration,
    /// Maximum delay between two lookups of an unnamed cgroup: 30 s. A new list makes all of them
    /// due.
    pub(crate) max_lookup_delay: Duration,
    /// Age up to which a cgroup of an unknown pod is hidden while a source of names answers: 10 s.
    /// Longer than a kubelet needs to list a new pod, so that a series does not start under
    /// another name.
    pub(crate) hide_unknown_pod: Duration,
    /// The same for an unnamed cgroup of a known pod: 3 s. The kubelet lists a new container after
    /// its next relist, about one second.
    pub(crate) hide_unlisted: Duration,
    /// Age of a cgroup at which a new list request must name it: 5 s.
    pub(crate) listed_after: Duration,
    /// Time between two comparisons of the list of pods with the cgroups: 2 s.
    pub(crate) missing_check: Duration,
    /// Time without a cgroup after which a running container is reported: 30 s.
    pub(crate) missing_after: Duration,
    /// Age of a list up to which it counts for that: 60 s.
    pub(crate) recent_list: Duration,
    /// Time over which the cost of sampling is measured before a decision: 10 s, long enough that a
    /// single walk does not matter.
    pub(crate) cost_window: Duration,
    /// Maximum sample interval, unless a longer one is configured: 60 s.
    pub(crate) max_interval: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            idle_after: Duration::from_secs(2),
            close_after: Duration::from_secs(60),
            complete_after: Duration::from_secs(5),
            recheck: Duration::from_secs(10),
            memory_recheck: Duration::from_secs(30),
            rare_recheck: Duration::from_secs(60),
            idle_recheck: Duration::from_secs(120),
            idle_scan: Duration::from_secs(60),
            started_together: Duration::from_secs(1),
            last_read_delay: Duration::from_millis(2),
            pending_poll: Duration::from_millis(100),
            unnamed_poll: Duration::from_secs(1),
            first_lookup_delay: Duration::from_millis(100),
            max_lookup_delay: Duration::from_secs(30),
            hide_unknown_pod: Duration::from_secs(10),
            hide_unlisted: Duration::from_secs(3),
            listed_after: Duration::from_secs(5),
            missing_check: Duration::from_secs(2),
            missing_after: Duration::from_secs(30),
            recent_list: Duration::from_secs(60),
            cost_window: Duration::from_secs(10),
            max_interval: Duration::from_secs(60),
        }
    }
}

impl Timing {
    /// With memory read as often as pressure.
    pub(crate) fn with_memory_often(self) -> Self {
        Self { memory_recheck: self.recheck, ..self }
    }
}

/// Position of a cgroup within a recheck interval, in units of 1/65,536.
pub(crate) type Phase = u16;

/// Spreads the cgroups evenly over a recheck interval: multiples of the golden ratio.
pub(crate) fn phase(cgroup: usize) -> Phase {
    (cgroup as u16).wrapping_mul(40_503)
}

/// Part of a recheck interval that has passed since the previous tick. Cgroups whose phase lies in
/// it are due.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecheckSlice {
    /// Start, in units of 1/65,536 recheck interval since the first one began.
    from: u64,
    to: u64,
}

impl RecheckSlice {
    /// Advances to `now`; the first recheck interval began at `started`.
    pub(crate) fn advance(&mut self, started: Instant, now: Instant, recheck: Duration) {
        let parts = now.saturating_duration_since(started).as_micros() * 65_536
            / recheck.as_micros().max(1);
        self.from = self.to;
        self.to = u64::try_from(parts).unwrap_or(u64::MAX - 65_536).max(self.from);
    }

    pub(crate) fn contains(self, phase: Phase) -> bool {
        let passed = |parts: u64| (parts + 65_536 - u64::from(phase)) >> 16;
        passed(self.from) != passed(self.to)
    }
}

/// Parts of the recheck intervals that have passed since the previous tick.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rechecks {
    started: Instant,
    /// Of [`Timing::recheck`].
    pub(crate) all: RecheckSlice,
    /// Of [`Timing::idle_recheck`].
    pub(crate) idle: RecheckSlice,
}

impl Rechecks {
    /// The first recheck intervals begin at `started`.
    pub(crate) fn new(started: Instant) -> Self {
        Self { started, all: RecheckSlice::default(), idle: RecheckSlice::default() }
    }

    /// Advances to the tick at `now`.
    pub(crate) fn advance(&mut self, now: Instant, timing: &Timing) {
        self.all.advance(self.started, now, timing.recheck);
        self.idle.advance(self.started, now, timing.idle_recheck);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cgroup_is_due_once_per_recheck_at_any_interval() {
        let (started, recheck) = (Instant::now(), Timing::default().recheck);
        for millis in [100, 333, 1000, 1500, 7000] {
            let mut slice = RecheckSlice::default();
            let mut due = [0_u32; 500];
            let rechecks = 21;
            for tick in 1..=(rechecks * 10_000 / millis) {
                slice.advance(started, started + Duration::from_millis(millis * tick), recheck);
                let ids = (0..due.len()).filter(|&id| slice.contains(phase(id)));
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
    fn every_cgroup_is_due_in_each_tick_longer_than_a_recheck() {
        let (started, recheck) = (Instant::now(), Timing::default().recheck);
        let mut slice = RecheckSlice::default();
        for tick in 1..10 {
            slice.advance(started, started + Duration::from_secs(60 * tick), recheck);
            assert!((0..500).all(|id| slice.contains(phase(id))));
        }
    }
}
