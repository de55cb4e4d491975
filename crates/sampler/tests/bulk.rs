//! Counters of all cgroups in one call replace the reads of `cpu.stat`, and only those of a tick.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use kernel_text::CpuStat;
use sampler::{BulkCounters, BulkSource};
use support::Node;

/// Counters by inode; none while there is an error.
#[derive(Default)]
struct Counters {
    stats: HashMap<u64, CpuStat>,
    error: Option<String>,
    /// Number of cgroups that the sampler does not read.
    others: usize,
    /// Number of collections.
    collected: usize,
}

#[derive(Clone, Default)]
struct Source(Arc<Mutex<Counters>>);

impl BulkCounters for Source {
    fn collect(&mut self) -> Result<usize, String> {
        let mut counters = self.0.lock().unwrap();
        counters.collected += 1;
        let cgroups = counters.stats.len() + counters.others;
        counters.error.clone().map_or(Ok(cgroups), Err)
    }

    fn get(&mut self, inode: u64) -> Option<CpuStat> {
        self.0.lock().unwrap().stats.get(&inode).copied()
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
