//! Cgroups of a run in every hierarchy of this machine. They are removed at its end; those of a
//! killed run are removed by the next one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::FleetError;

/// The root of the hierarchies.
const ROOT: &str = "/sys/fs/cgroup";
/// Names of the base cgroups begin with this; the number of the process follows.
const PREFIX: &str = "cpuwarden-fleet-";
/// Attempts to remove a cgroup, and the time between two: killed processes leave it a moment later.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(20);
/// Number of reads of the kernel memory after a reclaim, of which the lowest counts, and the time
/// before each.
const READS: usize = 5;
const FREED_AFTER: Duration = Duration::from_millis(100);

/// The base cgroups; removed when dropped, with all below them.
pub(super) struct Cgroups {
    /// Base directory in each hierarchy.
    pub(super) bases: Vec<PathBuf>,
    /// Path of the bases in their hierarchies.
    pub(super) name: String,
}

impl Cgroups {
    /// Creates the bases, and removes those of killed runs.
    pub(super) fn create() -> Result<Self, FleetError> {
        let failed = |error| FleetError::io(Path::new(ROOT), error);
        let hierarchies = hierarchies().map_err(failed)?;
        hierarchies.iter().for_each(|hierarchy| sweep(hierarchy));
        let name = format!("{PREFIX}{}", std::process::id());
        let bases = hierarchies.iter().map(|hierarchy| hierarchy.join(&name)).collect();
        let cgroups = Self { bases, name };
        for base in &cgroups.bases {
            create(base).map_err(|error| FleetError::io(base, error))?;
        }
        Ok(cgroups)
    }

    /// Creates a cgroup below the bases. Returns its directories.
    pub(super) fn add(&self, path: &Path) -> Result<Vec<PathBuf>, FleetError> {
        let directories: Vec<_> = self.bases.iter().map(|base| base.join(path)).collect();
        for directory in &directories {
            create(directory).map_err(|error| FleetError::io(directory, error))?;
        }
        Ok(directories)
    }

    /// Removes a cgroup below the bases.
    pub(super) fn remove(&self, path: &Path) {
        self.bases.iter().for_each(|base| remove_at_last(&base.join(path)));
    }

    /// Cgroup in the hierarchy of memory, for the kernel's figures; `None` without such files.
    pub(super) fn add_counted(&self, path: &str) -> Option<PathBuf> {
        let is_it = |base: &&PathBuf| {
            // In v2 the files are there only if the parent says so.
            let _ = fs::write(base.join("cgroup.subtree_control"), "+memory");
            base.join("memory.stat").exists()
        };
        let directory = self.bases.iter().find(is_it)?.join(path);
        create(&directory).ok()?;
        Some(directory)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.bases.iter().for_each(|base| remove_at_last(base));
    }
}

/// Moves a process into a cgroup.
pub(super) fn enter(directories: &[PathBuf], process: u32) -> Result<(), FleetError> {
    for directory in directories {
        let file = directory.join("cgroup.procs");
        fs::write(&file, process.to_string()).map_err(|error| FleetError::io(&file, error))?;
    }
    Ok(())
}

/// Kernel memory charged to a cgroup, KiB, without what the kernel can reclaim: names of removed files
/// and cgroups stay until memory is scarce. `None` if it is not counted.
pub(super) fn kernel_kib(directory: &Path) -> Option<f64> {
    // v2, else v1. Both fail once nothing is left to reclaim.
    if fs::write(directory.join("memory.reclaim"), "1G").is_err() {
        let _ = fs::write(directory.join("memory.force_empty"), "0");
    }
    // The kernel frees part of it only after a grace period, which is longer under load.
    let read = |_| {
        thread::sleep(FREED_AFTER);
        charged_kib(directory)
    };
    (0..READS).filter_map(read).reduce(f64::min)
}

fn charged_kib(directory: &Path) -> Option<f64> {
    let v1 = fs::read_to_string(directory.join("memory.kmem.usage_in_bytes")).ok();
    let v2 = || {
        let stat = fs::read_to_string(directory.join("memory.stat")).ok()?;
        stat.lines().find_map(|line| line.strip_prefix("kernel ")).map(str::to_owned)
    };
    Some(v1.or_else(v2)?.trim().parse::<f64>().ok()? / 1024.0)
}

/// The mounted hierarchies: one for cgroup v2.
fn hierarchies() -> io::Result<Vec<PathBuf>> {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let path = entry.path();
        // `cpu` may be a link to `cpu,cpuacct`.
        if entry.file_type()?.is_dir() && path.join("cgroup.procs").exists() {
            found.push(path);
        }
    }
    Ok(found)
}

/// The cgroup of this process in a hierarchy.
pub(super) fn own_cgroup(hierarchy: &Path) -> io::Result<String> {
    let text = fs::read_to_string("/proc/self/cgroup")?;
    let name = hierarchy.file_name().unwrap_or_default().to_string_lossy();
    let of = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_it = controllers.is_empty() && hierarchy == Path::new(ROOT)
            || controllers.split(',').any(|one| name.split(',').any(|named| named == one));
        is_it.then(|| path.to_owned())
    };
    Ok(text.lines().find_map(of).unwrap_or_default())
}

/// Creates a cgroup and its parents. A cpuset of cgroup v1 begins empty, and takes no process.
pub(super) fn create(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        create(parent)?;
        fs::create_dir(directory)?;
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let text = fs::read_to_string(parent.join(file)).unwrap_or_default();
            if directory.join("cpuset.cpu_exclusive").exists() && !text.trim().is_empty() {
                fs::write(directory.join(file), text)?;
            }
        }
    }
    Ok(())
}

/// Removes the cgroups of runs whose process is gone.
fn sweep(hierarchy: &Path) {
    let entries = fs::read_dir(hierarchy).into_iter().flatten().flatten();
    let is_left = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix(PREFIX).is_some_and(|process| !Path::new("/proc").join(process).exists())
    };
    entries.map(|entry| entry.path()).filter(is_left).for_each(|left| remove_at_last(&left));
}

/// Removes a cgroup and those below it, once their processes have left.
fn remove_at_last(directory: &Path) {
    for _ in 0..ATTEMPTS {
        remove(directory);
        if !directory.exists() {
            return;
        }
        thread::sleep(PAUSE);
    }
}

fn remove(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let children = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    children.for_each(|child| remove(&child.path()));
    let _ = fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_of_a_killed_run_are_removed_and_those_of_a_running_one_stay() {
        let directory = tempfile::tempdir().unwrap();
        let hierarchy = directory.path();
        let of = |process: &str| hierarchy.join(format!("{PREFIX}{process}"));
        let running = of(&std::process::id().to_string());
        // No process has this number: it is above the kernel's maximum.
        let killed = of("99999999");
        for path in [&running, &killed.join("kubepods/burstable"), &hierarchy.join("kubepods")] {
            create(path).unwrap();
        }
        sweep(hierarchy);
        assert!(running.exists() && hierarchy.join("kubepods").exists() && !killed.exists());
    }
}
