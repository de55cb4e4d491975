//! Results of usage traces for windows of one second.

use crate::support::{MS, window};
use analysis::{
    CandidateLimit, Count, History, READ_EVERY_NS, READINGS, Replay, UsageTrace, UsageTraces,
    Window,
};
use api::{LimitAdvice, OBJECTIVE};

/// CPU time used by a thread at a time, if it runs for `cpu_ms` at the start of each interval of
/// `every_ms`.
fn bursts(cpu_ms: u64, every_ms: u64) -> impl Fn(u64) -> u64 {
    move |at_ns| {
        let (whole, rest) = (at_ns / (every_ms * MS), at_ns % (every_ms * MS));
        whole * cpu_ms * MS + rest.min(cpu_ms * MS)
    }
}

fn readings(used: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
    let times = (0..READINGS as u64).map(|at| at * READ_EVERY_NS);
    // Readings are late by varying amounts, and neither clock starts at zero.
    times.map(|at| (at + at % (3 * MS) + 77 * MS, used(at + at % (3 * MS)) + 5 * MS)).collect()
}

fn count(window: Window, trace: Option<&UsageTrace>, limit_cores: f64) -> Count {
    let bandwidth = CandidateLimit { limit_cores, burst_share: 0.0 };
    let (mut replay, mut traces) = (Replay::default(), UsageTraces::default());
    trace.into_iter().for_each(|trace| traces.learn(trace.clone()));
    let counts = (0..600).map(|number| replay.window(bandwidth, &window, &traces, number));
    counts.fold(Count::default(), Count::plus)
}

fn share(window: Window, trace: Option<&UsageTrace>, limit_cores: f64) -> f64 {
    count(window, trace, limit_cores).share().unwrap_or(0.0)
}

fn trace(used: impl Fn(u64) -> u64) -> UsageTrace {
    UsageTrace::from_readings(&readings(used)).unwrap()
}

/// Bursts of 40 ms at a quota of 25 ms per period: five per second. A refill spares those with 15
/// to 25 ms before it.
#[test]
fn bursts_that_leave_no_period_idle_show_in_a_usage_trace_alone() {
    let seen = trace(bursts(40, 210));
    let window = window(190, Some(10));
    assert_eq!(share(window, None, 0.25), 0.0);
    let found = share(window, Some(&seen), 0.25);
    assert!((0.36..=0.48).contains(&found), "{found}");
    assert_eq!(share(window, Some(&seen), 0.5), 0.0);
}

#[test]
fn more_work_than_in_the_trace_means_larger_bursts() {
    let seen = trace(bursts(40, 210));
    let shares = [160, 190, 240].map(|used_ms| share(window(used_ms, Some(10)), Some(&seen), 0.4));
    assert!(shares[0] == 0.0 && shares[1] < 0.05 && shares[2] > 0.1, "{shares:?}");
}

#[test]
fn a_dissimilar_trace_is_not_used_for_a_window() {
    let seen = trace(bursts(5, 500));
    for used_ms in [900, 40, 20] {
        let other = window(used_ms, Some(10));
        assert_eq!(count(other, Some(&seen), 0.5), count(other, None, 0.5), "{used_ms} ms");
    }
}

#[test]
fn a_throttled_window_is_taken_by_its_own_counters() {
    let seen = trace(bursts(10, 210));
    let throttled =
        Window { throttled_ns: 700 * MS, throttled_periods: Some(9), ..window(200, Some(10)) };
    assert_eq!(share(throttled, Some(&seen), 0.5), share(throttled, None, 0.5));
}

#[test]
fn without_a_quota_a_trace_makes_the_limit_exact() {
    let advised = |seen: Option<UsageTrace>| {
        let mut history = History::default();
        seen.into_iter().for_each(|seen| history.learn(seen));
        (0..600).for_each(|_| history.push(&window(30, None), None));
        analysis::cpu_advice(&history, OBJECTIVE, 300).limit.unwrap()
    };
    let blind = advised(None);
    assert!(blind.cores == 0.05 && blind.is_lower_bound, "{blind:?}");
    let seen = advised(UsageTrace::from_readings(&readings(bursts(30, 1030))));
    assert!((0.3..=0.4).contains(&seen.cores) && !seen.is_lower_bound, "{seen:?}");
}

#[test]
fn unusable_readings_give_no_trace() {
    let good = readings(bursts(30, 500));
    assert!(UsageTrace::from_readings(&good).is_some());
    assert_eq!(UsageTrace::from_readings(&[]), None);
    assert_eq!(UsageTrace::from_readings(&good[..READINGS - 5]), None, "too short");
    assert_eq!(UsageTrace::from_readings(&readings(|_| 7)), None, "idle");
    let mut late = good.clone();
    late.drain(40..45);
    assert_eq!(UsageTrace::from_readings(&late), None, "a gap");
    let mut back = good;
    back[50].1 = 0;
    assert_eq!(UsageTrace::from_readings(&back), None, "a counter that went back");
}

