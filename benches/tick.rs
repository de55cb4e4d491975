//! What one tick costs on real cgroups of this machine, beside the bare preads of the same files. Needs root.
//!
//! Cases, each at 200, 1,000, 5,000 and 6,600 container cgroups (two a pod; with the pods 10,000 cgroups in the last):
//! - `bare`: one `pread` of every file that a tick reads for a container and a pod in which something runs, nothing
//!   parsed: all counters, and of one cgroup in ten the settings and the slow files; of 400 containers where there are
//!   more, to leave descriptors to the sampler;
//! - `tick`: the sampler's whole tick: events, names, reads, counting, settings and slow files in turn, publishing.
//!   Nothing runs in the containers, and of what cannot have changed the tick reads less.
//!
//! Printed: nanoseconds a container cgroup, the ratio of the two in the same rounds, allocations of a steady tick, and
//! the resident memory that a container has cost.

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroupfs::{Hierarchy, KeptFile, Version, raise_descriptor_limit};
use pods::PodIndex;
use sampler::{DescriptorBudget, PodNames, Sampler, SamplerConfig};

use support::{Case, interleaved};

/// Nobody knows a name: the series carry what the path tells, which costs a tick the same.
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

/// A kubepods tree without processes; removed when dropped.
struct Tree {
    hierarchy: Hierarchy,
    top: String,
}

impl Tree {
    fn new(hierarchy: &Hierarchy, containers: usize) -> Self {
        let tree = Self { hierarchy: hierarchy.clone(), top: format!("cpuwarden-bench-{}", std::process::id()) };
        tree.create(&format!("{}/kubepods/burstable", tree.top));
        for pod in 0..containers / 2 {
            let uid = format!("{pod:08x}-0000-4000-8000-000000000000");
            for container in 0..2 {
                tree.create(&format!("{}/kubepods/burstable/pod{uid}/{:064x}", tree.top, pod * 2 + container));
            }
        }
        tree
    }

