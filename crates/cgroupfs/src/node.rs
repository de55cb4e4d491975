//! Facts about the whole node: its kernel, its CPUs, and the CPU time of this process.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kernel_text::{CpuPlace, CpuSet};

use crate::{Error, Result};

/// State of pressure stall information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Psi {
    /// The files can be read.
    On,
    /// Compiled in, but disabled at boot: the file exists and its read fails (`psi=1` enables it).
    Off,
    /// Not compiled in.
    Absent,
}

impl Psi {
    /// `on`, `off`, `absent`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Absent => "absent",
        }
    }
}

/// Kernel release: that of the recorded node if its `/proc` contains it, else `uname -r` of this
/// machine.
#[must_use]
pub fn kernel_release(proc_root: &Path) -> String {
    match fs::read_to_string(proc_root.join("sys/kernel/osrelease")) {
        Ok(release) => release.trim_end().to_owned(),
        Err(_) => rustix::system::uname().release().to_string_lossy().into_owned(),
    }
}

/// Reads `/proc/pressure/cpu` to determine the state of PSI.
#[must_use]
pub fn psi(proc_root: &Path) -> Psi {
    match fs::read(proc_root.join("pressure/cpu")) {
        Ok(_) => Psi::On,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Psi::Absent,
        Err(_) => Psi::Off,
    }
}

/// Whether `/sys/kernel/btf/vmlinux` exists, so that CO-RE programs can be loaded.
#[must_use]
pub fn has_btf(sys_root: &Path) -> bool {
    sys_root.join("kernel/btf/vmlinux").exists()
}

/// Name of the running `sched_ext` scheduler (Linux 6.12); `None` without one.
#[must_use]
pub fn sched_ext(sys_root: &Path) -> Option<String> {
    let read = |file: &str| fs::read_to_string(sys_root.join("kernel/sched_ext").join(file));
    let state = read("state").ok()?;
    (state.trim() != "disabled").then(|| read("root/ops").unwrap_or_default().trim().to_owned())
}

/// One of the CPU lists in `/sys/devices/system/cpu`: `online`, `possible`, `present`, `isolated`,
/// `nohz_full`.
///
/// # Errors
/// A file that cannot be read or does not contain a CPU list.
pub fn cpu_list(sys_root: &Path, name: &str) -> Result<CpuSet> {
    let path = sys_root.join("devices/system/cpu").join(name);
    let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    // nohz_full prints "(null)" if it is compiled in but not configured.
    let text = if text.trim() == "(null)" { "" } else { &text };
    CpuSet::parse(text).map_err(|source| Error::Parse { path, source })
}

/// The position of each CPU in `cpus`.
#[must_use]
pub fn cpu_places(sys_root: &Path, cpus: &CpuSet) -> Vec<CpuPlace> {
    cpus.iter().map(|cpu| cpu_place(sys_root, cpu)).collect()
}

fn cpu_place(sys_root: &Path, cpu: u32) -> CpuPlace {
    let directory = sys_root.join(format!("devices/system/cpu/cpu{cpu}"));
    let text = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let number = |name: &str| text(name)?.trim().parse().ok();
    let lowest = |name: &str| CpuSet::parse(&text(name)?).ok()?.first();
    CpuPlace {
        cpu,
        core: lowest("topology/thread_siblings_list"),
        llc: number("cache/index3/id").or_else(|| lowest("cache/index3/shared_cpu_list")),
        numa_node: numa_node(sys_root, &directory, cpu),
        socket: number("topology/physical_package_id"),
        die: number("topology/die_id"),
        cluster: lowest("topology/cluster_cpus_list"),
    }
}

/// NUMA node from a `nodeN` entry beside the CPU's files, else the node whose `cpulist` contains
/// the CPU (recordings have no links).
fn numa_node(sys_root: &Path, directory: &Path, cpu: u32) -> Option<u32> {
    let id = |name: &str| name.strip_prefix("node")?.parse().ok();
    let names = |path: &Path| -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    if let Some(node) = names(directory).iter().find_map(|name| id(name)) {
        return Some(node);
    }
    let nodes = sys_root.join("devices/system/node");
    names(&nodes).iter().filter_map(|name| id(name)).find(|node| {
        let list =
            fs::read_to_string(nodes.join(format!("node{node}/cpulist"))).unwrap_or_default();
        CpuSet::parse(&list).is_ok_and(|cpus| cpus.contains(cpu))
    })
}

