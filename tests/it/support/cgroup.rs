//! One cgroup of the running kernel, on either v1 or v2.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

/// The cgroup mounts of this machine.
pub(super) struct Layout {
    pub(super) is_v2: bool,
    mount: PathBuf,
}

pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(|| {
    let mount = PathBuf::from("/sys/fs/cgroup");
    let is_v2 = mount.join("cgroup.controllers").exists();
    let layout = Layout { is_v2, mount };
    for controller in CONTROLLERS {
        let there = layout.root(controller).join("cgroup.procs").exists();
        assert!(
            there,
            "cannot test: no cgroup controller {controller} at {}",
            layout.mount.display()
        );
    }
    layout
});

/// Controllers of a container's cgroup. On v2 cpuacct is always on.
pub(super) const CONTROLLERS: [&str; 4] = ["cpu", "cpuacct", "cpuset", "memory"];

impl Layout {
    /// Root directory of the controller.
    fn root(&self, controller: &str) -> PathBuf {
        if self.is_v2 { self.mount.clone() } else { self.mount.join(controller) }
    }
}

/// A cgroup in every relevant hierarchy.
#[derive(Clone)]
pub(crate) struct Cgroup {
    /// Path relative to the root of each hierarchy.
    path: PathBuf,
}

impl Cgroup {
    /// Creates the cgroup; its parent must exist.
    pub(super) fn create(path: PathBuf) -> Self {
        Self::create_with_pauses(path, Duration::ZERO)
    }

    fn create_with_pauses(path: PathBuf, pause: Duration) -> Self {
        let cgroup = Self { path };
        if LAYOUT.is_v2 {
            cgroup.enable_controllers_in_parent();
        }
        for directory in cgroup.dirs() {
            fs::create_dir(&directory)
                .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
            std::thread::sleep(pause);
        }
        if !LAYOUT.is_v2 {
            cgroup.inherit_cpuset();
        }
        cgroup
    }

    /// The cgroup of this process in the hierarchy of the cpu controller.
    pub(super) fn of_this_process() -> Self {
        let text = fs::read_to_string("/proc/self/cgroup").unwrap();
        let path = text.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_it = if LAYOUT.is_v2 {
                controllers.is_empty()
            } else {
                controllers.split(',').any(|name| name == "cpu")
            };
            is_it.then_some(path)
        });
        Self { path: path.unwrap().trim_start_matches('/').into() }
    }

    /// The file with the processes of the cgroup, in the hierarchy of the cpu controller.
    pub(super) fn procs(&self) -> PathBuf {
        self.dir("cpu").join("cgroup.procs")
    }

    /// Creates a child cgroup.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self::create(self.path.join(name))
    }

    /// Creates a child cgroup like a slow runtime: in one hierarchy after the other.
    pub(crate) fn slow_child(&self, name: &str, pause: Duration) -> Self {
        Self::create_with_pauses(self.path.join(name), pause)
    }

    /// An existing child cgroup.
    pub(crate) fn existing_child(&self, name: &str) -> Self {
        Self { path: self.path.join(name) }
    }

    /// Removes the cgroup from every hierarchy; it must be empty.
    pub(crate) fn remove(&self) {
        for directory in self.dirs() {
            fs::remove_dir(&directory)
                .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        }
    }

    /// Path relative to the root of its hierarchies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Directory in the controller's hierarchy.
    pub(crate) fn dir(&self, controller: &str) -> PathBuf {
        LAYOUT.root(controller).join(&self.path)
    }

    /// Directories, one per hierarchy.
    pub(super) fn dirs(&self) -> Vec<PathBuf> {
        let mut dirs: Vec<_> = CONTROLLERS.iter().map(|controller| self.dir(controller)).collect();
        dirs.dedup();
        dirs
    }

    /// Sets the CFS quota and period, microseconds.
    pub(crate) fn set_quota_usec(&self, quota: u64, period: u64) {
        if LAYOUT.is_v2 {
            return self.write("cpu", "cpu.max", &format!("{quota} {period}"));
        }
        self.write("cpu", "cpu.cfs_period_us", &period.to_string());
        self.write("cpu", "cpu.cfs_quota_us", &quota.to_string());
    }

    /// Sets the memory limit, bytes.
    pub(crate) fn set_memory_limit_bytes(&self, bytes: u64) {
        let file = if LAYOUT.is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        self.write("memory", file, &bytes.to_string());
    }

    /// Sets `cpu.weight`, or `cpu.shares` on v1, and returns the resulting weight.
    pub(crate) fn set_weight(&self, number: u64) -> u64 {
        let file = if LAYOUT.is_v2 { "cpu.weight" } else { "cpu.shares" };
        self.write("cpu", file, &number.to_string());
        if LAYOUT.is_v2 { number } else { kernel_text::WeightRule::default().weight(number) }
    }

    /// Sets the maximum of `cpu.weight` or `cpu.shares`.
    pub(super) fn set_highest_weight(&self) {
        let (file, weight) =
            if LAYOUT.is_v2 { ("cpu.weight", "10000") } else { ("cpu.shares", "262144") };
        self.write("cpu", file, weight);
    }

    /// Content of `cpu.stat` by key.
    pub(crate) fn cpu_stat(&self) -> BTreeMap<String, u64> {
        keys(&self.read("cpu", "cpu.stat"))
    }

    /// Content of `cpu.stat.local` by key; `None` before Linux 6.6.
    pub(crate) fn cpu_stat_local(&self) -> Option<BTreeMap<String, u64>> {
        fs::read_to_string(self.dir("cpu").join("cpu.stat.local")).ok().map(|text| keys(&text))
    }

    /// CPU time used, nanoseconds.
    pub(crate) fn usage_ns(&self) -> u64 {
        if LAYOUT.is_v2 {
            return self.cpu_stat()["usage_usec"] * 1000;
        }
        self.read("cpuacct", "cpuacct.usage").trim().parse().unwrap()
    }

    /// The unit of its user and system time, nanoseconds: each is cut to it.
    pub(crate) fn mode_unit_ns() -> u64 {
        if LAYOUT.is_v2 { 1000 } else { 10_000_000 }
    }

    /// The text of a file of the controller.
    pub(crate) fn read(&self, controller: &str, file: &str) -> String {
        let path = self.dir(controller).join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Writes a file of the controller, which must exist.
    pub(crate) fn write(&self, controller: &str, file: &str, text: &str) {
        write(&self.dir(controller).join(file), text);
    }

    fn enable_controllers_in_parent(&self) {
        let parent = self.dir("cpu").parent().unwrap().to_owned();
        let enabled = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap();
        for controller in ["cpu", "cpuset", "memory"] {
            if !enabled.split_whitespace().any(|name| name == controller) {
                write(&parent.join("cgroup.subtree_control"), &format!("+{controller}"));
            }
        }
    }

    /// Copies the parent's cpuset. A v1 cpuset starts empty and accepts no task without CPUs and
    /// memory nodes.
    fn inherit_cpuset(&self) {
        let directory = self.dir("cpuset");
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let parents = fs::read_to_string(directory.parent().unwrap().join(file)).unwrap();
            write(&directory.join(file), parents.trim());
        }
    }
}

fn write(path: &Path, text: &str) {
    let file = fs::OpenOptions::new().write(true).open(path);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.unwrap_or_else(|error| panic!("writing {text:?} to {}: {error}", path.display()));
}

fn keys(text: &str) -> BTreeMap<String, u64> {
    let pairs = text.lines().map(|line| line.split_once(' ').unwrap());
    pairs.map(|(key, value)| (key.to_owned(), value.parse().unwrap())).collect()
}
