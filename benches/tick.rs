//! Cost of one tick on real cgroups of this machine, compared with bare preads of the same files.
//! Needs root.
//!
//! At 200, 1,000, 5,000 and 6,600 container cgroups, two per pod and both with quotas as the
//! kubelet sets them (10,000 cgroups in the last case, pods included):
//! - `bare`: one `pread` of every file that a tick reads when something has run everywhere, without
//!   parsing: all counters of containers and pods, and the settings and slow files of one cgroup in
//!   ten. Reads at most 400 containers, to leave descriptors to the sampler;
//! - `running`: the sampler's whole tick: events, names, reads, counting, settings and slow files
//!   in turn, publishing. Each container has a process; before each tick, and before `bare`, all of
//!   them run briefly. The scan of threads, which `bare` has not, is part of the tick, and of its
//!   allocations. Up to 1,000 containers;
//! - `still`: the same when nothing runs and no container has a process: the tick skips every file
//!   that cannot have changed.
//!
//! Printed: nanoseconds per container cgroup, the ratio to `bare` in the same rounds, allocations
//! of a steady tick, and the resident memory per container.

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use cgroupfs::{Hierarchy, KeptFile, raise_descriptor_limit};
use kernel_text::CgroupVersion;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use sampler::{DescriptorBudget, ExtraFiles, Sampler, SamplerConfig};
use testkit::{Cgroup, NoNames, OwnedCgroup};

use support::{Case, interleaved};

const PERIOD_USEC: u64 = 100_000;

/// A kubepods tree; removed when dropped.
struct Tree {
    top: OwnedCgroup,
    pods: Vec<Cgroup>,
    /// Two per pod, in the order of the pods.
    containers: Vec<Cgroup>,
}

impl Tree {
    fn new(containers: usize) -> Self {
        let top = OwnedCgroup::create(format!("cpuwarden-bench-{}", std::process::id()));
        let level = top.child("kubepods").child("burstable");
        let mut tree = Self { top, pods: Vec::new(), containers: Vec::new() };
        for pod in 0..containers / 2 {
            let cgroup = level.child(&format!("pod{pod:08x}-0000-4000-8000-000000000000"));
            cgroup.set_quota_usec(40_000, PERIOD_USEC);
            for container in [pod * 2, pod * 2 + 1] {
                let container = cgroup.child(&format!("{container:064x}"));
                container.set_quota_usec(20_000, PERIOD_USEC);
                tree.containers.push(container);
            }
            tree.pods.push(cgroup);
        }
        tree
    }

    fn kubepods(&self) -> String {
        self.top.path().join("kubepods").display().to_string()
    }
}

/// The files that a tick reads: the counters of every tick, and the settings and slow files that
/// are read in turn.
struct Bare {
    hot: Vec<KeptFile>,
    in_turn: Vec<KeptFile>,
}

/// Number of containers whose files the bare case reads: enough to exceed the caches, few enough to
/// leave descriptors.
const BARE_CONTAINERS: usize = 400;

/// Files by mount and name.
type Reads<'a> = Vec<(&'a PathBuf, &'a str)>;

impl Bare {
    fn open(hierarchy: &Hierarchy, tree: &Tree, containers: usize) -> Self {
        let Hierarchy { cpu, cpuacct, memory, cpuset, version, .. } = hierarchy;
        let acct = cpuacct.as_ref().unwrap_or(cpu);
        let memory = memory.as_ref().unwrap_or(cpu);
        let cpuset = cpuset.as_ref().unwrap_or(cpu);
        // No cpuacct.stat and no cpu.stat.local: those are read only after 10 ms of CPU time, and
        // after throttling.
        let stat = (cpu, "cpu.stat");
        let (settings, of_pod, hot, slow): (Reads<'_>, Reads<'_>, Reads<'_>, Reads<'_>) =
            match version {
                CgroupVersion::V1 => (
                    vec![(cpu, "cpu.cfs_quota_us"), (cpu, "cpu.cfs_period_us")],
                    vec![(acct, "cpuacct.usage"), stat],
                    vec![(acct, "cpuacct.usage"), stat],
                    [
                        (cpu, "cpu.shares"),
                        (memory, "memory.usage_in_bytes"),
                        (memory, "memory.limit_in_bytes"),
                        (memory, "memory.stat"),
                        (memory, "memory.numa_stat"),
                        (cpuset, "cpuset.effective_cpus"),
                    ]
                    .to_vec(),
                ),
                CgroupVersion::V2 => (
                    vec![(cpu, "cpu.max")],
                    vec![stat],
                    vec![stat],
                    [
                        "cpu.weight",
                        "cpu.pressure",
                        "memory.current",
                        "memory.max",
                        "memory.stat",
                        "memory.numa_stat",
                        "cpuset.cpus.effective",
                    ]
                    .map(|name| (cpu, name))
                    .to_vec(),
                ),
            };
        let mut bare = Self { hot: Vec::new(), in_turn: Vec::new() };
        for pod in &tree.pods[..containers / 2] {
            open_all(pod, &of_pod, &mut bare.hot);
            open_all(pod, &settings, &mut bare.in_turn);
        }
        for container in &tree.containers[..containers] {
            open_all(container, &hot, &mut bare.hot);
            open_all(container, &settings, &mut bare.in_turn);
            open_all(container, &slow, &mut bare.in_turn);
        }
        bare
    }

