//! One cgroup of the running kernel, on either v1 or v2.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use cgroupfs::{Hierarchy, control};
use cgroups_rs::cpu::CpuController;
use cgroups_rs::memory::MemController;
use cgroups_rs::{CgroupPid, Controller as _};
use kernel_text::{CgroupVersion, WeightRule, request_shares};

/// Controllers of a container's cgroup. On v2 cpuacct is always on.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuacct", "cpuset", "memory"];

static HIERARCHY: LazyLock<Result<Hierarchy, String>> = LazyLock::new(|| {
    Hierarchy::detect(Path::new("/sys/fs/cgroup")).map_err(|error| error.to_string())
});

/// The cgroup mounts of this machine.
///
/// # Errors
/// There is no hierarchy with a cpu controller at `/sys/fs/cgroup`.
pub fn try_hierarchy() -> anyhow::Result<&'static Hierarchy> {
    HIERARCHY.as_ref().map_err(|error| anyhow!("{error}"))
}

fn hierarchy() -> &'static Hierarchy {
    or_panic(try_hierarchy())
}

fn is_v2() -> bool {
    hierarchy().version == CgroupVersion::V2
}

/// Mount of the controller; `None` if this machine has none.
fn mount(controller: &str) -> Option<&'static Path> {
    let hierarchy = hierarchy();
    match controller {
        "cpu" => Some(&*hierarchy.cpu),
        "cpuacct" => hierarchy.cpuacct.as_deref(),
        "cpuset" => hierarchy.cpuset.as_deref(),
        "memory" => hierarchy.memory.as_deref(),
        _ => panic!("not a controller of a container's cgroup: {controller}"),
    }
}

/// Name of a cgroup in every relevant hierarchy. It does not remove the cgroup: see
/// [`OwnedCgroup`](crate::OwnedCgroup).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Relative to the root of each hierarchy.
    path: PathBuf,
}

impl Cgroup {
    /// Creates the cgroup at a path relative to the root of each hierarchy. Its parent must exist.
    pub fn create(path: impl Into<PathBuf>) -> Self {
        or_panic(Self::try_create(path))
    }

    /// As [`create`](Self::create).
    ///
    /// # Errors
    /// It exists already, the kernel rejects it, or it has no cpu controller.
    pub fn try_create(path: impl Into<PathBuf>) -> anyhow::Result<Self> {
        Self::create_with_pauses(path.into(), Duration::ZERO)
    }

    fn create_with_pauses(path: PathBuf, pause: Duration) -> anyhow::Result<Self> {
        let version = try_hierarchy()?.version;
        let cgroup = Self { path };
        if version == CgroupVersion::V2 {
            cgroup.enable_controllers_in_parent()?;
        }
        for directory in cgroup.dirs() {
            fs::create_dir(&directory)
                .with_context(|| format!("cannot make {}; run as root", directory.display()))?;
            std::thread::sleep(pause);
        }
        if version == CgroupVersion::V1 {
            cgroup.inherit_cpuset()?;
        }
        // On v2, cpu.stat exists even without the controller.
        match cgroup.dir("cpu").join(cgroup.weight_file()).exists() {
            true => Ok(cgroup),
            false => bail!("cannot enable the cpu controller in {}", cgroup.dir("cpu").display()),
        }
    }

