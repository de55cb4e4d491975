//! Vectors and properties of the replay.

use crate::support::{MS, window};
use analysis::{
    CandidateLimit, Count, History, LIMITS_CORES, READ_EVERY_NS, READINGS, Replay, UsageTrace,
    UsageTraces, Window,
};
use api::{CpuAdvice, OBJECTIVE};
use proptest::prelude::*;

/// A two-second trace of evenly spread use, in milliseconds per second.
fn steady_trace(used_ms: u64) -> UsageTrace {
    let readings: Vec<_> =
        (0..READINGS as u64).map(|at| (at * READ_EVERY_NS, at * used_ms * MS / 50)).collect();
    UsageTrace::from_readings(&readings).unwrap()
}

fn replayed(window: Window, limit_cores: f64, burst_ms: f64) -> Count {
    let bandwidth = CandidateLimit { limit_cores, burst_share: burst_ms / (limit_cores * 100.0) };
    let mut replay = Replay::default();
    let mut total = Count::default();
    for number in 0..600 {
        total = total.plus(replay.window(bandwidth, &window, &UsageTraces::default(), number));
    }
    total
}

fn share(window: Window, limit_cores: f64, burst_ms: f64) -> f64 {
    replayed(window, limit_cores, burst_ms).share().expect("the window has periods")
}

#[test]
fn an_idle_container_has_no_periods() {
    assert_eq!(replayed(window(0, Some(0)), 0.05, 0.0), Count::default());
}

#[test]
fn a_spinner_is_throttled_only_under_a_limit_below_one_core() {
    assert_eq!(share(window(1000, Some(10)), 0.2, 0.0), 1.0);
    assert_eq!(share(window(1000, Some(10)), 1.0, 0.0), 0.0);
    assert_eq!(share(window(2000, Some(10)), 1.75, 0.0), 1.0);
    assert_eq!(share(window(2000, Some(10)), 2.0, 0.0), 0.0);
}

/// Measured on 6.18: a 30 ms burst each second at 20 ms gave 63 periods in 20 s, 21 of them
/// throttled.
#[test]
fn short_bursts_are_throttled_unless_a_refill_interrupts_them() {
    let count = replayed(window(30, Some(2)), 0.2, 0.0);
    let share = count.share().unwrap();
    assert!((0.24..=0.34).contains(&share), "{share}");
    assert!((2.5..=3.2).contains(&(f64::from(count.periods) / 600.0)), "{count:?}");
    assert_eq!(self::share(window(30, Some(2)), 0.3, 0.0), 0.0);
}

/// Measured on 6.18 at 250 Hz: with a quota of 5 ms per period, bursts of 10.3 ms are throttled
/// once, not twice.
#[test]
fn a_burst_that_ends_before_the_tick_is_not_throttled() {
    assert_eq!(share(window(11, Some(2)), 0.1, 0.0), 0.0);
    assert!(share(window(13, Some(2)), 0.1, 0.0) > 0.2);
    assert!(share(window(110, Some(10)), 0.1, 0.0) > 0.99);
}

#[test]
fn accumulated_burst_time_covers_a_burst() {
    assert!(share(window(30, Some(2)), 0.2, 0.0) > 0.2);
    // Only the very first burst finds no saved budget.
    assert!(replayed(window(30, Some(2)), 0.2, 10.0).throttled <= 1);
}

#[test]
fn the_smallest_limit_within_the_objective_is_reported() {
    let mut history = History::default();
    let throttled =
        Window { throttled_ns: 80 * MS, throttled_periods: Some(1), ..window(30, Some(3)) };
    (0..900).for_each(|_| history.push(&throttled, Some(0.2)));
    let advice = analysis::cpu_advice(&history, OBJECTIVE, 300);
    let limit = advice.limit.unwrap();
    assert!(limit.cores == 0.3 && limit.is_lower_bound, "{limit:?}");
    assert_eq!(advice.burst_seconds, Some(0.01));
    assert!((0.03..0.035).contains(&advice.request_cores.unwrap()), "{advice:?}");
}

#[test]
fn unthrottled_demand_gives_an_exact_limit_without_burst() {
    let mut history = History::default();
    history.learn(steady_trace(700));
    (0..900).for_each(|_| history.push(&window(700, Some(10)), Some(4.0)));
    let advice = analysis::cpu_advice(&history, OBJECTIVE, 300);
    let limit = advice.limit.unwrap();
    assert!(
        limit.cores == 0.75 && !limit.is_lower_bound && advice.burst_seconds.is_none(),
        "{advice:?}"
    );
}

