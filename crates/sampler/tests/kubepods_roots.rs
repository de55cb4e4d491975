//! The kubelet's root may appear, disappear, and reappear elsewhere while the agent runs.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sampler::{Sampler, SamplerConfig};
use support::NoNames;
use tempfile::TempDir;

const RECONCILE: Duration = Duration::from_secs(30);
const CGROUPFS: &str = "kubepods/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0003";
const SYSTEMD: &str = "kubepods.slice/kubepods-pod8e0d3a0c_5f4b_4f60_9f2a_3d8c1d0c0004.slice";

/// A v2 node without a kubelet.
struct Node {
    root: TempDir,
    sampler: Sampler,
    now: Instant,
}

impl Node {
    fn new(kubepods: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu\n").unwrap();
        let config = SamplerConfig {
            kubepods: kubepods.iter().map(|root| (*root).to_owned()).collect(),
            reconcile_interval: RECONCILE,
            ..support::config(root.path())
        };
        let sampler = Sampler::new(config, Box::new(NoNames::default())).unwrap();
        Self { root, sampler, now: Instant::now() }
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.root.path().join(below)
    }

    /// Creates a container's cgroup and everything above it.
    fn start(&self, pod: &str, leaf: &str) {
        let directory = self.path(pod).join(leaf);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("cpu.stat"), "usage_usec 5\nuser_usec 5\nsystem_usec 0\n")
            .unwrap();
    }

    /// Number of containers after the next tick.
    fn containers(&mut self) -> usize {
        self.now += Duration::from_secs(1);
        self.sampler.tick(self.now);
        self.sampler.published().latest().containers.len()
    }
}

fn id(number: u32) -> String {
    format!("{number:064x}")
}

fn scope(number: u32) -> String {
    format!("cri-containerd-{number:064x}.scope")
}

fn remove(root: &Path) {
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_kubepods_root_that_appears_late_is_found_by_the_next_tick() {
    for named in [&[][..], &["kubepods"]] {
        let mut node = Node::new(named);
        assert_eq!(node.containers(), 0);
        node.start(CGROUPFS, &id(1));
        assert_eq!(node.containers(), 1);
        remove(&node.path("kubepods"));
        assert_eq!(node.containers(), 0);
        node.start(CGROUPFS, &id(2));
        assert_eq!(node.containers(), 1);
        // Removed and recreated between two ticks.
        remove(&node.path("kubepods"));
        node.start(CGROUPFS, &id(3));
        node.start(CGROUPFS, &id(4));
        assert_eq!(node.containers(), 2);
        node.start(CGROUPFS, &id(5));
        assert_eq!(node.containers(), 3);
    }
}

#[test]
fn a_change_of_the_cgroup_driver_is_followed_to_the_new_root() {
    let mut node = Node::new(&[]);
    node.start(CGROUPFS, &id(1));
    assert_eq!(node.containers(), 1);
    remove(&node.path(CGROUPFS));
    assert_eq!(node.containers(), 0);
    node.start(SYSTEMD, &scope(2));
    assert_eq!(node.containers(), 1);
    node.start(CGROUPFS, &id(3));
    assert_eq!(node.containers(), 2);
}

#[test]
fn kubepods_of_another_node_or_program_is_not_read() {
    let mut node = Node::new(&[]);
    node.start(CGROUPFS, &id(1));
    assert_eq!(node.containers(), 1);
    for (number, parent) in
        (2..).zip(["docker/node", "kubepods-bench", "my.slice", "system.slice/k3s.service", "a"])
    {
        node.start(&format!("{parent}/{CGROUPFS}"), &id(number));
    }
    node.start(&format!("{CGROUPFS}/{}/{CGROUPFS}", id(1)), &id(9));
    node.now += RECONCILE;
    assert_eq!(node.containers(), 1);
}

#[test]
fn nested_kubepods_is_read_only_while_it_is_the_only_one() {
    let mut node = Node::new(&[]);
    node.start(&format!("docker/one/kubelet/{CGROUPFS}"), &id(1));
    assert_eq!(node.containers(), 1);
    node.start(&format!("docker/two/kubelet/{CGROUPFS}"), &id(2));
    node.now += RECONCILE;
    assert_eq!(node.containers(), 0, "either may be another node's");
    remove(&node.path("docker/one"));
    node.now += RECONCILE;
    assert_eq!(node.containers(), 1);
}

#[test]
fn a_named_root_excludes_all_others() {
    let mut node = Node::new(&["kubepods"]);
    node.start(CGROUPFS, &id(1));
    node.start(SYSTEMD, &scope(2));
    assert_eq!(node.containers(), 1);
}
