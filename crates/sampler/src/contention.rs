//! Contention as a part of a container's run-queue delay. Pure functions.
//!
//! `/proc/PID/task/TID/schedstat` counts the time that a thread ran, R, and the time that it was
//! runnable but waited, D, throttling included. A wait is added to D when it ends. A thread of the
//! age A that has waited since then for O has A = R + D + O + the time that it slept. So O is at
//! most A - R - D, and 0 if the thread sleeps.
//!
//! In the interval between two scans, of the length E, the thread
//! - waited for at most E less the gain of R, and at most for the gain of D plus O at the end. Once
//!   a later scan finds that the wait has ended, O is at most what D has gained meanwhile;
//! - waited for at least the gain of D less O at the beginning.
//!
//! Therefore an interval is evaluated at the scan after its end. Throttling is taken off as
//! `cpu.stat` counts it, per CPU, when a throttle ends:
//! - A thread waits on one CPU at a time. So its waits that ended contain at most T of throttling,
//!   the throttled time that is counted up to the evaluation. The lower bound is the sum over the
//!   threads of their least waits less T each.
//! - Each throttled run queue has at least one thread that waits. So the upper bound is the sum of
//!   the most that each thread waited, less T once. T may have been the throttling of threads that
//!   no scan saw. So nothing is taken off if threads began or ended, or if the container used more
//!   CPU time than the threads ran. A throttle counts when it ends, so T may contain a throttle's
//!   beginning in the interval before, in which the upper bound was higher.
//!
//! T is a range if the kernel counts an ancestor's throttling on the ancestor only: perhaps none of
//! it affected this container ([`ThrottledTime`]).
//!
//! The bounds are of the threads that scans saw, up to the last scan that saw them. No counter
//! shows the waits of a thread that began and ended between two scans.

use std::collections::HashMap;
use std::time::Duration;

/// Resolution of the start of a thread, and the time by which a running thread's R may be old.
const TICK: Duration = Duration::from_nanos(kernel_text::USER_TICK_NS);

/// CPU time that threads which no scan saw may use without being noticed: the container's usage and
/// its threads are not read at the same moment.
const UNNOTICED_NS: u64 = 20_000_000;

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
    /// Number of scans.
    scan: u64,
    /// At the last scan, and at the one before.
    throttled: [ThrottledTime; 2],
    /// Whether threads that no scan saw may have run in the interval that is evaluated next.
    any_unseen: bool,
    /// Whether a wait may have been in progress at the first scan: its throttling is in no interval.
    any_open_at_first: bool,
    usage_ns: Option<u64>,
    /// Time of the last scan, since boot; `None` before the first.
    scanned: Option<ScanTime>,
}

/// Time of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanTime {
    /// Time of the tick that it belongs to, since the sampler's start.
    pub(crate) tick: Duration,
    /// Its beginning and end since boot: each thread was read in between.
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
}

impl ScanTime {
    /// Time between two readings of a thread, at most.
    fn since(self, last: Self) -> Duration {
        self.ended.saturating_sub(last.began).max(self.tick.saturating_sub(last.tick))
    }
}

/// One thread in a scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadDelay {
    pub(crate) tid: u32,
    /// Run-queue delay in its whole life, nanoseconds.
    pub(crate) delay_ns: u64,
    /// Time on a CPU in its whole life, nanoseconds.
    pub(crate) run_ns: u64,
    /// Whether it runs or waits. A thread that sleeps has no wait in progress.
    pub(crate) runnable: bool,
    /// Its start since boot, if it is known.
    pub(crate) started: Option<Duration>,
}

/// A thread at the last scan.
#[derive(Debug, Clone, Copy)]
struct Seen {
    delay_ns: u64,
    run_ns: u64,
    /// Longest wait that may have been in progress, nanoseconds.
    open_ns: u64,
    scan: u64,
    interval: ThreadInterval,
}

/// What a thread waited between two scans, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadInterval {
    /// Its waits that ended, at most.
    ended_ns: u64,
    /// Those of them that certainly passed in the interval.
    least_ns: u64,
    /// Time in which it did not run.
    most_ns: u64,
}

/// A container's counters so far, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ContainerTimes {
    pub(crate) throttled: ThrottledTime,
    /// CPU time; `None` if it is unknown.
    pub(crate) usage_ns: Option<u64>,
}

/// Delay and contention bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Contention {
    /// Delay of all threads since the last scan, including throttling.
    pub(crate) delay_ns: u64,
    /// Bounds of the interval before the last scan.
    pub(crate) lower_ns: u64,
    pub(crate) upper_ns: u64,
}

/// A scan over all threads of a container.
pub(crate) struct Scan<'a> {
    delays: &'a mut Delays,
    now: ScanTime,
    times: ContainerTimes,
    /// Throttled time since the start of the interval that is evaluated, at most.
    throttled_ns: u64,
    /// Time that the threads ran since the last scan.
    run_ns: u64,
    any_new: bool,
    any_open: bool,
    found: Contention,
}

impl Delays {
    /// Begins the evaluation of a scan.
    pub(crate) fn begin_scan(&mut self, now: ScanTime, times: ContainerTimes) -> Scan<'_> {
        self.scan += 1;
        let throttled_ns = times.throttled.most_ns.saturating_sub(self.throttled[1].most_ns);
        let found = Contention::default();
        let (any_new, any_open) = (false, false);
        Scan { delays: self, now, times, throttled_ns, run_ns: 0, any_new, any_open, found }
    }
}