    fn mounts(&self) -> Vec<&Path> {
        let Hierarchy { cpu, cpuacct, memory, .. } = &self.hierarchy;
        let mut mounts: Vec<&Path> =
            [Some(cpu), cpuacct.as_ref(), memory.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
        mounts.dedup();
        mounts
    }

    fn create(&self, path: &str) {
        for mount in self.mounts() {
            fs::create_dir_all(mount.join(path)).expect("this bench needs root and writable cgroups");
            if self.hierarchy.version == Version::V2 {
                enable_controllers(mount, path);
            }
        }
    }
}

/// On v2 a cgroup has a controller's files only where its parent hands the controller on.
fn enable_controllers(mount: &Path, path: &str) {
    let mut directory = mount.to_owned();
    for component in Path::new(path) {
        let _ = fs::write(directory.join("cgroup.subtree_control"), "+cpu +memory +cpuset");
        directory.push(component);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for mount in self.mounts() {
            remove(&mount.join(&self.top));
        }
    }
}

fn remove(directory: &Path) {
    for child in cgroupfs::subdirectories(directory).unwrap_or_default() {
        remove(&directory.join(child.name));
    }
    if let Err(error) = fs::remove_dir(directory) {
        eprintln!("{} is left behind: {error}", directory.display());
    }
}

/// The files that a tick reads: the counters of every tick, and what is read in turn, settings and slow files.
struct Bare {
    hot: Vec<KeptFile>,
    in_turn: Vec<KeptFile>,
}

/// Containers whose files the bare case reads: enough to be out of the caches, few enough to leave descriptors.
const BARE_CONTAINERS: usize = 400;

/// Files by mount and name.
type Wanted<'a> = Vec<(&'a PathBuf, &'a str)>;

impl Bare {
    fn open(tree: &Tree, containers: usize) -> Self {
        let Hierarchy { cpu, cpuacct, memory, version, .. } = &tree.hierarchy;
        let acct = cpuacct.as_ref().unwrap_or(cpu);
        let memory = memory.as_ref().unwrap_or(cpu);
        // No quota anywhere, and so no cpu.stat on v1; nothing runs, and so no cpuacct.stat: as the sampler does.
        let (settings, hot, slow): (Wanted<'_>, Wanted<'_>, Wanted<'_>) = match version {
            Version::V1 => (
                vec![(cpu, "cpu.cfs_quota_us"), (cpu, "cpu.cfs_period_us")],
                vec![(acct, "cpuacct.usage")],
                [
                    (cpu, "cpu.shares"),
                    (memory, "memory.usage_in_bytes"),
                    (memory, "memory.limit_in_bytes"),
                    (memory, "memory.stat"),
                    (memory, "memory.numa_stat"),
                ]
                .to_vec(),
            ),
            Version::V2 => (
                vec![(cpu, "cpu.max")],
                vec![(cpu, "cpu.stat")],
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
        let level = format!("{}/kubepods/burstable", tree.top);
        for directory in cgroupfs::subdirectories(&cpu.join(&level)).expect("list").iter().take(containers / 2) {
            let relative = format!("{level}/{}", directory.name);
            open_all(&relative, &settings, &mut bare.in_turn);
            for child in cgroupfs::subdirectories(&cpu.join(&relative)).expect("list") {
                let relative = format!("{relative}/{}", child.name);
                open_all(&relative, &hot, &mut bare.hot);
                open_all(&relative, &settings, &mut bare.in_turn);
                open_all(&relative, &slow, &mut bare.in_turn);
            }
        }
        bare
    }

    /// What one tick reads: the counters, and a tenth of the rest.
    fn read(&self, turn: usize, buffer: &mut Vec<u8>) {
        let tenth = self.in_turn.len() / 10;
        let in_turn = self.in_turn.iter().cycle().skip(turn % 10 * tenth).take(tenth);
        for file in self.hot.iter().chain(in_turn) {
            std::hint::black_box(file.read(buffer).map(<[u8]>::len).unwrap_or_default());
        }
    }
}

fn open_all(relative: &str, wanted: &[(&PathBuf, &str)], into: &mut Vec<KeptFile>) {
    into.extend(wanted.iter().filter_map(|(mount, name)| KeptFile::open(&mount.join(relative), name).expect("open")));
}

fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("statm has two numbers");
    pages * 4096
}

fn measure(hierarchy: &Hierarchy, containers: usize, limit: u64) {
    let tree = Tree::new(hierarchy, containers);
    let before = resident_bytes();
    let config = SamplerConfig {
        hierarchy: hierarchy.clone(),
        kubepods: vec![format!("{}/kubepods", tree.top)],
        proc_root: "/proc".into(),
        sys_root: "/sys".into(),
        interval: Duration::from_secs(1),
        cpu_budget_cores: f64::MAX,
        reconcile_interval: Duration::from_secs(3600),
        descriptors: DescriptorBudget::from_limit(limit - 10 * BARE_CONTAINERS as u64),
    };
    let mut sampler = Sampler::new(config, Box::new(NoNames(Arc::default()))).expect("epoll");
    // A steady state: young cgroups are looked at more closely, and every slow file was read once.
    let mut now = Instant::now();
    for _ in 0..8 {
        sampler.tick(now);
        now += Duration::from_secs(1);
    }
    let each = resident_bytes().saturating_sub(before) / containers as u64;
    let bare_containers = containers.min(BARE_CONTAINERS);
    let files = Bare::open(&tree, bare_containers);
    let mut buffer = vec![0; 16 * 1024];
    let mut turn = 0;
    let bare = Case::new("bare", || {
        turn += 1;
        files.read(turn, &mut buffer);
    });
    let tick = Case::new("tick", || {
        now += Duration::from_secs(1);
        sampler.tick(now);
    });
    let measured = interleaved(vec![bare, tick]);
    let scale = containers as f64 / bare_containers as f64;
    for (case, containers) in measured.iter().zip([bare_containers, containers]) {
        let each_ns = case.median_ns() / containers as f64;
        let tick_ms = case.median_ns() / 1e6;
        println!("{containers:>6} containers  {:<5} {each_ns:>8.0} ns each  {tick_ms:>8.2} ms", case.name);
    }
    let ratio = measured[1].ratio_to(&measured[0]) / scale;
    let unkept = sampler.published().latest().sampler.unkept_cgroups;
    println!(
        "{containers:>6} containers  tick / bare {ratio:.2}, {} allocations a tick, {each} B resident each, \
         {unkept} cgroups partly read by open",
        measured[1].allocations
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
        measure(&hierarchy, containers, limit);
    }
}
