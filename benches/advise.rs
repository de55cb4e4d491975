//! What advice costs. Cases:
//!
//! - memory of 6 h of one-second windows of 500 containers, each with a quota (the promise: 16 MiB at most)
//! - a minute of windows of 500 containers through every candidate: idle, bursts, and busy in every period (the promise:
//!   50 ms a minute)
//!
//! `cargo bench --bench advise`

use std::hint::black_box;
use std::time::Instant;

use analysis::{History, RETAINED_WINDOWS, Window};

const CONTAINERS: usize = 500;
const MINUTE: usize = 60;
const ROUNDS: usize = 9;

fn main() {
    let mib = (CONTAINERS * History::bytes_when_full()) as f64 / f64::from(1 << 20);
    println!("{CONTAINERS} containers, {RETAINED_WINDOWS} windows each: {mib:.1} MiB when full");
    assert!(mib <= 16.0, "more memory than promised");
    let window = |used_ms: u64, periods| Window {
        used_ns: used_ms * 1_000_000,
        denied_ns: 0,
        periods: Some(periods),
        throttled_periods: Some(0),
        length_ns: 1_000_000_000,
    };
    for (name, window) in [("idle", window(0, 0)), ("a burst of 30 ms", window(30, 2)), ("busy", window(1700, 10))] {
        let mut histories = vec![History::default(); CONTAINERS];
        let mut times: Vec<_> = (0..ROUNDS).map(|_| minute_ms(&mut histories, &window)).collect();
        times.sort_by(f64::total_cmp);
        println!("{name}: {:.1} ms a minute, median of {ROUNDS}", times[ROUNDS / 2]);
    }
}

fn minute_ms(histories: &mut [History], window: &Window) -> f64 {
    let began = Instant::now();
    for _ in 0..MINUTE {
        histories.iter_mut().for_each(|history| history.push(black_box(window), Some(2.0)));
    }
    began.elapsed().as_secs_f64() * 1000.0
}
