//! Contention as a part of a container's run-queue delay. Pure functions.
//!
//! `/proc/PID/task/TID/schedstat` counts all the time a thread was runnable but waited, including
//! throttling. `cpu.stat` counts throttling per CPU. While a run queue of k waiting threads is
//! throttled for t, each of the k delays grows by t, but the throttled time by t only once. Take an
//! interval with delay D, throttled time T, and n threads that waited. Throttling was at least T
//! (each throttled CPU had a waiting thread) and at most n × T (all of them waited on each
//! throttled CPU). Contention is therefore between D − n × T and D − T.
//!
//! T is a range if the kernel counts an ancestor's throttling on the ancestor only: perhaps none of
//! it affected this container ([`ThrottledTime`]).

use std::collections::HashMap;
use std::time::Duration;

/// Resolution of the start of a thread.
const TICK: Duration = Duration::from_nanos(kernel_text::USER_TICK_NS);

/// Time between the start of a scan and the reading of a thread, at most, if the agent gets no CPU.
const LATENESS: Duration = Duration::from_secs(10);

/// Time a container was throttled since it was found, nanoseconds summed over CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ThrottledTime {
    /// Lower bound: its threads certainly waited on each throttled CPU.
    pub(crate) least_ns: u64,
    /// Upper bound.
    pub(crate) most_ns: u64,
}

impl ThrottledTime {
    /// Adds throttled time, of which between `least_ns` and `most_ns` was the container's.
    pub(crate) fn add(&mut self, least_ns: u64, most_ns: u64) {
        self.least_ns += least_ns;
        self.most_ns += most_ns;
    }
}

/// Last delays of a container's threads.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    threads: HashMap<u32, Seen>,
    scan: u64,
    throttled: ThrottledTime,
    /// Start of the last scan, since boot; `None` before the first.
    scanned: Option<Duration>,
}

/// One thread in a scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadDelay {
    pub(crate) tid: u32,
    /// Run-queue delay in its whole life, nanoseconds.
    pub(crate) delay_ns: u64,
    /// Its start since boot, if it is known.
    pub(crate) started: Option<Duration>,
}

#[derive(Debug)]
struct Seen {
    delay_ns: u64,
    scan: u64,
}

/// Delay and contention bounds of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Contention {
    /// Delay of all threads, including throttling.
    pub(crate) delay_ns: u64,
    pub(crate) lower_ns: u64,
    pub(crate) upper_ns: u64,
}

/// A scan over all threads of a container.
pub(crate) struct Scan<'a> {
    delays: &'a mut Delays,
    /// Start of this scan since boot.
    now: Duration,
    gained_ns: u64,
    waiting: u64,
}

impl Delays {
    /// Begins a scan at this time since boot.
    pub(crate) fn begin_scan(&mut self, now: Duration) -> Scan<'_> {
        self.scan += 1;
        Scan { delays: self, now, gained_ns: 0, waiting: 0 }
    }
}