/// A steady load, and two threads that run for 300 ms every 10 s: five of six traces of two seconds
/// miss them.
fn rare_bursts(at_ns: u64) -> u64 {
    let (whole, rest) = (at_ns / (10_000 * MS), at_ns % (10_000 * MS));
    bursts(1, 10)(at_ns) + whole * 600 * MS + 2 * rest.min(300 * MS)
}

/// Advice after ten minutes of this load, with these traces learned first.
fn advised_for_rare_bursts(traces: &[UsageTrace]) -> LimitAdvice {
    let mut history = History::default();
    traces.iter().for_each(|trace| history.learn(trace.clone()));
    for second in 0..600 {
        let used_ns = rare_bursts((second + 1) * 1000 * MS) - rare_bursts(second * 1000 * MS);
        history.push(&window(used_ns / MS, None), None);
    }
    analysis::cpu_advice(&history, OBJECTIVE, 300).limit.unwrap()
}

#[test]
fn bursts_rarer_than_a_trace_make_the_limit_a_lower_bound() {
    let without_bursts = trace(|at_ns| rare_bursts(at_ns + 4000 * MS));
    let advised = advised_for_rare_bursts(&[without_bursts]);
    assert!(advised.is_lower_bound && advised.bound() == "lower", "{advised:?}");
    // The kernel throttles nine of a hundred periods at 0.75 cores.
    assert!((0.01..=0.1).contains(&advised.throttled_share_at_most), "{advised:?}");
}

#[test]
fn a_rare_burst_is_kept_once_a_trace_has_met_it() {
    let without_bursts = trace(|at_ns| rare_bursts(at_ns + 4000 * MS));
    let burst = trace(|at_ns| rare_bursts(at_ns + 9500 * MS));
    let mut traces = vec![burst];
    traces.extend(std::iter::repeat_n(without_bursts, 100));
    let advised = advised_for_rare_bursts(&traces);
    assert!(advised.cores >= 2.5 && !advised.is_lower_bound, "{advised:?}");
}

#[test]
fn a_limit_in_force_that_never_throttled_is_no_lower_bound() {
    let mut history = History::default();
    (0..600).for_each(|_| history.push(&window(300, Some(10)), Some(0.4)));
    let advised = analysis::cpu_advice(&history, OBJECTIVE, 300).limit.unwrap();
    assert!(
        advised.cores <= 0.4 && advised.is_lower_bound,
        "a lower limit may throttle: {advised:?}"
    );
    let (_, at_limit) = history.limits().find(|&(cores, _)| cores == 0.4).unwrap();
    assert_eq!(at_limit.throttled_at_most, 0);
}

/// A thread runs for 40 ms every 210 ms: at half a core with periods of 10 ms, each of its periods
/// is throttled.
#[test]
fn shorter_periods_throttle_more_bursts() {
    let seen = trace(bursts(40, 210));
    let at = |period_ns: u64| {
        let window = Window { period_ns, ..window(190, None) };
        [0.5, 1.0].map(|limit| share(window, Some(&seen), limit))
    };
    assert_eq!(at(0), [0.0, 0.0]);
    assert_eq!(at(100 * MS), [0.0, 0.0]);
    let [half, whole] = at(10 * MS);
    assert!(half > 0.6 && whole < 0.05, "{half} {whole}");
}

#[test]
fn a_period_below_the_traces_resolution_gives_a_lower_bound() {
    let advised = |period_ns| {
        let mut history = History::default();
        history.learn(trace(bursts(30, 1030)));
        (0..600).for_each(|_| history.push(&Window { period_ns, ..window(30, None) }, None));
        analysis::cpu_advice(&history, OBJECTIVE, 300).limit.unwrap()
    };
    assert!(!advised(10 * MS).is_lower_bound && advised(MS).is_lower_bound, "{:?}", advised(MS));
}

#[test]
fn another_period_begins_the_replay_again_once_it_has_lasted() {
    let mut history = History::default();
    let push = |history: &mut History, count, period_ns| {
        (0..count).for_each(|_| history.push(&Window { period_ns, ..window(30, None) }, None));
    };
    push(&mut history, 600, 10 * MS);
    // A new container of the pod, whose runtime has not set the period yet.
    push(&mut history, 2, 100 * MS);
    push(&mut history, 10, 10 * MS);
    assert_eq!(history.windows(), 612);
    push(&mut history, 10, 100 * MS);
    assert_eq!(history.windows(), 8);
    assert_eq!(history.watched_seconds(), 622, "its use goes on");
}

#[test]
fn windows_of_any_length_keep_their_work_and_their_rate() {
    for length_ms in [700, 1000, 1040, 1500, 2000, 5000, 60_000] {
        let window = Window { length_ns: length_ms * MS, ..window(length_ms / 2, None) };
        let shares = [0.4, 0.6].map(|limit| share(window, None, limit));
        assert!(shares == [1.0, 0.0], "half a core for {length_ms} ms: {shares:?}");
    }
}
