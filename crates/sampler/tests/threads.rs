//! Run-queue delay of threads: the part that is contention, and the effect of a failed scan.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sampler::{Sampler, SamplerConfig};
use snapshot::{ContainerRow, Threads};
use support::NoNames;
use tempfile::TempDir;

const POD: &str = "kubepods/burstable/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0005";
const APP: u32 = 1;
const SIDECAR: u32 = 2;
const MS: u64 = 1_000_000;

/// A v2 or v1 node with a pod of two containers, and a `/proc` in which each has one process of two
/// threads.
struct Node {
    root: TempDir,
    sampler: Sampler,
    now: Instant,
    is_v2: bool,
}

impl Node {
    fn new(is_v2: bool) -> Self {
        let root = tempfile::tempdir().unwrap();
        let cgroups = root.path().join("cgroup");
        let hierarchy = if is_v2 { "." } else { "cpu" };
        fs::create_dir_all(cgroups.join(hierarchy).join(POD)).unwrap();
        if is_v2 {
            fs::write(cgroups.join("cgroup.controllers"), "cpu\n").unwrap();
        }
        let config = SamplerConfig {
            kubepods: vec!["kubepods".to_owned()],
            proc_root: root.path().join("proc"),
            sys_root: root.path().into(),
            ..support::config(&cgroups)
        };
        let sampler = Sampler::new(config, Box::new(NoNames::default())).unwrap();
        let node = Self { root, sampler, now: Instant::now(), is_v2 };
        node.set_quota(&node.pod());
        node.throttle(&node.pod(), 0);
        for number in [APP, SIDECAR] {
            fs::create_dir(node.container(number)).unwrap();
            fs::write(node.container(number).join("cgroup.procs"), format!("{}\n", pid(number)))
                .unwrap();
            node.throttle(&node.container(number), 0);
            (0..2).for_each(|thread| node.wait(number, thread, 0));
        }
        node
    }

    fn pod(&self) -> PathBuf {
        self.root.path().join("cgroup").join(if self.is_v2 { "." } else { "cpu" }).join(POD)
    }

    fn container(&self, number: u32) -> PathBuf {
        self.pod().join(format!("{number:064x}"))
    }

    fn set_quota(&self, cgroup: &std::path::Path) {
        if self.is_v2 {
            fs::write(cgroup.join("cpu.max"), "20000 100000\n").unwrap();
        } else {
            fs::write(cgroup.join("cpu.cfs_quota_us"), "20000\n").unwrap();
            fs::write(cgroup.join("cpu.cfs_period_us"), "100000\n").unwrap();
        }
    }

    /// Sets the throttled time of the cgroup's own quota.
    fn throttle(&self, cgroup: &std::path::Path, millis: u64) {
        let stat = match self.is_v2 {
            true => format!(
                "usage_usec {0}\nuser_usec {0}\nsystem_usec 0\nnr_periods {0}\nnr_throttled {0}\nthrottled_usec {1}\n",
                millis,
                millis * 1000
            ),
            false => format!(
                "nr_periods {0}\nnr_throttled {0}\nthrottled_time {1}\n",
                millis,
                millis * MS
            ),
        };
        fs::write(cgroup.join("cpu.stat"), stat).unwrap();
    }

    fn task(&self, number: u32, thread: u32) -> PathBuf {
        self.root.path().join(format!("proc/{0}/task/{1}", pid(number), pid(number) + thread))
    }

    /// Sets the run-queue delay of one of a container's threads.
    fn wait(&self, number: u32, thread: u32, millis: u64) {
        let task = self.task(number, thread);
        fs::create_dir_all(&task).unwrap();
        fs::write(task.join("schedstat"), format!("1 {} 1\n", millis * MS)).unwrap();
        fs::write(task.join("stat"), format!("{} (a) S 1\n", pid(number) + thread)).unwrap();
    }

    /// Ticks until the threads of every container, including idle ones, have been scanned once
    /// more.
    fn scan(&mut self) {
        for _ in 0..125 {
            self.now += Duration::from_secs(1);
            self.sampler.tick(self.now);
        }
    }

    fn row(&self, number: u32) -> ContainerRow {
        self.sampler.published().latest().containers[number as usize - 1].clone()
    }

    /// Contention in milliseconds up to the last scan: (lower, upper). The next scan evaluates it.
    fn bounds(&mut self, number: u32) -> (u64, u64) {
        self.scan();
        let row = self.row(number);
        (row.contention_lower_ns.unwrap() / MS, row.contention_upper_ns.unwrap() / MS)
    }
}

fn pid(container: u32) -> u32 {
    container * 100
}

#[test]
fn upper_bound_holds_for_a_sidecar_beside_its_pods_quota() {
    for is_v2 in [true, false] {
        let mut node = Node::new(is_v2);
        node.scan();
        // The pod's quota throttles the app for 5 s; the sidecar waits for 0.3 s because another
        // pod runs.
        node.throttle(&node.pod(), 5000);
        node.wait(APP, 0, 5000);
        node.wait(SIDECAR, 0, 300);
        node.scan();
        assert_eq!(node.bounds(SIDECAR), (0, 300), "v2: {is_v2}");
        assert_eq!(
            node.bounds(APP),
            (0, 5000),
            "v2: {is_v2}: which of the two the quota held back is not known"
        );
    }
}