#[test]
fn too_little_history_gives_no_advice() {
    let mut history = History::default();
    (0..299).for_each(|_| history.push(&window(700, Some(10)), None));
    let advice = analysis::cpu_advice(&history, OBJECTIVE, 300);
    assert_eq!(advice, CpuAdvice { windows: 299, watched_seconds: 299, ..CpuAdvice::default() });
}

#[test]
fn six_hours_are_kept_in_bounded_memory_and_older_windows_go() {
    let mut history = History::default();
    (0..1200).for_each(|_| history.push(&window(3000, Some(10)), Some(4.0)));
    (0..analysis::REPLAYED_SECONDS).for_each(|_| history.push(&window(90, Some(10)), Some(4.0)));
    assert_eq!(history.replayed_seconds(), analysis::REPLAYED_SECONDS);
    assert_eq!(analysis::cpu_advice(&history, OBJECTIVE, 300).limit.unwrap().cores, 0.1);
    assert!(500 * History::bytes_when_full() <= 16 << 20, "{} bytes", History::bytes_when_full());
}

fn windows() -> impl Strategy<Value = Vec<Window>> {
    let one = (0_u64..4000, 0_u64..3000, prop::option::of(0_u64..12)).prop_map(
        |(used_ms, throttled_ms, periods)| Window {
            used_ns: used_ms * MS,
            throttled_ns: throttled_ms * MS,
            periods,
            throttled_periods: periods.map(|periods| periods.min(throttled_ms)),
            length_ns: 1000 * MS,
            ..Window::default()
        },
    );
    prop::collection::vec(one, 1..200)
}

proptest! {
    #[test]
    fn no_more_periods_are_throttled_than_there_are(windows in windows(), limit in 0.01_f64..8.0, burst in 0.0_f64..1.5) {
        let bandwidth = CandidateLimit { limit_cores: limit, burst_share: burst };
        let mut replay = Replay::default();
        for (number, window) in windows.iter().enumerate() {
            let count = replay.window(bandwidth, window, &UsageTraces::default(), number as u64);
            prop_assert!(count.throttled <= count.periods && count.periods <= 10);
        }
    }

    #[test]
    fn a_higher_limit_never_throttles_more(windows in windows()) {
        let mut history = History::default();
        windows.iter().for_each(|window| history.push(window, None));
        let throttled: Vec<_> = history.limits().map(|(_, count)| count.throttled).collect();
        prop_assert!(throttled.is_sorted_by(|low, high| low >= high), "{throttled:?}");
        prop_assert_eq!(throttled.len(), LIMITS_CORES.len());
    }

    /// The history may skip idle windows; the results for the other windows must not change.
    #[test]
    fn a_history_with_idle_stretches_is_each_window_replayed(
        stretches in prop::collection::vec((windows(), 0_usize..60, 1_u64..=10), 1..6),
        limit in prop::option::of(0.05_f64..4.0),
    ) {
        let idle = |periods| Window { length_ns: periods * 100 * MS, ..window(0, Some(0)) };
        let with_idle = |(busy, count, periods)| [busy, vec![idle(periods); count]].concat();
        let windows: Vec<_> = stretches.into_iter().flat_map(with_idle).collect();
        let mut history = History::default();
        windows.iter().for_each(|window| history.push(window, limit));
        let replayed = |bandwidth| {
            let (mut replay, traces) = (Replay::default(), UsageTraces::default());
            let counts = (1..).zip(&windows).map(|(number, window)| replay.window(bandwidth, window, &traces, number));
            counts.fold(Count::default(), Count::plus)
        };
        for (limit_cores, count) in history.limits() {
            let alone = replayed(CandidateLimit { limit_cores, burst_share: 0.0 });
            prop_assert_eq!((count.periods, count.throttled), (alone.periods, alone.throttled), "{} cores", limit_cores);
            prop_assert!(count.throttled_at_most <= alone.throttled_at_most, "{} cores", limit_cores);
        }
        for (seconds, count) in history.bursts() {
            let limit_cores = limit.unwrap();
            let alone = replayed(CandidateLimit { limit_cores, burst_share: seconds / (limit_cores * 0.1) });
            prop_assert_eq!((count.periods, count.throttled), (alone.periods, alone.throttled), "{} s of burst", seconds);
        }
        prop_assert_eq!(history.windows(), windows.len());
    }

    #[test]
    fn a_quantile_covers_its_share(used in prop::collection::vec(0_u64..60_000, 1..300)) {
        let mut history = History::default();
        used.iter().for_each(|&ms| history.push(&window(ms, Some(10)), None));
        let p95 = history.usage().quantile(0.95).unwrap();
        let covered = used.iter().filter(|&&ms| ms as f64 / 1000.0 <= p95 * 1.000_001).count();
        prop_assert!(covered as f64 >= used.len() as f64 * 0.95);
    }
}
