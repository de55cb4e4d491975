//! A steady tick allocates nothing: on a directory of files that looks like a v2 node, with this process in a container
//! so that threads are read too.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroupfs::Hierarchy;
use pods::PodIndex;
use sampler::{DescriptorBudget, PodNames, Sampler, SamplerConfig};

struct NoNames(Arc<PodIndex>);

impl PodNames for NoNames {
    fn index(&self) -> Arc<PodIndex> {
        Arc::clone(&self.0)
    }

    fn ask(&self, _: &str, _: &str) {}

    fn may_answer(&self) -> bool {
        false
    }
}

const FILES: &[(&str, &str)] = &[
    (
        "cpu.stat",
        "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\nnr_periods 9\nnr_throttled 3\nthrottled_usec 77\n",
    ),
    ("cpu.stat.local", "throttled_usec 99\n"),
    ("cpu.max", "20000 100000\n"),
    ("cpu.weight", "79\n"),
    (
        "cpu.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n",
    ),
    ("memory.current", "4096\n"),
    ("memory.max", "max\n"),
    ("memory.stat", "anon 1\ninactive_file 96\n"),
    ("memory.numa_stat", "anon N0=1 N1=2\nfile N0=3 N1=4\n"),
    ("cpuset.cpus.effective", "0-3\n"),
];

fn make_cgroup(path: &Path) {
    fs::create_dir_all(path).unwrap();
    for (name, text) in FILES {
        fs::write(path.join(name), text).unwrap();
    }
    fs::write(path.join("cgroup.procs"), "").unwrap();
}

fn make_node(root: &Path) {
    fs::write(root.join("cgroup.controllers"), "cpu cpuset memory\n").unwrap();
    let top = root.join("kubepods");
    make_cgroup(&top);
    make_cgroup(&top.join("burstable"));
    for pod in 0..20 {
        let pod_path = top.join(format!("burstable/pod{pod:08x}-0000-4000-8000-000000000000"));
        make_cgroup(&pod_path);
        for container in 0..2 {
            let path = pod_path.join(format!("{:064x}", pod * 2 + container));
            make_cgroup(&path);
            fs::write(path.join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
        }
    }
}

#[test]
fn a_steady_tick_allocates_nothing() {
    let root = tempfile::tempdir().unwrap();
    make_node(root.path());
    let config = SamplerConfig {
        hierarchy: Hierarchy::detect(root.path()).unwrap(),
        kubepods: Vec::new(),
        proc_root: "/proc".into(),
        sys_root: "/sys".into(),
        interval: Duration::from_secs(1),
        cpu_budget_cores: f64::MAX,
        reconcile_interval: Duration::from_secs(1_000_000),
        descriptors: DescriptorBudget::from_limit(4096),
    };
    let mut sampler = Sampler::new(config, Box::new(NoNames(Arc::default()))).unwrap();
    let published = sampler.published();
    let mut now = Instant::now();
    let mut tick = || {
        now += Duration::from_secs(1);
        sampler.tick(now);
    };
    // Long enough for every container's threads to have been read twice, whatever the budget of a tick allows.
    (0..200).for_each(|_| tick());
    let before = published.latest();
    assert_eq!((before.containers.len(), before.pods.len()), (40, 20));
    assert!(before.containers.iter().all(|row| row.threads.is_some() && row.contention_upper_ns.is_some()));
    drop(before);
    let counted = allocation_counter::measure(|| (0..50).for_each(|_| tick()));
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert_eq!(published.latest().sequence, 250);
}
