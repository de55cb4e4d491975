//! Cgroups of the running kernel's cpu controller, on v1 or v2 alike, that take themselves away.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use cgroupfs::Hierarchy;
use kernel_text::CgroupVersion;
use rustix::process::{Pid, Signal, kill_process};

static HIERARCHY: LazyLock<Hierarchy> = LazyLock::new(|| {
    Hierarchy::detect(Path::new("/sys/fs/cgroup")).unwrap_or_else(|error| panic!("{error}"))
});

fn is_v2() -> bool {
    HIERARCHY.version == CgroupVersion::V2
}

/// One directory of the cpu controller's hierarchy; dropping it ends its processes and removes it.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// A cgroup at the top whose children together get the CPU before everything else on the
    /// machine.
    pub(crate) fn before_all_others(name: &str) -> Self {
        let cgroup = Self::create(HIERARCHY.cpu.join(name));
        cgroup.write(
            if is_v2() { "cpu.weight" } else { "cpu.shares" },
            if is_v2() { "10000" } else { "262144" },
        );
        cgroup
    }

    /// A cgroup in this one.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self::create(self.path.join(name))
    }

    fn create(path: PathBuf) -> Self {
        if is_v2() {
            let control = path.parent().unwrap().join("cgroup.subtree_control");
            fs::write(&control, "+cpu")
                .unwrap_or_else(|error| panic!("{}: {error}", control.display()));
        }
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path }
    }

    /// Its share of the CPU in proportion to its siblings'.
    pub(crate) fn set_weight(&self, weight: u64) {
        self.write(if is_v2() { "cpu.weight" } else { "cpu.shares" }, &weight.to_string());
    }

    /// The share that a cgroup has from the start.
    pub(crate) fn set_default_weight(&self) {
        self.set_weight(if is_v2() { 100 } else { 1024 });
    }

    /// Milliseconds of CPU time in each 100 ms.
    pub(crate) fn set_quota_ms(&self, quota: u64) {
        if is_v2() {
            return self.write("cpu.max", &format!("{} 100000", quota * 1000));
        }
        self.write("cpu.cfs_period_us", "100000");
        self.write("cpu.cfs_quota_us", &(quota * 1000).to_string());
    }

    /// Throttled time by its own quota, summed over CPUs, nanoseconds.
    pub(crate) fn throttled_ns(&self) -> u64 {
        let text = fs::read_to_string(self.path.join("cpu.stat")).unwrap();
        let value = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
        };
        value("throttled_time ")
            .or_else(|| value("throttled_usec ").map(|usec| usec * 1000))
            .unwrap()
    }

    /// Throttled time by its own quota and its ancestors' quotas while it had tasks to run; `None`
    /// before Linux 6.6.
    pub(crate) fn local_throttled_ns(&self) -> Option<u64> {
        let text = fs::read_to_string(self.path.join("cpu.stat.local")).ok()?;
        let value = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
        };
        value("throttled_time ").or_else(|| value("throttled_usec ").map(|usec| usec * 1000))
    }

    pub(crate) fn inode(&self) -> u64 {
        cgroupfs::inode(&self.path).unwrap()
    }

    pub(crate) fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.path.join(file);
        fs::write(&path, text)
            .unwrap_or_else(|error| panic!("{text} to {}: {error}", path.display()));
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let pids = fs::read_to_string(self.procs()).unwrap_or_default();
            for pid in pids.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
                let _ = kill_process(pid, Signal::KILL);
            }
            // Busy until the last process is gone, which takes the parent's wait and the kernel a
            // moment.
            match fs::remove_dir(&self.path) {
                Err(_) if self.path.exists() && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}