impl Scan<'_> {
    /// Records a thread's delay. The whole delay of a thread that has started since the last scan
    /// counts. An older thread that was not in the last scan came from another cgroup: its delay so
    /// far belongs there. A delay that is longer than the time since the last scan is impossible.
    pub(crate) fn thread(&mut self, thread: ThreadDelay) {
        let ThreadDelay { tid, delay_ns, started } = thread;
        let Delays { threads, scan, scanned, .. } = &mut *self.delays;
        let before = threads.insert(tid, Seen { delay_ns, scan: *scan });
        let is_older = |scanned: Duration| started.is_some_and(|start| start + TICK <= scanned);
        let gained = match before {
            // The thread id was reused.
            Some(seen) if delay_ns < seen.delay_ns => delay_ns,
            Some(seen) => delay_ns - seen.delay_ns,
            None if scanned.is_some_and(is_older) => 0,
            None => delay_ns,
        };
        let longest = scanned.map(|scanned| self.now.saturating_sub(scanned) + LATENESS);
        let is_possible = longest.is_none_or(|longest| u128::from(gained) <= longest.as_nanos());
        let gained = if is_possible { gained } else { 0 };
        self.gained_ns += gained;
        self.waiting += u64::from(gained > 0);
    }

    /// Ends the scan. `throttled`: the container's throttled time so far. Returns `None` at the
    /// first scan, which only sets the baseline.
    pub(crate) fn end(self, throttled: ThrottledTime) -> Option<Contention> {
        let scan = self.delays.scan;
        self.delays.threads.retain(|_, seen| seen.scan == scan);
        let before = std::mem::replace(&mut self.delays.throttled, throttled);
        let least = throttled.least_ns.saturating_sub(before.least_ns);
        let most = throttled.most_ns.saturating_sub(before.most_ns);
        let scanned = self.delays.scanned.replace(self.now);
        scanned.map(|_| Contention {
            delay_ns: self.gained_ns,
            lower_ns: self.gained_ns.saturating_sub(most.saturating_mul(self.waiting.max(1))),
            upper_ns: self.gained_ns.saturating_sub(least),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A scan; the container's own quota has throttled it for `own_ns`.
    fn scan(delays: &mut Delays, threads: &[(u32, u64)], own_ns: u64) -> Option<Contention> {
        scan_below(delays, threads, own_ns, 0)
    }

    /// A scan; ancestors' quotas have throttled the container for up to `above_ns` in addition.
    fn scan_below(
        delays: &mut Delays,
        threads: &[(u32, u64)],
        own_ns: u64,
        above_ns: u64,
    ) -> Option<Contention> {
        let mut scan = delays.begin_scan(Duration::from_secs(100));
        for &(tid, delay_ns) in threads {
            scan.thread(ThreadDelay { tid, delay_ns, started: None });
        }
        scan.end(ThrottledTime { least_ns: own_ns, most_ns: own_ns + above_ns })
    }

    #[test]
    fn the_first_scan_gives_no_bounds() {
        let mut delays = Delays::default();
        assert_eq!(scan(&mut delays, &[(1, 500)], 100), None);
        assert_eq!(scan(&mut delays, &[(1, 500)], 100), Some(Contention::default()));
    }

    #[test]
    fn a_thread_that_only_its_quota_held_back_was_in_no_contention() {
        let mut delays = Delays::default();
        scan(&mut delays, &[(1, 0)], 0);
        assert_eq!(
            scan(&mut delays, &[(1, 800)], 800),
            Some(Contention { delay_ns: 800, lower_ns: 0, upper_ns: 0 })
        );
    }

    #[test]
    fn several_threads_leave_a_span() {
        let mut delays = Delays::default();
        scan(&mut delays, &[(1, 0), (2, 0), (3, 7)], 0);
        // The third thread did not wait, so it was not throttled.
        let found = scan(&mut delays, &[(1, 500), (2, 500), (3, 7)], 300).unwrap();
        assert_eq!(found, Contention { delay_ns: 1000, lower_ns: 400, upper_ns: 700 });
    }

    #[test]
    fn throttling_of_unknown_share_lowers_only_the_lower_bound() {
        let mut delays = Delays::default();
        scan_below(&mut delays, &[(1, 0)], 0, 0);
        let found = scan_below(&mut delays, &[(1, 900)], 300, 500).unwrap();
        assert_eq!(found, Contention { delay_ns: 900, lower_ns: 100, upper_ns: 600 });
    }

    #[test]
    fn threads_that_come_and_go_are_counted_once() {
        let mut delays = Delays::default();
        scan(&mut delays, &[(1, 100)], 0);
        assert_eq!(scan(&mut delays, &[(2, 40)], 0).unwrap().upper_ns, 40);
        // Thread 1's id is reused by a younger thread.
        assert_eq!(scan(&mut delays, &[(1, 30), (2, 40)], 0).unwrap().upper_ns, 30);
    }

    #[test]
    fn a_thread_that_came_from_another_cgroup_brings_no_delay() {
        let mut delays = Delays::default();
        let mut scan = |second, threads: &[(u32, u64, u64)]| {
            let mut scan = delays.begin_scan(Duration::from_secs(second));
            for &(tid, delay_ns, started) in threads {
                let started = Some(Duration::from_secs(started));
                scan.thread(ThreadDelay { tid, delay_ns, started });
            }
            scan.end(ThrottledTime::default()).map(|found| found.delay_ns)
        };
        assert_eq!(scan(100, &[(1, 10, 50)]), None);
        // Thread 2 is older than the last scan, thread 3 is younger.
        assert_eq!(scan(110, &[(1, 10, 50), (2, 9_000_000_000, 20), (3, 5, 105)]), Some(5));
        assert_eq!(scan(120, &[(1, 11, 50), (2, 9_000_000_300, 20)]), Some(301));
        // A thread waits no longer than the time that passes.
        let wrong = 1_700_000_000_000_000_000;
        assert_eq!(scan(130, &[(1, wrong, 50)]), Some(0));
        assert_eq!(scan(140, &[(1, wrong + 7, 50)]), Some(7));
    }

    proptest! {
        #[test]
        fn the_lower_bound_is_never_above_the_upper(
            scans in proptest::collection::vec(
                (proptest::collection::vec((0u32..5, 0u64..1000), 0..6), 0u64..1000, 0u64..1000),
                1..20,
            )
        ) {
            let (mut delays, mut own, mut above) = (Delays::default(), 0, 0);
            for (threads, own_gained, above_gained) in scans {
                (own, above) = (own + own_gained, above + above_gained);
                if let Some(found) = scan_below(&mut delays, &threads, own, above) {
                    prop_assert!(found.lower_ns <= found.upper_ns, "{:?}", found);
                }
            }
        }
    }
}