    /// An existing cgroup, by its path relative to the root of each hierarchy.
    #[must_use]
    pub fn existing(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The cgroup of this process in the hierarchy of the cpu controller.
    pub(crate) fn of_this_process() -> Self {
        let text = or_panic(fs::read_to_string("/proc/self/cgroup").context("/proc/self/cgroup"));
        let path = text.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_it = if is_v2() {
                controllers.is_empty()
            } else {
                controllers.split(',').any(|name| name == "cpu")
            };
            is_it.then_some(path)
        });
        Self::existing(path.expect("every process has a cgroup").trim_start_matches('/'))
    }

    /// Creates a child cgroup.
    pub fn child(&self, name: &str) -> Self {
        Self::create(self.path.join(name))
    }

    /// Creates a child cgroup like a slow runtime: in one hierarchy after the other.
    pub fn slow_child(&self, name: &str, pause: Duration) -> Self {
        or_panic(Self::create_with_pauses(self.path.join(name), pause))
    }

    /// Creates this number of empty cgroups below it, named by numbers from 0, with the controllers
    /// cpu and cpuacct only. On v2 it must not have processes.
    ///
    /// # Panics
    /// The kernel rejects one of them.
    pub fn create_many(&self, count: usize) {
        if is_v2() {
            self.write("cpu", "cgroup.subtree_control", "+cpu");
        }
        let directories: BTreeSet<_> =
            ["cpu", "cpuacct"].map(|controller| self.dir(controller)).into();
        for directory in directories {
            for at in 0..count {
                let child = directory.join(at.to_string());
                or_panic(fs::create_dir(&child).with_context(|| child.display().to_string()));
            }
        }
    }

    /// An existing child cgroup.
    #[must_use]
    pub fn existing_child(&self, name: &str) -> Self {
        Self::existing(self.path.join(name))
    }

    /// Removes the cgroup from every hierarchy; it must be empty.
    pub fn remove(&self) {
        for directory in self.dirs() {
            let removed = fs::remove_dir(&directory);
            or_panic(removed.with_context(|| directory.display().to_string()));
        }
    }

    /// Path relative to the root of its hierarchies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Directory in the controller's hierarchy.
    #[must_use]
    pub fn dir(&self, controller: &str) -> PathBuf {
        let mount = mount(controller);
        let mount = mount.unwrap_or_else(|| panic!("no cgroup controller {controller} here"));
        mount.join(&self.path)
    }

    /// Directories, one per hierarchy. That of the cpu controller is the first.
    #[must_use]
    pub fn dirs(&self) -> Vec<PathBuf> {
        let mut mounts: Vec<_> = CONTROLLERS.iter().copied().filter_map(mount).collect();
        mounts.dedup();
        mounts.iter().map(|mount| mount.join(&self.path)).collect()
    }

    /// The file with the processes of the cgroup, in the hierarchy of the cpu controller.
    pub(crate) fn procs(&self) -> PathBuf {
        self.dir("cpu").join("cgroup.procs")
    }

    /// Id of the cgroup in the kernel, in the hierarchy of the cpu controller.
    #[must_use]
    pub fn inode(&self) -> u64 {
        let directory = self.dir("cpu");
        or_panic(cgroupfs::inode(&directory).with_context(|| directory.display().to_string()))
    }

    /// Moves a process with all its threads into the cgroup.
    pub fn add_process(&self, pid: u32) {
        or_panic(self.try_add_process(pid));
    }

    /// As [`add_process`](Self::add_process).
    ///
    /// # Errors
    /// The kernel rejects it, or the process has ended.
    pub fn try_add_process(&self, pid: u32) -> anyhow::Result<()> {
        for directory in self.dirs() {
            // `cgroup.procs` is in all hierarchies.
            CpuController::new(directory.clone(), is_v2())
                .add_task_by_tgid(&CgroupPid::from(u64::from(pid)))
                .with_context(|| {
                    format!("cannot move process {pid} into {}", directory.display())
                })?;
        }
        Ok(())
    }

    /// Sets the CFS quota and period, microseconds.
    pub fn set_quota_usec(&self, quota: u64, period: u64) {
        or_panic(self.try_set_quota_usec(quota, period));
    }

    /// As [`set_quota_usec`](Self::set_quota_usec).
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn try_set_quota_usec(&self, quota: u64, period: u64) -> anyhow::Result<()> {
        let (cpu, quota) = (self.cpu(), i64::try_from(quota).unwrap_or(i64::MAX));
        let set = if is_v2() {
            cpu.set_cfs_quota_and_period(Some(quota), Some(period))
        } else {
            cpu.set_cfs_period(period).and_then(|()| cpu.set_cfs_quota(quota))
        };
        set.with_context(|| format!("cannot set the CPU quota of {}", self.dir("cpu").display()))
    }

    /// Sets the memory limit, bytes.
    pub fn set_memory_limit_bytes(&self, bytes: u64) {
        let directory = self.dir("memory");
        let limit = i64::try_from(bytes).unwrap_or(i64::MAX);
        let set = MemController::new(directory.clone(), is_v2()).set_limit(limit);
        or_panic(set.with_context(|| directory.display().to_string()));
    }

    /// Sets `cpu.weight`, or `cpu.shares` on v1, and returns the resulting weight.
    pub fn set_weight(&self, number: u64) -> u64 {
        or_panic(self.try_set_weight(number));
        if is_v2() { number } else { WeightRule::default().weight(number) }
    }

    /// As [`set_weight`](Self::set_weight).
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn try_set_weight(&self, number: u64) -> anyhow::Result<()> {
        let set = self.cpu().set_shares(number);
        set.with_context(|| format!("cannot set the CPU weight of {}", self.dir("cpu").display()))
    }

    /// Sets the weight that the kubelet gives a CPU request.
    pub fn set_request_milli(&self, milli: u64) {
        let shares = request_shares(milli);
        self.set_weight(if is_v2() { WeightRule::default().weight(shares) } else { shares });
    }

    /// Sets the maximum of `cpu.weight` or `cpu.shares`.
    pub fn set_highest_weight(&self) {
        or_panic(self.try_set_highest_weight());
    }

    /// As [`set_highest_weight`](Self::set_highest_weight).
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn try_set_highest_weight(&self) -> anyhow::Result<()> {
        self.try_set_weight(if is_v2() { 10_000 } else { 262_144 })
    }

    /// Sets the `cpu.weight` or `cpu.shares` that a new cgroup has.
    pub fn set_default_weight(&self) {
        self.set_weight(if is_v2() { 100 } else { 1024 });
    }

    /// Content of `cpu.stat` by key.
    #[must_use]
    pub fn cpu_stat(&self) -> BTreeMap<String, u64> {
        keys(&self.read("cpu", "cpu.stat"))
    }

    /// Content of `cpu.stat.local` by key; `None` before Linux 6.6.
    #[must_use]
    pub fn cpu_stat_local(&self) -> Option<BTreeMap<String, u64>> {
        fs::read_to_string(self.dir("cpu").join("cpu.stat.local")).ok().map(|text| keys(&text))
    }

    /// Throttled time by its own quota, summed over CPUs, nanoseconds.
    #[must_use]
    pub fn throttled_ns(&self) -> u64 {
        throttled_ns(&self.cpu_stat())
    }

    /// Throttled time by its own quota and its ancestors' quotas while it had tasks to run,
    /// nanoseconds; `None` before Linux 6.6.
    #[must_use]
    pub fn local_throttled_ns(&self) -> Option<u64> {
        self.cpu_stat_local().as_ref().map(throttled_ns)
    }

    /// CPU time used, nanoseconds.
    #[must_use]
    pub fn usage_ns(&self) -> u64 {
        if is_v2() {
            return self.cpu_stat()["usage_usec"] * 1000;
        }
        let text = self.read("cpuacct", "cpuacct.usage");
        text.trim().parse().unwrap_or_else(|error| panic!("cpuacct.usage: {text:?}: {error}"))
    }

    /// Resolution of a cgroup's user and system time, nanoseconds: each is cut to it.
    #[must_use]
    pub fn mode_unit_ns() -> u64 {
        if is_v2() { 1000 } else { 10_000_000 }
    }

    /// The text of a file of the controller.
    #[must_use]
    pub fn read(&self, controller: &str, file: &str) -> String {
        let path = self.dir(controller).join(file);
        or_panic(fs::read_to_string(&path).with_context(|| path.display().to_string()))
    }

    /// Writes a file of the controller, which must exist.
    pub fn write(&self, controller: &str, file: &str, text: &str) {
        let path = self.dir(controller).join(file);
        let written = control::write(&path, text);
        or_panic(written.with_context(|| format!("writing {text:?} to {}", path.display())));
    }

    fn cpu(&self) -> CpuController {
        CpuController::new(self.dir("cpu"), is_v2())
    }

    fn weight_file(&self) -> &'static str {
        if is_v2() { "cpu.weight" } else { "cpu.shares" }
    }

    /// v2: enables the available controllers of a container for the children of the parent.
    fn enable_controllers_in_parent(&self) -> anyhow::Result<()> {
        let directory = self.dir("cpu");
        let parent = directory.parent().context("the root has no parent")?;
        let read = |file: &str| {
            let path = parent.join(file);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let (available, enabled) = (read("cgroup.controllers")?, read("cgroup.subtree_control")?);
        let is_in = |text: &str, name: &str| text.split_whitespace().any(|word| word == name);
        for name in CONTROLLERS {
            if !is_in(&available, name) || is_in(&enabled, name) {
                continue;
            }
            let path = parent.join("cgroup.subtree_control");
            match control::write(&path, &format!("+{name}")) {
                Err(error) if name == "cpu" => {
                    return Err(error).with_context(|| format!("+cpu to {}", path.display()));
                }
                // Without another controller, the cgroup lacks the files of that controller.
                _ => {}
            }
        }
        Ok(())
    }

    /// v1: gives the cgroup the CPUs and memory nodes of its parent. A new cpuset is empty and
    /// accepts no process.
    fn inherit_cpuset(&self) -> anyhow::Result<()> {
        let v1 = Box::new(cgroups_rs::hierarchies::V1::new());
        let only = vec!["cpuset".to_owned()];
        cgroups_rs::Cgroup::load_with_specified_controllers(v1, &self.path, only)
            .create()
            .with_context(|| format!("cannot set up the cpuset of {}", self.path.display()))
    }
}

fn throttled_ns(stat: &BTreeMap<String, u64>) -> u64 {
    match stat.get("throttled_usec") {
        Some(usec) => usec * 1000,
        None => stat["throttled_time"],
    }
}

fn keys(text: &str) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        Some((line.split_once(' ')?.0.to_owned(), line.split_once(' ')?.1.parse().ok()?))
    };
    text.lines().map(|line| pair(line).unwrap_or_else(|| panic!("{line:?}: no number"))).collect()
}

/// The result; a test fails by its error.
pub(crate) fn or_panic<T>(result: anyhow::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:#}"))
}
