//! How much of a container's run-queue delay was contention. Pure.
//!
//! `/proc/PID/task/TID/schedstat` counts all the time a thread was runnable and waited, whatever the reason: throttling
//! included. `cpu.stat` counts throttling per CPU: while a run queue of k waiting threads is throttled for t, each of
//! the k delays grows by t, and the throttled time by t alone. So of a delay D and a throttled time T in an interval,
//! with n threads that waited at all, throttling was at least T (each throttled CPU had a waiting thread) and at most
//! n × T (all of them waited on each throttled CPU). Contention is between D − n × T and D − T.

use std::collections::HashMap;

/// The last delays of a container's threads.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    threads: HashMap<u32, Seen>,
    round: u64,
    denied_ns: u64,
    began: bool,
}

#[derive(Debug)]
struct Seen {
    delay_ns: u64,
    round: u64,
}

/// What an interval's delays say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Contention {
    /// All of the threads' delay, throttling included.
    pub(crate) delay_ns: u64,
    pub(crate) lower_ns: u64,
    pub(crate) upper_ns: u64,
}

/// One look at all threads of a container.
pub(crate) struct Look<'a> {
    delays: &'a mut Delays,
    gained_ns: u64,
    waiting: u64,
}

impl Delays {
    /// Begins a look.
    pub(crate) fn look(&mut self) -> Look<'_> {
        self.round += 1;
        Look { delays: self, gained_ns: 0, waiting: 0 }
    }
}

impl Look<'_> {
    /// A thread's delay. A thread that is new since the last look has waited all its delay since then.
    pub(crate) fn thread(&mut self, tid: u32, delay_ns: u64) {
        let round = self.delays.round;
        let before = self.delays.threads.insert(tid, Seen { delay_ns, round });
        let gained = match before {
            // The id went to another thread.
            Some(seen) if delay_ns < seen.delay_ns => delay_ns,
            Some(seen) => delay_ns - seen.delay_ns,
            None => delay_ns,
        };
        self.gained_ns += gained;
        self.waiting += u64::from(gained > 0);
    }

    /// Ends the look: the container's quotas, its own and its ancestors', have denied `denied_ns` in all by now. `None`
    /// at the first look, which only tells where the counters stand.
    pub(crate) fn end(self, denied_ns: u64) -> Option<Contention> {
        let round = self.delays.round;
        self.delays.threads.retain(|_, seen| seen.round == round);
        let denied = denied_ns.saturating_sub(std::mem::replace(&mut self.delays.denied_ns, denied_ns));
        let began = std::mem::replace(&mut self.delays.began, true);
        began.then(|| Contention {
            delay_ns: self.gained_ns,
            lower_ns: self.gained_ns.saturating_sub(denied.saturating_mul(self.waiting.max(1))),
            upper_ns: self.gained_ns.saturating_sub(denied),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn look(delays: &mut Delays, threads: &[(u32, u64)], denied_ns: u64) -> Option<Contention> {
        let mut look = delays.look();
        threads.iter().for_each(|&(tid, delay)| look.thread(tid, delay));
        look.end(denied_ns)
    }

    #[test]
    fn the_first_look_tells_nothing() {
        let mut delays = Delays::default();
        assert_eq!(look(&mut delays, &[(1, 500)], 100), None);
        assert_eq!(look(&mut delays, &[(1, 500)], 100), Some(Contention::default()));
    }

    #[test]
    fn a_thread_that_only_its_quota_held_back_was_in_no_contention() {
        let mut delays = Delays::default();
        look(&mut delays, &[(1, 0)], 0);
        assert_eq!(look(&mut delays, &[(1, 800)], 800), Some(Contention { delay_ns: 800, lower_ns: 0, upper_ns: 0 }));
    }

    #[test]
    fn several_threads_leave_a_span() {
        let mut delays = Delays::default();
        look(&mut delays, &[(1, 0), (2, 0), (3, 7)], 0);
        // The third thread did not wait: it cannot have been throttled.
        let found = look(&mut delays, &[(1, 500), (2, 500), (3, 7)], 300).unwrap();
        assert_eq!(found, Contention { delay_ns: 1000, lower_ns: 400, upper_ns: 700 });
    }

    #[test]
    fn threads_that_come_and_go_are_counted_once() {
        let mut delays = Delays::default();
        look(&mut delays, &[(1, 100)], 0);
        assert_eq!(look(&mut delays, &[(2, 40)], 0).unwrap().upper_ns, 40);
        // Thread 1's id is used again, by a thread that is younger.
        assert_eq!(look(&mut delays, &[(1, 30), (2, 40)], 0).unwrap().upper_ns, 30);
    }

    proptest! {
        #[test]
        fn the_lower_bound_is_never_above_the_upper(
            looks in proptest::collection::vec((proptest::collection::vec((0u32..5, 0u64..1000), 0..6), 0u64..2000), 1..20)
        ) {
            let mut delays = Delays::default();
            for (threads, denied) in looks {
                if let Some(found) = look(&mut delays, &threads, denied) {
                    prop_assert!(found.lower_ns <= found.upper_ns, "{:?}", found);
                }
            }
        }
    }
}