impl Scan<'_> {
    /// Records a thread. The whole delay of a thread that has started since the last scan counts. An
    /// older thread that was not in the last scan came from another cgroup: its delay so far belongs
    /// there. A delay that is longer than the thread's life is impossible.
    pub(crate) fn thread(&mut self, thread: ThreadDelay) {
        // A lower delay: the thread id was reused.
        let before = self.delays.threads.get(&thread.tid).copied();
        let before = before.filter(|seen| thread.delay_ns >= seen.delay_ns);
        let (gained_ns, interval) = self.interval(&thread, before.as_ref());
        self.any_new |= before.is_none();
        self.found.delay_ns += gained_ns;
        if let Some(seen) = before {
            self.evaluate(&seen, Some((gained_ns, thread.runnable)));
        }
        let open_ns = self.open_ns(&thread, before.as_ref(), &interval);
        self.any_open |= open_ns > 0;
        let ThreadDelay { tid, delay_ns, run_ns, .. } = thread;
        let seen = Seen { delay_ns, run_ns, open_ns, scan: self.delays.scan, interval };
        let reused = self.delays.threads.insert(tid, seen).filter(|_| before.is_none());
        if let Some(gone) = reused {
            self.evaluate(&gone, None);
        }
    }

    /// The interval that ends with this scan, and the delay that it adds.
    fn interval(&mut self, thread: &ThreadDelay, before: Option<&Seen>) -> (u64, ThreadInterval) {
        let Some(last) = self.delays.scanned else {
            return (thread.delay_ns, ThreadInterval::default());
        };
        let elapsed_ns = nanos(self.now.since(last));
        let is_older = thread.started.is_some_and(|start| start + TICK <= last.began);
        let (delay_ns, run_ns, open_ns) = match before {
            Some(seen) => (seen.delay_ns, seen.run_ns, seen.open_ns),
            None if is_older => {
                let (ended_ns, most_ns) = (elapsed_ns, elapsed_ns);
                return (0, ThreadInterval { ended_ns, least_ns: 0, most_ns });
            }
            None => (0, 0, 0),
        };
        let run_ns = thread.run_ns.saturating_sub(run_ns);
        self.run_ns += run_ns;
        let life = self.now.ended.saturating_sub(thread.started.unwrap_or_default());
        let ended_ns = thread.delay_ns - delay_ns;
        let ended_ns = if ended_ns <= nanos(life) { ended_ns } else { 0 };
        let most_ns = (elapsed_ns + nanos(TICK)).saturating_sub(run_ns);
        let least_ns = ended_ns.saturating_sub(open_ns).min(most_ns);
        (ended_ns, ThreadInterval { ended_ns, least_ns, most_ns })
    }

    /// Longest wait that may be in progress: the rest of the thread's life, or the rest of the
    /// interval and what was in progress when it began.
    fn open_ns(&self, thread: &ThreadDelay, before: Option<&Seen>, now: &ThreadInterval) -> u64 {
        if !thread.runnable {
            return 0;
        }
        let life = self.now.ended.saturating_sub(thread.started.unwrap_or_default());
        let of_life = nanos(life).saturating_sub(thread.run_ns).saturating_sub(thread.delay_ns);
        let of_interval = before.map_or(u64::MAX, |seen| {
            (now.most_ns.saturating_add(seen.open_ns)).saturating_sub(now.ended_ns)
        });
        of_life.min(of_interval)
    }

    /// Adds the bounds of a thread's interval before the last scan. `since`: what it has waited
    /// since then, and whether it is runnable; `None` if it is gone.
    fn evaluate(&mut self, seen: &Seen, since: Option<(u64, bool)>) {
        let ThreadInterval { ended_ns, least_ns, most_ns } = seen.interval;
        let open_ns = match since {
            Some((waited_ns, runnable)) if waited_ns > 0 || !runnable => {
                waited_ns.min(seen.open_ns)
            }
            _ => seen.open_ns,
        };
        self.found.lower_ns += least_ns.saturating_sub(self.throttled_ns);
        self.found.upper_ns += ended_ns.saturating_add(open_ns).min(most_ns);
    }

    /// Ends the scan. Returns `None` at the first scan, which only sets the baseline.
    pub(crate) fn end(mut self) -> Option<Contention> {
        let any_gone = self.evaluate_gone();
        let [last, before] = self.delays.throttled;
        let ContainerTimes { throttled, usage_ns } = self.times;
        let used = usage_ns.zip(self.delays.usage_ns).map(|(now, last)| now.saturating_sub(last));
        let any_unseen = self.any_new
            || any_gone
            || std::mem::take(&mut self.delays.any_open_at_first)
            || used.is_some_and(|used| used > self.run_ns + UNNOTICED_NS);
        if !std::mem::replace(&mut self.delays.any_unseen, any_unseen) {
            let least_ns = last.least_ns.saturating_sub(before.least_ns);
            self.found.upper_ns = self.found.upper_ns.saturating_sub(least_ns);
        }
        self.found.upper_ns = self.found.upper_ns.max(self.found.lower_ns);
        self.delays.usage_ns = usage_ns;
        let is_first = self.delays.scanned.replace(self.now).is_none();
        self.delays.any_open_at_first = is_first && self.any_open;
        self.delays.throttled = [throttled, if is_first { throttled } else { last }];
        (!is_first).then_some(self.found)
    }

    /// Evaluates and forgets the threads that are gone; returns whether there were any.
    fn evaluate_gone(&mut self) -> bool {
        let (scan, mut threads) = (self.delays.scan, std::mem::take(&mut self.delays.threads));
        let before = threads.len();
        threads.retain(|_, seen| {
            let is_here = seen.scan == scan;
            if !is_here {
                self.evaluate(seen, None);
            }
            is_here
        });
        self.delays.threads = threads;
        self.delays.threads.len() < before
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