    /// Reads the files of one tick: all counters, and a tenth of the rest.
    fn read(&self, turn: usize, buffer: &mut Vec<u8>) {
        let tenth = self.in_turn.len() / 10;
        let in_turn = self.in_turn.iter().cycle().skip(turn % 10 * tenth).take(tenth);
        for file in self.hot.iter().chain(in_turn) {
            std::hint::black_box(file.read(buffer).map(<[u8]>::len).unwrap_or_default());
        }
    }
}

fn open_all(cgroup: &Cgroup, wanted: &[(&PathBuf, &str)], into: &mut Vec<KeptFile>) {
    into.extend(wanted.iter().filter_map(|(mount, name)| {
        KeptFile::open(&mount.join(cgroup.path()), name).expect("open")
    }));
}

/// One sleeping process per container, which runs briefly when it gets a signal.
struct Residents(Vec<Child>);

impl Residents {
    fn start(tree: &Tree) -> Self {
        let mut residents = Self(Vec::new());
        for container in &tree.containers {
            let child = Command::new("sleep").arg("infinity").spawn().expect("sleep can be run");
            container.add_process(child.id());
            residents.0.push(child);
        }
        residents
    }

    /// Makes every process run: each stops and continues.
    fn wake(&self) {
        for (signal, reported) in
            [(Signal::STOP, WaitOptions::UNTRACED), (Signal::CONT, WaitOptions::CONTINUED)]
        {
            let pids = || self.0.iter().map(Pid::from_child);
            pids().for_each(|pid| {
                kill_process(pid, signal).expect("the process runs until the end of the case");
            });
            for pid in pids() {
                waitpid(Some(pid), reported).expect("it is a child of this process");
            }
        }
    }
}

impl Drop for Residents {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 =
        text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("statm has two numbers");
    pages * 4096
}

fn measure(hierarchy: &Hierarchy, containers: usize, limit: u64, is_running: bool) {
    let tree = Tree::new(containers);
    let before = resident_bytes();
    let config = SamplerConfig {
        hierarchy: hierarchy.clone(),
        kubepods: vec![tree.kubepods()],
        proc_root: "/proc".into(),
        sys_root: "/sys".into(),
        interval: Duration::from_secs(1),
        cpu_budget_cores: f64::MAX,
        reconcile_interval: Duration::from_secs(3600),
        descriptors: DescriptorBudget::from_limit(limit - 12 * BARE_CONTAINERS as u64),
        pod_labels: Vec::new(),
        extra: ExtraFiles::default(),
    };
    let residents = is_running.then(|| Residents::start(&tree));
    let mut sampler = Sampler::new(config, Box::new(NoNames::default())).expect("epoll");
    // Reach a steady state: new cgroups are read more often, every slow file has been read once,
    // the threads of running containers have been scanned, which a tick does for only a few of
    // them, and idle cgroups have been idle for a while.
    let wake = || residents.iter().for_each(Residents::wake);
    let mut now = Instant::now();
    for _ in 0..if is_running { 200 } else { 20 } {
        wake();
        sampler.tick(now);
        now += Duration::from_secs(1);
    }
    let each = resident_bytes().saturating_sub(before) / containers as u64;
    let bare_containers = containers.min(BARE_CONTAINERS);
    let files = Bare::open(hierarchy, &tree, bare_containers);
    let mut buffer = vec![0; 16 * 1024];
    let mut turn = 0;
    let bare = Case::new("bare", || {
        turn += 1;
        files.read(turn, &mut buffer);
    });
    let tick = Case::new(if is_running { "running" } else { "still" }, || {
        now += Duration::from_secs(1);
        sampler.tick(now);
    });
    let measured = interleaved(vec![bare.after(wake), tick.after(wake)]);
    let scale = containers as f64 / bare_containers as f64;
    for (case, containers) in measured.iter().zip([bare_containers, containers]) {
        let each_ns = case.median_ns() / containers as f64;
        let tick_ms = case.median_ns() / 1e6;
        println!(
            "{containers:>6} containers  {:<7} {each_ns:>8.0} ns each  {tick_ms:>8.2} ms",
            case.name
        );
    }
    if is_running {
        let published = sampler.published();
        let usage =
            || -> Vec<_> { published.latest().containers.iter().map(|row| row.usage_ns).collect() };
        let idle = usage();
        wake();
        sampler.tick(now);
        let unmoved = idle.iter().zip(usage()).filter(|&(before, after)| *before == after).count();
        assert_eq!(unmoved, 0, "containers in which nothing ran before a tick");
    }
    let ratio = measured[1].ratio_to(&measured[0]) / scale;
    let unkept = sampler.published().latest().sampler.unkept_cgroups;
    println!(
        "{containers:>6} containers  {} / bare {ratio:.2}, {} allocations a tick, {each} B resident each, \
         {unkept} cgroups partly read by open",
        measured[1].name, measured[1].allocations
    );
}

fn main() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("benches/tick.rs makes cgroups: run it as root");
        std::process::exit(1);
    }
    let limit = raise_descriptor_limit().soft;
    let hierarchy = Hierarchy::detect(Path::new("/sys/fs/cgroup")).expect("cgroups are mounted");
    println!("cgroup {}, {limit} descriptors", hierarchy.version_name());
    for containers in [200, 1000, 5000, 6600] {
        if containers <= 1000 {
            measure(&hierarchy, containers, limit, true);
        }
        measure(&hierarchy, containers, limit, false);
    }
}