#[test]
fn own_throttling_is_in_no_bound_and_ancestors_may_add_to_it() {
    for is_v2 in [true, false] {
        let mut node = Node::new(is_v2);
        node.set_quota(&node.container(APP));
        node.scan();
        // Its own quota throttles the app for 0.4 s, and at other times the pod's quota for 0.6 s.
        node.throttle(&node.container(APP), 400);
        node.throttle(&node.pod(), 600);
        node.wait(APP, 0, 1000);
        node.scan();
        assert_eq!(node.bounds(APP), (0, 600), "v2: {is_v2}");
        node.wait(APP, 0, 1500);
        node.scan();
        assert_eq!(node.bounds(APP), (500, 1100), "v2: {is_v2}: no throttling in this interval");
    }
}

#[test]
fn both_bounds_are_exact_if_each_cgroup_counts_its_throttling() {
    let mut node = Node::new(true);
    let set_local = |node: &Node, number, millis: u64| {
        let text = format!("throttled_usec {}\n", millis * 1000);
        fs::write(node.container(number).join("cpu.stat.local"), text).unwrap();
    };
    [APP, SIDECAR].into_iter().for_each(|number| set_local(&node, number, 0));
    node.scan();
    node.throttle(&node.pod(), 5000);
    set_local(&node, APP, 5000);
    node.wait(APP, 0, 5200);
    node.wait(SIDECAR, 0, 300);
    node.scan();
    assert_eq!((node.bounds(APP), node.bounds(SIDECAR)), ((200, 200), (300, 300)));
}

#[test]
fn the_first_scan_counts_the_waits_of_threads_that_are_younger_than_the_agent() {
    let mut node = Node::new(true);
    node.wait(APP, 0, 7000);
    node.wait(APP, 1, 40);
    let young = pid(APP) + 1;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (fields, start) = ("0 ".repeat(18), (now.tv_sec + 1) * 100);
    let stat = format!("{young} (a) S {fields}{start} 0\n");
    fs::write(node.task(APP, 1).join("stat"), stat).unwrap();
    node.scan();
    assert_eq!(node.row(APP).run_delay_ns, Some(40 * MS));
}

#[test]
fn a_failed_thread_scan_counts_nothing_twice_and_loses_nothing() {
    let mut node = Node::new(true);
    node.wait(APP, 0, 7000);
    node.wait(APP, 1, 4000);
    node.scan();
    assert_eq!(node.row(APP).run_delay_ns, Some(0), "what came before the first scan is history");
    // An error that means neither that the thread is gone nor that it may not be read.
    let schedstat = node.task(APP, 1).join("schedstat");
    let broken = node.task(APP, 1).join("broken");
    fs::rename(&schedstat, &broken).unwrap();
    symlink("schedstat", &schedstat).unwrap();
    node.wait(APP, 0, 7100);
    node.scan();
    assert_eq!(node.row(APP).run_delay_ns, Some(0), "the whole scan is discarded");
    let errors = node.sampler.published().latest().sampler.read_errors.clone();
    assert!(errors.iter().any(|&(reason, count)| reason == "io" && count > 0), "{errors:?}");
    fs::rename(&broken, &schedstat).unwrap();
    node.wait(APP, 1, 4050);
    node.scan();
    assert_eq!(node.row(APP).run_delay_ns, Some(150 * MS), "both threads, since the scan before");
    assert_eq!((node.bounds(APP), node.row(APP).threads), ((150, 150), Threads::Counted(2)));
}

#[test]
fn a_process_that_moves_between_containers_brings_no_waits_along() {
    let mut node = Node::new(true);
    // Less than a scan can find at once, so that nothing else drops it.
    node.wait(APP, 0, 9000);
    let moved = pid(APP);
    let fields = "0 ".repeat(18);
    let stat = format!("{moved} (a) S {fields}100 0\n");
    fs::write(node.task(APP, 0).join("stat"), &stat).unwrap();
    node.scan();
    fs::write(node.container(APP).join("cgroup.procs"), "").unwrap();
    fs::write(node.container(SIDECAR).join("cgroup.procs"), format!("{}\n{moved}\n", pid(SIDECAR)))
        .unwrap();
    node.scan();
    assert_eq!(node.row(SIDECAR).run_delay_ns, Some(0), "its life so far was in another container");
    let wait = |millis: u64| {
        fs::write(node.task(APP, 0).join("schedstat"), format!("1 {} 1\n", millis * MS)).unwrap();
    };
    wait(9101);
    node.scan();
    assert_eq!(node.row(SIDECAR).run_delay_ns, Some(101 * MS));
}

#[test]
fn a_thread_that_ends_or_may_not_be_read_fails_no_scan() {
    let mut node = Node::new(true);
    node.scan();
    fs::remove_file(node.task(APP, 1).join("schedstat")).unwrap();
    node.wait(APP, 0, 60);
    node.scan();
    assert_eq!(node.bounds(APP), (60, 60));
    fs::remove_dir_all(node.task(APP, 1)).unwrap();
    node.wait(APP, 0, 90);
    node.scan();
    assert_eq!((node.bounds(APP), node.row(APP).threads), ((90, 90), Threads::Counted(1)));
}