/// Distances between NUMA nodes by (from, to), from `/sys/devices/system/node/nodeN/distance`; 10
/// is local. Empty if the kernel has no NUMA nodes.
#[must_use]
pub fn numa_distances(sys_root: &Path) -> BTreeMap<(u32, u32), u32> {
    let directory = sys_root.join("devices/system/node");
    let list = |path: &Path| CpuSet::parse(&fs::read_to_string(path).ok()?).ok();
    // A row has one number per online node, in ascending order.
    let nodes: Vec<u32> =
        list(&directory.join("online")).map(|nodes| nodes.iter().collect()).unwrap_or_default();
    let mut distances = BTreeMap::new();
    for &from in &nodes {
        let row =
            fs::read_to_string(directory.join(format!("node{from}/distance"))).unwrap_or_default();
        let row = row.split_ascii_whitespace().map_while(|word| word.parse().ok());
        distances.extend(nodes.iter().zip(row).map(|(&to, distance)| ((from, to), distance)));
    }
    distances
}

/// CPUs of the performance and of the efficiency cores of a hybrid processor
/// (`/sys/devices/cpu_core/cpus`, `cpu_atom/cpus`); `None` if the kernel does not distinguish them.
#[must_use]
pub fn hybrid_cpus(sys_root: &Path) -> Option<(CpuSet, CpuSet)> {
    let list = |name: &str| {
        let text = fs::read_to_string(sys_root.join("devices").join(name).join("cpus")).ok()?;
        CpuSet::parse(&text).ok()
    };
    Some((list("cpu_core")?, list("cpu_atom")?))
}

/// `/proc/sys/kernel/random/boot_id`, which changes with each boot. `None` if it cannot be read.
#[must_use]
pub fn boot_id(proc_root: &Path) -> Option<String> {
    let id = fs::read_to_string(proc_root.join("sys/kernel/random/boot_id")).ok()?;
    Some(id.trim_end().to_owned())
}

/// User and system time of this process, nanoseconds.
#[must_use]
pub fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// User and system time of the calling thread, nanoseconds.
#[must_use]
pub fn own_thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn cpu_topology_is_read_from_sysfs() {
        let root = tempfile::tempdir().unwrap();
        let cpu = "devices/system/cpu/cpu5";
        file(root.path(), &format!("{cpu}/topology/thread_siblings_list"), "4-5\n");
        file(root.path(), &format!("{cpu}/topology/physical_package_id"), "1\n");
        file(root.path(), "devices/system/node/node1/cpulist", "4-7\n");
        let place = cpu_place(root.path(), 5);
        let wanted = CpuPlace {
            cpu: 5,
            core: Some(4),
            llc: None,
            numa_node: Some(1),
            socket: Some(1),
            die: None,
            cluster: None,
        };
        assert_eq!(place, wanted);
    }

    #[test]
    fn a_sched_ext_scheduler_is_read_while_it_is_enabled() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(sched_ext(root.path()), None);
        file(root.path(), "kernel/sched_ext/state", "disabled\n");
        assert_eq!(sched_ext(root.path()), None);
        file(root.path(), "kernel/sched_ext/state", "enabled\n");
        file(root.path(), "kernel/sched_ext/root/ops", "layered\n");
        assert_eq!(sched_ext(root.path()).as_deref(), Some("layered"));
    }

    #[test]
    fn psi_that_is_compiled_in_but_disabled_is_off() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(psi(root.path()), Psi::Absent);
        // A directory instead of the file fails to read, just as the disabled file does.
        fs::create_dir_all(root.path().join("pressure/cpu")).unwrap();
        assert_eq!(psi(root.path()), Psi::Off);
    }

    #[test]
    fn nohz_full_not_asked_for_is_empty() {
        let root = tempfile::tempdir().unwrap();
        file(root.path(), "devices/system/cpu/nohz_full", "  (null)\n");
        assert_eq!(cpu_list(root.path(), "nohz_full").unwrap(), CpuSet::new());
        assert!(cpu_list(root.path(), "online").is_err());
    }
}
