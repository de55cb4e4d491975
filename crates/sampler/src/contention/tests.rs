//! Single cases. [`model`] compares with the exact time.

mod model;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A thread that sleeps, and its delay; it runs in the rest of its life.
fn sleeping(tid: u32, delay_ns: u64) -> ThreadDelay {
    ThreadDelay { tid, delay_ns, run_ns: 0, runnable: false, started: None }
}

fn at(seconds: u64) -> ScanTime {
    let time = Duration::from_secs(seconds);
    ScanTime { tick: time, began: time, ended: time }
}

/// A container that is scanned every ten seconds.
#[derive(Default)]
struct Container {
    delays: Delays,
    seconds: u64,
    times: ContainerTimes,
}

impl Container {
    fn scan(&mut self, threads: &[ThreadDelay]) -> Option<Contention> {
        self.seconds += 10;
        let mut scan = self.delays.begin_scan(at(100 + self.seconds), self.times);
        threads.iter().for_each(|&thread| scan.thread(thread));
        scan.end()
    }

    /// Scans twice; the second scan evaluates the interval before the first.
    fn bounds(&mut self, threads: &[ThreadDelay]) -> (u64, u64) {
        self.scan(threads);
        let found = self.scan(threads).unwrap();
        (found.lower_ns, found.upper_ns)
    }

    fn throttle(&mut self, own_ns: u64, above_ns: u64) {
        self.times.throttled.add(own_ns, own_ns + above_ns);
    }
}

#[test]
fn the_first_scan_gives_no_bounds() {
    let mut container = Container::default();
    container.throttle(100, 0);
    assert_eq!(container.scan(&[sleeping(1, 500)]), None);
    assert_eq!(container.scan(&[sleeping(1, 500)]), Some(Contention::default()));
    assert_eq!(container.scan(&[sleeping(1, 500)]), Some(Contention::default()));
}

#[test]
fn a_thread_that_only_its_quota_held_back_was_in_no_contention() {
    let mut container = Container::default();
    container.scan(&[sleeping(1, 0)]);
    container.throttle(800, 0);
    assert_eq!(container.scan(&[sleeping(1, 800)]).unwrap().delay_ns, 800);
    assert_eq!(container.bounds(&[sleeping(1, 800)]), (0, 0));
}

#[test]
fn several_threads_leave_a_span() {
    let mut container = Container::default();
    container.scan(&[sleeping(1, 0), sleeping(2, 0), sleeping(3, 7)]);
    container.throttle(300, 0);
    // The third thread did not wait, so it was not throttled.
    assert_eq!(container.bounds(&[sleeping(1, 500), sleeping(2, 500), sleeping(3, 7)]), (400, 700));
}

#[test]
fn throttling_of_unknown_share_lowers_only_the_lower_bound() {
    let mut container = Container::default();
    container.scan(&[sleeping(1, 0)]);
    container.throttle(300, 500);
    assert_eq!(container.bounds(&[sleeping(1, 900)]), (100, 600));
}

#[test]
fn threads_that_come_and_go_are_counted_once() {
    let mut container = Container::default();
    container.scan(&[sleeping(1, 100)]);
    assert_eq!(container.bounds(&[sleeping(2, 40)]), (40, 40));
    // Thread 1's id is reused by a younger thread.
    assert_eq!(container.bounds(&[sleeping(1, 30), sleeping(2, 40)]), (30, 30));
}

#[test]
fn throttling_of_threads_that_no_scan_saw_is_not_taken_off() {
    let mut container = Container::default();
    container.times.usage_ns = Some(0);
    container.scan(&[sleeping(1, 0)]);
    // A short-lived thread runs for 50 ms and is throttled; thread 1 waits for another pod.
    container.times.usage_ns = Some(50_000_000);
    container.throttle(5 * SECOND, 0);
    assert_eq!(container.bounds(&[sleeping(1, 3 * SECOND)]), (0, 3 * SECOND));
}

#[test]
fn a_wait_in_progress_is_in_the_upper_bound() {
    let starved = |seconds: u64, delay_ns, runnable| ThreadDelay {
        delay_ns,
        run_ns: SECOND,
        runnable,
        started: Some(Duration::from_secs(100)),
        ..sleeping(1, seconds)
    };
    let mut container = Container::default();
    container.scan(&[starved(0, 0, false)]);
    // It waits from second 112 to second 137.
    let mut scan = |delay_ns, runnable| {
        let found = container.scan(&[starved(0, delay_ns, runnable)]).unwrap();
        (found.lower_ns / SECOND, found.upper_ns / SECOND)
    };
    assert_eq!(scan(0, true), (0, 0));
    assert_eq!(scan(0, true), (0, 10), "up to 120");
    assert_eq!(scan(25 * SECOND, false), (0, 10), "up to 130");
    // It began after 110, so that at least 5 s of it, less a tick each, were after 130.
    assert_eq!(scan(25 * SECOND, false), (4, 10), "up to 140");
    assert_eq!(scan(25 * SECOND, false), (0, 0));
}

#[test]
fn a_thread_that_never_sleeps_has_equal_bounds() {
    let spinning = |seconds: u64| ThreadDelay {
        tid: 1,
        delay_ns: seconds * SECOND / 2,
        run_ns: seconds * SECOND / 2,
        runnable: true,
        started: Some(Duration::from_secs(100)),
    };
    let mut container = Container::default();
    container.scan(&[spinning(10)]);
    container.scan(&[spinning(20)]);
    let found = container.scan(&[spinning(30)]).unwrap();
    assert_eq!((found.lower_ns, found.upper_ns), (5 * SECOND, 5 * SECOND));
}

#[test]
fn a_thread_that_came_from_another_cgroup_brings_no_delay() {
    let mut delays = Delays::default();
    let mut scan = |second, threads: &[(u32, u64, u64)]| {
        let mut scan = delays.begin_scan(at(second), ContainerTimes::default());
        for &(tid, delay_ns, started) in threads {
            let started = Some(Duration::from_secs(started));
            scan.thread(ThreadDelay { started, ..sleeping(tid, delay_ns) });
        }
        scan.end().map(|found| (found.delay_ns, found.lower_ns, found.upper_ns))
    };
    assert_eq!(scan(100, &[(1, 10, 50)]), None);
    // Thread 2 is older than the last scan, thread 3 is younger.
    assert_eq!(scan(110, &[(1, 10, 50), (2, 9 * SECOND, 20), (3, 5, 105)]), Some((5, 0, 0)));
    // When it came, and how long it has waited here, is not known.
    assert_eq!(
        scan(120, &[(1, 11, 50), (2, 9 * SECOND + 300, 20)]),
        Some((301, 5, 10 * SECOND + 5))
    );
    // A thread waits no longer than it lives, but longer than the time between two scans.
    let wrong = 1_700_000_000_000_000_000;
    assert_eq!(scan(130, &[(1, wrong, 50), (2, 9 * SECOND + 300, 20)]).unwrap().0, 0);
    assert_eq!(
        scan(140, &[(1, wrong + 7, 50), (2, 70 * SECOND, 20)]).unwrap().0,
        61 * SECOND - 293
    );
}
