//! The limit is the lowest quota over a container and its ancestors.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;
use std::time::{Duration, Instant};

use sampler::Sampler;
use snapshot::{ContainerRow, Limit};
use support::{NoNames, Node};

const POD: &str = "kubelet/kubepods/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0003";

/// `cpu.stat` up to the throttled time.
const STAT: &str =
    "usage_usec 9\nuser_usec 9\nsystem_usec 0\nnr_periods 5\nnr_throttled 2\nthrottled_usec";

/// Limit in cores, and the period of the limiting quota.
fn limit(row: &ContainerRow) -> (Option<f64>, Option<u64>) {
    (row.cpu_limit.cores(), row.cpu_limit.limited().map(|limit| limit.period_usec))
}

/// The same for each container.
fn limits(node: &Node) -> Vec<(Option<f64>, Option<u64>)> {
    node.latest().containers.iter().map(limit).collect()
}

#[test]
fn the_period_is_that_of_the_lowest_quota() {
    let mut node = Node::new(2);
    let pod = |number| node.container(number).parent().unwrap().to_owned();
    // Lower than its containers', equal to one of them, and lower than another's.
    fs::write(pod(0).join("cpu.max"), "1000 10000\n").unwrap();
    fs::write(pod(2).join("cpu.max"), "2000 10000\n").unwrap();
    fs::write(node.container(3).join("cpu.max"), "max 50000\n").unwrap();
    node.tick();
    let expected = [(0.1, 10_000), (0.1, 10_000), (0.2, 100_000), (0.2, 10_000)];
    assert_eq!(limits(&node), expected.map(|(cores, usec)| (Some(cores), Some(usec))));
}

#[test]
fn an_unreadable_memory_limit_is_neither_absent_nor_unlimited() {
    let root = Node::make_root(2);
    let mut node = Node::on(root);
    for (number, text) in [(1, "1048576\n"), (2, "not a number\n")] {
        fs::write(node.container(number).join("memory.max"), text).unwrap();
    }
    fs::remove_file(node.container(3).join("memory.max")).unwrap();
    (0..3).for_each(|_| node.tick());
    let found: Vec<_> = node.latest().containers.iter().map(|row| row.memory_limit_bytes).collect();
    assert_eq!(found, [Limit::Unlimited, Limit::Limited(1 << 20), Limit::NotRead, Limit::Absent]);
}

/// A node in a container, as with kind: a quota on the cgroup above the kubelet's, none on the
/// mount's root.
fn nested() -> (tempfile::TempDir, Sampler) {
    let root = tempfile::tempdir().unwrap();
    let write = |directory: &str, files: &[(&str, &str)]| {
        fs::create_dir_all(root.path().join(directory)).unwrap();
        files.iter().for_each(|(name, text)| {
            fs::write(root.path().join(directory).join(name), text).unwrap();
        });
    };
    write("", &[("cgroup.controllers", "cpu\n")]);
    write("docker/0123", &[("cpu.max", "150000 50000\n"), ("cpu.stat", &format!("{STAT} 7000\n"))]);
    write(
        &format!("docker/0123/{POD}"),
        &[("cpu.stat", "usage_usec 9\nuser_usec 9\nsystem_usec 0\n")],
    );
    let container = format!("docker/0123/{POD}/{:064x}", 1);
    write(&container, &[("cpu.max", "400000 100000\n"), ("cpu.stat", &format!("{STAT} 0\n"))]);
    let config = support::config(root.path());
    (root, Sampler::new(config, Box::new(NoNames::default())).unwrap())
}

#[test]
fn a_quota_above_kubepods_limits_and_throttles_as_an_ancestor() {
    for has_local in [false, true] {
        let (root, mut sampler) = nested();
        let container = root.path().join(format!("docker/0123/{POD}/{:064x}", 1));
        let throttle = |usec: u64| {
            let above = root.path().join("docker/0123/cpu.stat");
            fs::write(above, format!("{STAT} {usec}\n")).unwrap();
            if has_local {
                let local = format!("throttled_usec {usec}\n");
                fs::write(container.join("cpu.stat.local"), local).unwrap();
            }
        };
        throttle(7000);
        let start = Instant::now();
        let mut row = |second| {
            sampler.tick(start + Duration::from_secs(second));
            let latest = sampler.published().latest();
            let row = &latest.containers[0];
            (limit(row), row.throttled_ancestor_ns)
        };
        assert_eq!(
            row(0),
            ((Some(3.0), Some(50_000)), Some(0)),
            "cpu.stat.local: {has_local}; throttling before the start does not count"
        );
        throttle(9000);
        // The mount's root is visible if the node has its own cgroup namespace.
        fs::write(root.path().join("cpu.max"), "100000 100000\n").unwrap();
        assert_eq!(
            row(1),
            ((Some(1.0), Some(100_000)), Some(2_000_000)),
            "a quota that comes later"
        );
        fs::write(root.path().join("docker/0123/cpu.max"), "25000 50000\n").unwrap();
        for second in 2..20 {
            assert_eq!(row(second).0.0, Some(0.5), "one that is lowered");
        }
    }
}
