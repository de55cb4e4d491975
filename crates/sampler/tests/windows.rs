//! A window lasts one second at any sample interval, or one interval if that is longer.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::time::Duration;

use sampler::DescriptorBudget;
use support::Node;

/// Number of windows in `time` of a container with periods at each tick, and of one without; every
/// third tick is `late`.
fn windows(interval: Duration, time: Duration, late: Duration) -> [u64; 2] {
    let mut node = Node::with(1, DescriptorBudget::from_limit(4096), interval);
    // The first reading is history, and begins a window.
    node.tick();
    let ticks = time.as_nanos() / interval.as_nanos();
    for tick in 0..ticks {
        node.run(0);
        node.tick_late(if tick % 3 == 1 { late } else { Duration::ZERO });
    }
    let latest = node.latest();
    [0, 1].map(|number| latest.containers[number].windows.unwrap().counts.iter().sum())
}

#[test]
fn a_window_is_a_second_at_any_shorter_interval() {
    for millis in [100, 200, 250, 500, 1000] {
        let interval = Duration::from_millis(millis);
        for late in [0, 10, 40] {
            let counted = windows(interval, Duration::from_secs(30), interval * late / 100);
            assert_eq!(counted, [30, 0], "every {millis} ms, {late} % late");
        }
    }
}

#[test]
fn a_window_is_the_interval_where_that_is_longer() {
    for seconds in [2, 5, 60] {
        let interval = Duration::from_secs(seconds);
        assert_eq!(windows(interval, interval * 7, interval / 10), [7, 0], "every {seconds} s");
    }
}

#[test]
fn a_snapshot_has_the_time_at_which_its_counters_were_read() {
    let interval = Duration::from_secs(60);
    let mut node = Node::with(1, DescriptorBudget::from_limit(4096), interval);
    node.tick();
    let first = node.latest().read_at.unwrap();
    node.tick_late(interval / 10);
    let apart = node.latest().read_at.unwrap().duration_since(first);
    // Not exact: a tick looks for new cgroups before it reads.
    assert!(apart.abs_diff(Duration::from_secs(66)) < Duration::from_secs(5), "{apart:?}");
}
