//! Counters of all cgroups in one call replace the reads of `cpu.stat`, and only those of a tick.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use kernel_text::{Bandwidth, CpuStat, Quota};
use sampler::{BulkCounters, BulkSource, Sampler};
use support::{NoNames, Node};
use tempfile::TempDir;

/// Counters by inode; none while there is an error.
#[derive(Default)]
struct Counters {
    stats: HashMap<u64, CpuStat>,
    /// Quota per 100 ms, microseconds, if it is not that of the files.
    quota_usec: Option<u64>,
    /// Cgroup v1: usage by inode in the hierarchy with cpuacct.
    usages: HashMap<u64, u64>,
    error: Option<String>,
    /// Number of cgroups that the sampler does not read.
    others: usize,
    /// Number of collections.
    collected: usize,
}

#[derive(Clone, Default)]
struct Source(Arc<Mutex<Counters>>);

impl BulkCounters for Source {
    fn collect(&mut self, _: Option<u32>) -> Result<usize, String> {
        let mut counters = self.0.lock().unwrap();
        counters.collected += 1;
        let cgroups = counters.stats.len() + counters.others;
        counters.error.clone().map_or(Ok(cgroups), Err)
    }

    fn get(&mut self, inode: u64) -> Option<(CpuStat, Bandwidth)> {
        let counters = self.0.lock().unwrap();
        let quota = Quota::Usec(counters.quota_usec.unwrap_or(20_000));
        let stat = counters.stats.get(&inode).copied()?;
        Some((stat, Bandwidth { quota, period_usec: 100_000 }))
    }

    fn collect_acct_usage(&mut self, _: Option<u32>) -> Option<usize> {
        let usages = self.0.lock().unwrap().usages.len();
        (usages > 0).then_some(usages)
    }

    fn acct_usage_ns(&mut self, inode: u64) -> Option<u64> {
        self.0.lock().unwrap().usages.get(&inode).copied()
    }
}

impl Source {
    /// Counts this usage of a container and of its pod.
    fn count(&self, container: &Path, usage_ns: u64) {
        for cgroup in [container, container.parent().unwrap()] {
            let stat = CpuStat {
                usage_ns: Some(usage_ns),
                user_ns: Some(usage_ns),
                system_ns: Some(0),
                nr_periods: Some(20),
                nr_throttled: Some(3),
                throttled_ns: Some(77_000),
                ..CpuStat::default()
            };
            self.0.lock().unwrap().stats.insert(cgroupfs::inode(cgroup).unwrap(), stat);
        }
    }
}

/// A node that has sampled its files, and the end at which a source arrives.
fn node() -> (Node, mpsc::Sender<BulkSource>) {
    let mut node = Node::new(1);
    let (sender, arriving) = mpsc::channel();
    node.sampler.collect_from(arriving);
    (0..5).for_each(|_| node.tick());
    (node, sender)
}

/// User time of the first container in its files' and the source's counters.
fn user_ns(node: &Node) -> u64 {
    node.latest().containers[0].user_ns.unwrap()
}

/// Whether the feature is in use, and why not; `None` before this is known.
fn feature(node: &Node) -> Option<(bool, String)> {
    let latest = node.latest();
    let state = latest.node.features.iter().find(|state| state.feature == "bpf_counters");
    state.map(|state| (state.enabled, state.reason.clone()))
}

#[test]
fn collected_counters_are_used_once_their_source_has_arrived() {
    let (mut node, sender) = node();
    assert_eq!((user_ns(&node), feature(&node)), (0, None));
    let source = Source::default();
    source.count(&node.container(0), 10_000_000);
    sender.send(Ok(Box::new(source))).unwrap();
    node.tick();
    assert_eq!(feature(&node), Some((true, String::new())));
    assert_eq!(user_ns(&node), 7_000_000, "the file says 3 ms");
    assert_eq!(node.latest().containers[0].cfs.unwrap().periods, 11);
    // Not known to the source.
    node.run(1);
    node.tick();
    assert_eq!(node.latest().containers[1].user_ns, Some(1_000_000));
}

#[test]
fn a_collected_quota_holds_at_once() {
    let (mut node, sender) = node();
    let source = Source::default();
    source.count(&node.container(0), 10_000_000);
    sender.send(Ok(Box::new(source.clone()))).unwrap();
    let limits = |node: &Node| [0, 1].map(|at| node.latest().containers[at].cpu_limit.cores());
    let mut tick = |quota_usec| {
        source.0.lock().unwrap().quota_usec = Some(quota_usec);
        node.run(0);
        node.tick();
        limits(&node)
    };
    assert_eq!(tick(20_000), [Some(0.2); 2]);
    // Of the pod and its first container; the files still say 20 ms.
    assert_eq!(tick(5_000), [Some(0.05); 2]);
    assert_eq!(tick(10_000), [Some(0.1); 2]);
}

#[test]
fn counters_are_collected_while_many_cgroups_are_read() {
    let (mut node, sender) = node();
    // Until then new cgroups are read in each tick.
    (0..5).for_each(|_| node.tick());
    let source = Source::default();
    source.0.lock().unwrap().others = 18;
    sender.send(Ok(Box::new(source.clone()))).unwrap();
    let mut collected_in = |ticks, runs: bool| {
        for _ in 0..ticks {
            if runs {
                node.run(0);
            }
            node.tick();
        }
        std::mem::take(&mut source.0.lock().unwrap().collected)
    };
    assert_eq!(collected_in(1, false), 1, "how many there are is not known");
    assert_eq!(collected_in(20, false), 0, "of the pod and two above it");
    // The two containers are read as well, which the first tick shows.
    assert_eq!(collected_in(21, true), 20);
}

