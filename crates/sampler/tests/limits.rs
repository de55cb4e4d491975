//! The limit is the lowest quota over a container and its ancestors.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;

use support::Node;

/// Limit in cores and the period of the quota behind it, of each container.
fn limits(node: &Node) -> Vec<(Option<f64>, Option<u64>)> {
    node.latest().containers.iter().map(|row| (row.limit_cores, row.limit_period_usec)).collect()
}

#[test]
fn the_period_is_that_of_the_lowest_quota() {
    let mut node = Node::new(2);
    let pod = |number| node.container(number).parent().unwrap().to_owned();
    // Lower than its containers', as low as one of them, and lower than another's.
    fs::write(pod(0).join("cpu.max"), "1000 10000\n").unwrap();
    fs::write(pod(2).join("cpu.max"), "2000 10000\n").unwrap();
    fs::write(node.container(3).join("cpu.max"), "max 50000\n").unwrap();
    node.tick();
    let expected = [(0.1, 10_000), (0.1, 10_000), (0.2, 100_000), (0.2, 10_000)];
    assert_eq!(limits(&node), expected.map(|(cores, usec)| (Some(cores), Some(usec))));
}
