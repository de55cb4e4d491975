//! Durations of a run: kept in `target/test-times`, and the longest printed at its end.

use std::fmt::Write as _;
use std::fs;

use super::libtest::{Summary, TestTime};
use super::part_times::PartTimes;
use crate::node::times as node_times;
use crate::workspace;

/// Number of tests that are printed.
const SLOWEST: usize = 20;

/// Shorter targets are not printed.
const LONG_SECONDS: f64 = 5.0;

/// Writes the times of the parts to a file, and returns their description.
pub(super) fn of_parts(times: &PartTimes) -> String {
    let path = workspace::target_dir().join("test-times/parts");
    times.keep(&path).unwrap_or_else(|error| format!("{}: {error}\n", path.display()))
}

/// Writes all durations to a file, and describes the slowest tests and the long targets.
pub(super) fn slowest(summary: &Summary) -> String {
    let mut tests: Vec<TestTime> = summary.times.clone();
    let mut text = String::new();
    for node in node_times::read_all() {
        let (place, guest, wall) = (&node.label, node.guest_seconds, node.wall_seconds);
        let _ = writeln!(text, "{wall:7.0} s wall {guest:7.0} s in the guest  node {place}");
        tests.extend(node.tests.iter().map(|(test, seconds)| TestTime {
            place: place.clone(),
            test: test.clone(),
            seconds: *seconds,
        }));
    }
    for target in &summary.targets {
        let (wall, cpu) = (target.wall.as_secs_f64(), target.cpu.as_secs_f64());
        if wall.max(cpu) >= LONG_SECONDS {
            let _ = writeln!(
                text,
                "{wall:7.0} s wall {cpu:7.0} s CPU  {}: {}",
                target.queue, target.target
            );
        }
    }
    tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let lines: Vec<_> = tests.iter().map(line).collect();
    let path = workspace::target_dir().join("test-times/all");
    let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
    if let Err(error) = parent.and_then(|()| fs::write(&path, lines.concat())) {
        let _ = writeln!(text, "{}: {error}", path.display());
    }
    let _ = writeln!(text, "slowest tests (all: {}):", path.display());
    text + &lines[..lines.len().min(SLOWEST)].concat()
}

fn line(time: &TestTime) -> String {
    format!("{:8.2} s  {}  {}\n", time.seconds, time.place, time.test)
}
