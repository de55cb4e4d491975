//! With fewer descriptors than files, the other files are opened for each read: slower, but with
//! the same result.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use sampler::DescriptorBudget;
use support::Node;

const PODS: usize = 3;
/// Files that stay open of a container that runs: its counters and slow files, and not its settings,
/// whose writes are reported.
const OF_CONTAINER: usize = 7;
/// Those of all cgroups: two of each above the pods, cpu.stat of a pod.
const FILES: usize = 2 * 2 + PODS + OF_CONTAINER * 2 * PODS;

/// Kernel files that this process holds open below the node's directory.
fn kept(node: &Node) -> usize {
    let links = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.filter(|target: &PathBuf| target.starts_with(node.root())).count()
}

/// State of the node after each of 30 ticks in which one container runs.
fn seen(most: u64) -> (Vec<String>, usize, u64, Option<String>) {
    let mut node =
        Node::with(PODS, DescriptorBudget::from_limit(4096).at_most(most), Duration::from_secs(1));
    let rows = (0..30).map(|_| {
        node.run(1);
        node.tick();
        let latest = node.latest();
        let row = |row: &snapshot::ContainerRow| {
            let cfs = row.cfs.map(|cfs| (cfs.periods, cfs.throttled_periods, cfs.throttled_ns));
            let memory = (row.memory_working_set_bytes, &row.numa_memory, row.pressure_waiting_ns);
            format!("{:?} {cfs:?} {memory:?} {:?} {:?}", row.usage_ns, row.bandwidth, row.weight)
        };
        latest.containers.iter().map(row).collect::<Vec<_>>().join("\n")
    });
    let rows = rows.collect();
    let latest = node.latest();
    let feature =
        latest.node.features.iter().find(|feature| feature.feature == "kept_descriptors").unwrap();
    let reason = (!feature.enabled).then(|| feature.reason.clone());
    (rows, kept(&node), latest.sampler.unkept_cgroups, reason)
}

#[test]
fn rows_do_not_depend_on_the_number_of_open_files() {
    let (plenty, all, unkept, reason) = seen(4096);
    assert_eq!((all, unkept, reason), (FILES, 0, None));
    assert!(plenty[29] != plenty[0], "the running container counts: {plenty:?}");
    // All counters fit, then only some of the counters, then none.
    for most in [FILES as u64 - 1, 10, 0] {
        let (rows, kept, unkept, reason) = seen(most);
        assert_eq!(rows, plenty, "{most} descriptors");
        assert!(kept as u64 <= most && (kept > 0) == (most > 0), "{kept} are kept of {most}");
        let containers_and_others = 2 * PODS as u64..=3 * PODS as u64 + 2;
        assert!(containers_and_others.contains(&unkept), "{unkept} cgroups, {most} descriptors");
        assert!(reason.unwrap().contains("--max-open-files"));
    }
}

/// Ticks after which the files of an idle cgroup are closed, and each is rechecked.
const CLOSED_TICKS: usize = 150;

#[test]
fn idle_containers_hold_no_descriptors() {
    let mut node = Node::new(PODS);
    let run = |node: &mut Node, number, ticks| {
        for _ in 0..ticks {
            node.run(number);
            node.tick();
        }
    };
    run(&mut node, 0, 1);
    assert_eq!(kept(&node), FILES);
    run(&mut node, 0, CLOSED_TICKS);
    // Two cgroups above, the running container and its pod, and cpu.stat of the container next to
    // it and of the other pods.
    assert_eq!(kept(&node), 2 * 2 + OF_CONTAINER + 1 + 1 + (PODS - 1));
    assert_eq!(node.latest().sampler.unkept_cgroups, 0, "descriptors suffice");

    let usage = |node: &Node| node.latest().containers.iter().map(|row| row.usage_ns).collect();
    let before: Vec<_> = usage(&node);
    node.write(3, "memory.current", "8192\n");
    run(&mut node, 2, 1);
    let after: Vec<_> = usage(&node);
    assert!(after[2] > before[2] && after[3] == before[3], "{before:?} {after:?}");
    run(&mut node, 2, CLOSED_TICKS);
    // The same with another container.
    assert_eq!(kept(&node), 2 * 2 + OF_CONTAINER + 1 + 1 + (PODS - 1));
    assert_eq!(node.latest().containers[3].memory_working_set_bytes, Some(8096), "rechecked");
}

#[test]
fn a_container_stays_when_a_controller_is_disabled() {
    let descriptors = DescriptorBudget::from_limit(4096).at_most(0);
    let mut node = Node::with(1, descriptors, Duration::from_secs(1));
    let usage_ns = |node: &mut Node| {
        node.run(0);
        node.tick();
        let latest = node.latest();
        latest.containers.iter().map(|row| row.usage_ns).collect::<Vec<_>>()
    };
    let before = usage_ns(&mut node);
    let container = node.container(0);
    for cgroup in [container.parent().unwrap(), &container] {
        let file = cgroup.join("cpu.max");
        fs::write(&file, "max 100000\n").unwrap();
        fs::remove_file(&file).unwrap();
    }
    // A tick in which a file has vanished counts nothing.
    usage_ns(&mut node);
    let after = usage_ns(&mut node);
    assert!(before.len() == 2 && before[0] < after[0], "{before:?} {after:?}");
}
