//! Containers of a pod with unchanged usage are not read: the pod's usage includes theirs.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;

use support::Node;

/// Numbers of ticks after which every cgroup is idle, and after which ticks pass the containers by.
const IDLE_TICKS: [usize; 2] = [30, 150];
/// Number of ticks in which even an idle container is rechecked.
const IDLE_RECHECK_TICKS: usize = 60;

/// A node that is idle, and one that has been for long.
fn idle_nodes() -> impl Iterator<Item = Node> {
    IDLE_TICKS.into_iter().map(|ticks| {
        let mut node = Node::new(2);
        (0..ticks).for_each(|_| node.tick());
        node
    })
}

/// Usage of all containers since the first tick, microseconds.
fn usage(node: &Node) -> Vec<u64> {
    let usage =
        |row: &snapshot::ContainerRow| (row.user_ns.unwrap() + row.system_ns.unwrap()) / 1000;
    node.latest().containers.iter().map(usage).collect()
}

fn limits(node: &Node) -> Vec<f64> {
    node.latest().containers.iter().map(|row| row.cpu_limit.cores().unwrap()).collect()
}

#[test]
fn activity_in_an_idle_pod_is_counted_in_the_next_tick() {
    for mut node in idle_nodes() {
        assert_eq!(usage(&node), [0; 4]);
        node.run(1);
        node.tick();
        assert_eq!(usage(&node), [0, 1000, 0, 0]);
    }
}

#[test]
fn an_idle_container_is_read_if_its_pod_ran_or_at_its_recheck() {
    for mut node in idle_nodes() {
        node.run_unseen(0);
        node.run_unseen(2);
        // A tick rechecks some of them, but not all.
        node.tick();
        assert!(usage(&node).iter().sum::<u64>() < 3000, "no sign of them");
        node.run(1);
        node.tick();
        assert_eq!(usage(&node)[..2], [1000, 3000], "the pod of the first two counts");
        (0..IDLE_RECHECK_TICKS).for_each(|_| node.tick());
        assert_eq!(usage(&node), [1000, 3000, 2000, 0]);
    }
}

#[test]
fn a_new_pod_quota_shows_on_idle_containers() {
    for mut node in idle_nodes() {
        assert_eq!(limits(&node), [0.2; 4]);
        let pod = node.container(0).parent().unwrap().to_owned();
        fs::write(pod.join("cpu.max"), "10000 100000\n").unwrap();
        node.tick();
        assert_eq!(limits(&node), [0.1, 0.1, 0.2, 0.2]);
        fs::write(node.container(3).join("cpu.max"), "5000 100000\n").unwrap();
        node.tick();
        assert_eq!(limits(&node), [0.1, 0.1, 0.2, 0.05]);
    }
}
