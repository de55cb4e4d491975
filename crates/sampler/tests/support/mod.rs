//! A directory of files that looks like a v2 node, with this process in every container so that
//! threads are read too.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroupfs::Hierarchy;
use sampler::{DescriptorBudget, ExtraFiles, Sampler, SamplerConfig};
use snapshot::{NodeSnapshot, Published};
use tempfile::TempDir;
pub(crate) use testkit::NoNames;

/// Configuration of a sampler of the cgroups below `root`, once per second. The node's `/proc` is
/// `proc` there, and its `/sys` is `root`. Nothing is found by walks later.
pub(crate) fn config(root: &Path) -> SamplerConfig {
    SamplerConfig {
        hierarchy: Hierarchy::detect(root).unwrap(),
        kubepods: Vec::new(),
        proc_root: root.join("proc"),
        sys_root: root.into(),
        interval: Duration::from_secs(1),
        cpu_budget_cores: f64::MAX,
        reconcile_interval: Duration::from_secs(1_000_000),
        descriptors: DescriptorBudget::from_limit(4096),
        pod_labels: Vec::new(),
        extra: ExtraFiles::default(),
    }
}

const FILES: &[(&str, &str)] = &[
    ("cpu.stat.local", "throttled_usec 99\n"),
    ("cpu.max", "20000 100000\n"),
    ("cpu.weight", "79\n"),
    (
        "cpu.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n",
    ),
    ("memory.current", "4096\n"),
    ("memory.max", "max\n"),
    ("memory.stat", "anon 1\nshmem 2\ninactive_file 96\n"),
    ("memory.numa_stat", "anon N0=1 N1=2\nfile N0=3 N1=4\n"),
    ("cpuset.cpus.effective", "0-3\n"),
];

/// Text of constant length, so that it can be overwritten in place.
fn cpu_stat(usage_usec: u64, periods: u64) -> String {
    let throttling = format!("nr_periods {periods:06}\nnr_throttled 3\nthrottled_usec 77\n");
    format!("usage_usec {usage_usec:010}\nuser_usec {usage_usec:010}\nsystem_usec 0\n{throttling}")
}

fn make_cgroup(path: &Path) {
    fs::create_dir_all(path).unwrap();
    for (name, text) in FILES {
        fs::write(path.join(name), text).unwrap();
    }
    fs::write(path.join("cpu.stat"), cpu_stat(3000, 9)).unwrap();
    fs::write(path.join("cgroup.procs"), "").unwrap();
}

/// A node and its sampler, which runs in simulated time.
pub(crate) struct Node {
    root: TempDir,
    pub(crate) sampler: Sampler,
    published: Published<NodeSnapshot>,
    now: Instant,
    interval: Duration,
    usage_usec: u64,
    periods: u64,
}

impl Node {
    /// Creates `pods` pods with two containers each, sampled once per second.
    pub(crate) fn new(pods: usize) -> Self {
        Self::with(pods, DescriptorBudget::from_limit(4096), Duration::from_secs(1))
    }

    /// The same with this descriptor budget and interval.
    pub(crate) fn with(pods: usize, descriptors: DescriptorBudget, interval: Duration) -> Self {
        Self::start(Self::make_root(pods), descriptors, interval)
    }

    /// A sampler that samples the tree of [`Self::make_root`] once per second.
    pub(crate) fn on(root: TempDir) -> Self {
        Self::start(root, DescriptorBudget::from_limit(4096), Duration::from_secs(1))
    }

    /// Creates the cgroups of `pods` pods with two containers each.
    pub(crate) fn make_root(pods: usize) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu cpuset memory\n").unwrap();
        make_cgroup(&root.path().join("kubepods"));
        make_cgroup(&root.path().join("kubepods/burstable"));
        for pod in 0..pods {
            make_cgroup(container(root.path(), 2 * pod).parent().unwrap());
            for path in [container(root.path(), 2 * pod), container(root.path(), 2 * pod + 1)] {
                make_cgroup(&path);
                fs::write(path.join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
            }
        }
        root
    }

    fn start(root: TempDir, descriptors: DescriptorBudget, interval: Duration) -> Self {
        let config = SamplerConfig {
            proc_root: "/proc".into(),
            sys_root: "/sys".into(),
            interval,
            descriptors,
            ..config(root.path())
        };
        let sampler = Sampler::new(config, Box::new(NoNames::default())).unwrap();
        let (published, now) = (sampler.published(), Instant::now());
        Self { root, published, sampler, now, interval, usage_usec: 3000, periods: 9 }
    }

    /// Runs this container, and thus its pod, for a while, within a period of its quota.
    pub(crate) fn run(&mut self, number: usize) {
        self.run_unseen(number);
        let pod = self.container(number).parent().unwrap().to_owned();
        self.count(&pod, "cpu.stat", &cpu_stat(self.usage_usec, self.periods));
    }

    /// Runs a container without counting it in its pod's file, which no kernel does.
    pub(crate) fn run_unseen(&mut self, number: usize) {
        self.usage_usec += 1000;
        self.periods += 1;
        self.write(number, "cpu.stat", &cpu_stat(self.usage_usec, self.periods));
    }

    /// Writes to one of a container's files like the kernel.
    pub(crate) fn write(&self, number: usize, file: &str, text: &str) {
        self.count(&self.container(number), file, text);
    }

    /// Writes through a hard link that is not watched: a write by the kernel causes no inotify
    /// event.
    fn count(&self, cgroup: &Path, file: &str, text: &str) {
        let path = cgroup.join(file);
        let unwatched = self
            .root
            .path()
            .join(path.strip_prefix(self.root.path()).unwrap().to_str().unwrap().replace('/', "-"));
        if !unwatched.exists() {
            fs::hard_link(&path, &unwatched).unwrap();
        }
        fs::File::options()
            .write(true)
            .open(unwatched)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    /// A container's directory; the parent is its pod's.
    pub(crate) fn container(&self, number: usize) -> PathBuf {
        container(self.root.path(), number)
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn tick(&mut self) {
        self.tick_late(Duration::ZERO);
    }

    /// Runs the next tick, delayed by `late`; the one after it is on time again.
    pub(crate) fn tick_late(&mut self, late: Duration) {
        self.now += self.interval;
        self.sampler.tick(self.now + late);
    }

    pub(crate) fn latest(&self) -> Arc<NodeSnapshot> {
        self.published.latest()
    }
}

fn container(root: &Path, number: usize) -> PathBuf {
    let pod = number / 2;
    root.join(format!("kubepods/burstable/pod{pod:08x}-0000-4000-8000-000000000000/{number:064x}"))
}