#[test]
fn without_collected_counters_the_files_are_read() {
    let (mut node, sender) = node();
    let source = Source::default();
    source.count(&node.container(0), 3_500_000);
    sender.send(Ok(Box::new(source.clone()))).unwrap();
    node.tick();
    assert_eq!(user_ns(&node), 500_000);
    source.0.lock().unwrap().error = Some("too many cgroups".to_owned());
    node.run(0);
    node.tick();
    assert_eq!(user_ns(&node), 1_000_000);
    assert_eq!(feature(&node), Some((false, "too many cgroups".to_owned())));
}

#[test]
fn files_of_collected_counters_do_not_stay_open() {
    let (mut node, sender) = node();
    let source = Source::default();
    (0..2).for_each(|container| source.count(&node.container(container), 1_000_000));
    let kept = |node: &Node| {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap();
        let files = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        let pod = node.container(0).parent().unwrap().to_owned();
        files.filter(|file| file.starts_with(&pod) && file.ends_with("cpu.stat")).count()
    };
    let run = |node: &mut Node, ticks| {
        for _ in 0..ticks {
            (0..2).for_each(|container| node.run(container));
            node.tick();
        }
    };
    run(&mut node, 61);
    assert_eq!(kept(&node), 3, "of the pod and its containers");
    sender.send(Ok(Box::new(source.clone()))).unwrap();
    run(&mut node, 59);
    assert_eq!(kept(&node), 3, "not for long");
    run(&mut node, 2);
    assert_eq!(kept(&node), 0);
    source.0.lock().unwrap().error = Some("too many cgroups".to_owned());
    run(&mut node, 2);
    assert_eq!(kept(&node), 3);
}

#[test]
fn a_source_that_cannot_be_loaded_is_reported() {
    let (mut node, sender) = node();
    sender.send(Err("not_permitted".to_owned())).unwrap();
    node.run(0);
    node.tick();
    assert_eq!(user_ns(&node), 1_000_000);
    assert_eq!(feature(&node), Some((false, "not_permitted".to_owned())));
}

const POD: &str = "kubepods/burstable/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0003";
const CONTAINER: &str = "7a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

/// A node with cgroup v1, one container and a quota, and the directories of the container in the
/// hierarchies of cpu and cpuacct.
fn v1() -> (TempDir, [PathBuf; 2]) {
    let root = tempfile::tempdir().unwrap();
    let pod = ["cpu", "cpuacct"].map(|controller| root.path().join(controller).join(POD));
    let [cpu, cpuacct] = &pod;
    for [cpu, cpuacct] in
        [[cpu.clone(), cpuacct.clone()], [cpu.join(CONTAINER), cpuacct.join(CONTAINER)]]
    {
        fs::create_dir_all(&cpu).unwrap();
        fs::create_dir_all(&cpuacct).unwrap();
        fs::write(cpu.join("cpu.cfs_quota_us"), "20000\n").unwrap();
        fs::write(cpu.join("cpu.cfs_period_us"), "100000\n").unwrap();
        fs::write(cpu.join("cpu.stat"), "nr_periods 5\nnr_throttled 0\nthrottled_time 0\n")
            .unwrap();
        fs::write(cpuacct.join("cpuacct.usage"), "1000\n").unwrap();
        fs::write(cpuacct.join("cpuacct.stat"), "user 0\nsystem 0\n").unwrap();
    }
    (root, pod.map(|pod| pod.join(CONTAINER)))
}

#[test]
fn on_v1_the_collected_usage_replaces_its_file() {
    let (root, [cpu, cpuacct]) = v1();
    let mut sampler =
        Sampler::new(support::config(root.path()), Box::new(NoNames::default())).unwrap();
    let (sender, arriving) = mpsc::channel();
    sampler.collect_from(arriving);
    let source = Source::default();
    let begun = Instant::now();
    let mut ticks = (0..).map(|second| begun + Duration::from_secs(second));
    let mut tick = |ticks_of: usize| {
        ticks.by_ref().take(ticks_of).for_each(|now| sampler.tick(now));
        sampler.published().latest().containers[0].usage_ns.unwrap()
    };
    let count = |usage_ns| {
        source.count(&cpu, 0);
        let mut counters = source.0.lock().unwrap();
        for cgroup in [&*cpuacct, cpuacct.parent().unwrap()] {
            counters.usages.insert(cgroupfs::inode(cgroup).unwrap(), usage_ns);
        }
    };
    let kept = || {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap();
        let files = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        files
            .filter(|file| file.starts_with(root.path()) && file.ends_with("cpuacct.usage"))
            .count()
    };
    assert_eq!((tick(12), kept()), (0, 2), "of the pod and its container");
    count(1500);
    sender.send(Ok(Box::new(source.clone()))).unwrap();
    assert_eq!(tick(1), 500);
    (0..62).for_each(|second| {
        count(2000 + second);
        assert_eq!(tick(1), 1000 + second);
    });
    assert_eq!(kept(), 0);
    // Not known to the source.
    source.0.lock().unwrap().usages.clear();
    fs::write(cpuacct.join("cpuacct.usage"), "9000\n").unwrap();
    assert_eq!(tick(1), 8000);
}
