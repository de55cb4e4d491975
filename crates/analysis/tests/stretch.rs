//! What a stretch of readings adds to windows of a second.

use analysis::{Bandwidth, Count, CpuAdvice, History, OBJECTIVE, READ_EVERY_NS, READINGS, Replay, Stretch, Window};

const MS: u64 = 1_000_000;

/// CPU time that a thread has used after so long, when it runs for so long at the start of each interval.
fn bursts(cpu_ms: u64, every_ms: u64) -> impl Fn(u64) -> u64 {
    move |at_ns| {
        let (whole, rest) = (at_ns / (every_ms * MS), at_ns % (every_ms * MS));
        whole * cpu_ms * MS + rest.min(cpu_ms * MS)
    }
}

fn readings(used: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
    let times = (0..READINGS as u64).map(|at| at * READ_EVERY_NS);
    // No reading is on time, and no clock begins at nothing.
    times.map(|at| (at + at % (3 * MS) + 77 * MS, used(at + at % (3 * MS)) + 5 * MS)).collect()
}

fn window(used_ms: u64, periods: Option<u64>) -> Window {
    let throttled_periods = periods.map(|_| 0);
    Window { used_ns: used_ms * MS, denied_ns: 0, periods, throttled_periods, length_ns: 1000 * MS }
}

fn share(window: Window, shape: Option<&Stretch>, limit_cores: f64) -> f64 {
    let bandwidth = Bandwidth { limit_cores, burst_ns: 0.0 };
    let (mut replay, mut total) = (Replay::new(bandwidth), Count::default());
    for number in 0..600 {
        let count = replay.window(bandwidth, &window, shape, number);
        total.periods += count.periods;
        total.throttled += count.throttled;
    }
    total.share().unwrap_or(0.0)
}

/// 40 ms at 25 ms a period: five bursts a second, of which a refill spares those with 15 to 25 ms before it.
#[test]
fn bursts_that_leave_no_period_idle_are_seen_by_their_stretch_alone() {
    let shape = Stretch::from_readings(&readings(bursts(40, 210))).unwrap();
    let window = window(190, Some(10));
    assert_eq!(share(window, None, 0.25), 0.0);
    let found = share(window, Some(&shape), 0.25);
    assert!((0.36..=0.48).contains(&found), "{found}");
    assert_eq!(share(window, Some(&shape), 0.5), 0.0);
}

#[test]
fn a_window_with_more_work_than_its_stretch_has_larger_bursts() {
    let shape = Stretch::from_readings(&readings(bursts(40, 210))).unwrap();
    let shares = [100, 190, 300].map(|used_ms| share(window(used_ms, Some(10)), Some(&shape), 0.4));
    assert!(shares[0] == 0.0 && shares[1] < 0.05 && shares[2] > 0.3, "{shares:?}");
}

#[test]
fn a_stretch_that_has_hardly_any_of_a_windows_work_does_not_shape_it() {
    let shape = Stretch::from_readings(&readings(bursts(5, 500))).unwrap();
    let steady = window(900, Some(10));
    assert_eq!(share(steady, Some(&shape), 0.5), share(steady, None, 0.5));
}

#[test]
fn a_window_in_which_something_was_denied_is_taken_by_its_own_counters() {
    let shape = Stretch::from_readings(&readings(bursts(10, 210))).unwrap();
    let throttled = Window { denied_ns: 700 * MS, throttled_periods: Some(9), ..window(200, Some(10)) };
    assert_eq!(share(throttled, Some(&shape), 0.5), share(throttled, None, 0.5));
}

#[test]
fn without_a_quota_a_limit_is_no_lower_bound_once_the_shape_is_known() {
    let advised = |shape: Option<Stretch>| {
        let mut history = History::default();
        shape.into_iter().for_each(|shape| history.learn(shape));
        (0..600).for_each(|_| history.push(&window(30, None), None));
        CpuAdvice::from_history(&history, OBJECTIVE, 300).limit.unwrap()
    };
    let blind = advised(None);
    assert!(blind.cores == 0.05 && blind.is_lower_bound, "{blind:?}");
    let seen = advised(Stretch::from_readings(&readings(bursts(30, 1030))));
    assert!((0.3..=0.4).contains(&seen.cores) && !seen.is_lower_bound, "{seen:?}");
}

#[test]
fn readings_that_tell_nothing_are_no_stretch() {
    let good = readings(bursts(30, 500));
    assert!(Stretch::from_readings(&good).is_some());
    assert_eq!(Stretch::from_readings(&[]), None);
    assert_eq!(Stretch::from_readings(&good[..READINGS - 5]), None, "too short");
    assert_eq!(Stretch::from_readings(&readings(|_| 7)), None, "idle");
    let mut late = good.clone();
    late.drain(40..45);
    assert_eq!(Stretch::from_readings(&late), None, "a gap");
    let mut back = good;
    back[50].1 = 0;
    assert_eq!(Stretch::from_readings(&back), None, "a counter that went back");
}
