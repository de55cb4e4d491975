//! The demo's own root cgroup in every relevant hierarchy, with guaranteed removal.
//!
//! Changes nothing outside this cgroup, with one exception: on v2 it enables a controller that the
//! root's `cgroup.subtree_control` lacks, and disables it at the end. A lock on the directory
//! distinguishes a running demo from the leftovers of a killed one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use cgroupfs::{Hierarchy, control, subdirectories};
use cgroups_rs::cpu::CpuController;
use cgroups_rs::{CgroupPid, Controller as _};
use kernel_text::CgroupVersion;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

/// Usual mount point of the hierarchies.
const MOUNTS: &str = "/sys/fs/cgroup";
/// Controllers of v2 whose files the agent reads.
const CONTROLLERS: [&str; 3] = ["cpu", "cpuset", "memory"];
const TOP_PREFIX: &str = "cpuwarden-demo-";
/// Maximum time for processes to die and their cgroups to empty; a throttled process dies at its
/// next period.
const REMOVAL: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// The demo's root cgroup, removed on drop with all processes in it.
#[derive(Debug)]
pub(super) struct Tree {
    /// Path of the root cgroup, relative to each mount.
    top: String,
    hierarchy: Hierarchy,
    /// v2: original content of the root's `cgroup.subtree_control`.
    handed_down: Option<String>,
    lock: Option<File>,
}

impl Tree {
    /// Removes the leftovers of earlier demos and creates a root cgroup named after this process.
    ///
    /// # Errors
    /// No hierarchy, or it is not writable.
    pub(super) fn new() -> anyhow::Result<Self> {
        let hierarchy = Hierarchy::detect(Path::new(MOUNTS))?;
        let top = format!("{TOP_PREFIX}{}", std::process::id());
        remove_leftovers(&hierarchy);
        let directory = hierarchy.cpu.join(&top);
        // An existing cgroup is not adopted.
        fs::create_dir(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let handed_down = match hierarchy.version {
            CgroupVersion::V1 => None,
            CgroupVersion::V2 => fs::read_to_string(subtree_control(&hierarchy)).ok(),
        };
        // From here on there is something to remove.
        let mut tree = Self { top, hierarchy, handed_down, lock: None };
        tree.lock = Some(lock(&directory)?.context("another process has locked the cgroup")?);
        Ok(tree)
    }

    /// Path of the root cgroup, relative to each mount.
    pub(super) fn top(&self) -> &str {
        &self.top
    }

    /// The hierarchies that contain it.
    pub(super) fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Creates a cgroup below the root cgroup, with its parents and the controllers that the agent
    /// reads.
    ///
    /// # Errors
    /// The kernel rejects it, or the cpu controller is not available.
    pub(super) fn create(&self, path: &str) -> anyhow::Result<Cgroup<'_>> {
        for mount in mounts(&self.hierarchy) {
            let mut directory = mount.to_owned();
            for name in Path::new(&self.top).join(path).components() {
                let parent = directory.clone();
                directory.push(name);
                self.create_child(&parent, &directory)
                    .with_context(|| format!("cannot make {}", directory.display()))?;
            }
        }
        let cgroup = self.cgroup(path);
        // On v2, cpu.stat exists even without the controller.
        if !cgroup.file(cgroup.weight_file()).exists() {
            bail!("cannot enable the cpu controller in {}", cgroup.path.display());
        }
        Ok(cgroup)
    }

    /// Creates a directory, if it does not exist, in which processes may run and create cgroups.
    fn create_child(&self, parent: &Path, child: &Path) -> anyhow::Result<()> {
        match self.hierarchy.version {
            CgroupVersion::V1 => {
                make_directory(child)?;
                inherit_cpuset(parent, child)
            }
            CgroupVersion::V2 => {
                hand_down(parent)?;
                make_directory(child)
            }
        }
    }

    /// A cgroup that [`Tree::create`] created, directly or as a parent; `""` for the root cgroup.
    pub(super) fn cgroup(&self, path: &str) -> Cgroup<'_> {
        Cgroup { hierarchy: &self.hierarchy, path: Path::new(&self.top).join(path) }
    }

    /// Disables the controllers that were enabled at the root.
    fn disable_again(&self) {
        let Some(before) = &self.handed_down else { return };
        let path = subtree_control(&self.hierarchy);
        let now = fs::read_to_string(&path).unwrap_or_default();
        let was_there = |name: &str| before.split_whitespace().any(|before| before == name);
        for name in now.split_whitespace().filter(|name| !was_there(name)) {
            // Rejected (EBUSY) while another process uses the controller, which must then stay
            // enabled.
            let _ = control::write(&path, &format!("-{name}"));
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for mount in mounts(&self.hierarchy) {
            let directory = mount.join(&self.top);
            if let Err(error) = remove(&directory, Instant::now() + REMOVAL) {
                // Must not panic, since this may run during a panic.
                tracing::error!(
                    "cannot remove {}: {error}; the next demo removes it",
                    directory.display()
                );
            }
        }
        self.disable_again();
    }
}

/// A cgroup of the demo, in every hierarchy.
#[derive(Debug)]
pub(super) struct Cgroup<'a> {
    hierarchy: &'a Hierarchy,
    /// Relative to each mount.
    path: PathBuf,
}

impl Cgroup<'_> {
    /// Sets the quota, in microseconds of CPU time per period.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub(super) fn set_quota(&self, quota_usec: u64, period_usec: u64) -> anyhow::Result<()> {
        let cpu = self.cpu();
        let set = cpu
            .set_cfs_period(period_usec)
            .and_then(|()| cpu.set_cfs_quota(i64::try_from(quota_usec).unwrap_or(i64::MAX)));
        set.with_context(|| format!("cannot set the CPU quota of {}", self.path.display()))
    }

    /// Sets `cpu.shares`, or `cpu.weight` on v2.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub(super) fn set_weight(&self, weight: u64) -> anyhow::Result<()> {
        let set = self.cpu().set_shares(weight);
        set.with_context(|| format!("cannot set the CPU weight of {}", self.path.display()))
    }

    /// Moves a process, with all its threads, into the cgroup.
    ///
    /// # Errors
    /// The kernel rejects it, or the process has ended.
    pub(super) fn add_process(&self, pid: u32) -> anyhow::Result<()> {
        for mount in mounts(self.hierarchy) {
            let directory = mount.join(&self.path);
            self.controller(directory.clone())
                .add_task_by_tgid(&CgroupPid::from(u64::from(pid)))
                .with_context(|| format!("cannot move process {pid} into {}", directory.display()))?;
        }
        Ok(())
    }

    /// The controller of the cgroup's own directory.
    fn cpu(&self) -> CpuController {
        self.controller(self.hierarchy.cpu.join(&self.path))
    }

    /// A directory of the cgroup in any hierarchy: `cgroup.procs` is in all of them.
    fn controller(&self, directory: PathBuf) -> CpuController {
        CpuController::new(directory, self.hierarchy.version == CgroupVersion::V2)
    }

    fn weight_file(&self) -> &'static str {
        match self.hierarchy.version {
            CgroupVersion::V1 => "cpu.shares",
            CgroupVersion::V2 => "cpu.weight",
        }
    }

    /// Path of a file of the cpu controller.
    fn file(&self, name: &str) -> PathBuf {
        self.hierarchy.cpu.join(&self.path).join(name)
    }
}

fn make_directory(path: &Path) -> anyhow::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

/// v1: gives a new cpuset its parent's CPUs and memory nodes; without them no process may enter.
fn inherit_cpuset(parent: &Path, child: &Path) -> anyhow::Result<()> {
    for name in ["cpuset.cpus", "cpuset.mems"] {
        let file = child.join(name);
        if fs::read_to_string(&file).is_ok_and(|text| text.trim().is_empty()) {
            control::write(&file, fs::read_to_string(parent.join(name))?.trim())?;
        }
    }
    Ok(())
}

/// v2: enables the available controllers whose files the agent reads for a cgroup's children.
fn hand_down(directory: &Path) -> anyhow::Result<()> {
    let available = fs::read_to_string(directory.join("cgroup.controllers"))?;
    for name in available.split_whitespace().filter(|name| CONTROLLERS.contains(name)) {
        match control::write(&directory.join("cgroup.subtree_control"), &format!("+{name}")) {
            Err(error) if name == "cpu" => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

fn subtree_control(hierarchy: &Hierarchy) -> PathBuf {
    hierarchy.cpu.join("cgroup.subtree_control")
}

/// The mounts in which the demo creates cgroups, without duplicates.
fn mounts(hierarchy: &Hierarchy) -> Vec<&Path> {
    let more = [&hierarchy.cpuacct, &hierarchy.cpuset, &hierarchy.memory];
    let mut mounts = vec![hierarchy.cpu.as_path()];
    for mount in more.into_iter().flatten() {
        if !mounts.contains(&mount.as_path()) {
            mounts.push(mount);
        }
    }
    mounts
}

/// Locks a demo's directory; `None` if its demo is running. The lock ends with its process, even if
/// that is killed.
fn lock(directory: &Path) -> anyhow::Result<Option<File>> {
    let file =
        File::open(directory).with_context(|| format!("cannot open {}", directory.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", directory.display())),
    }
}

fn remove_leftovers(hierarchy: &Hierarchy) {
    for mount in mounts(hierarchy) {
        let found = subdirectories(mount).unwrap_or_default();
        for name in found.into_iter().map(|child| child.name).filter(|name| is_top(name)) {
            let locked = hierarchy.cpu.join(&name);
            let is_left = !locked.exists() || lock(&locked).is_ok_and(|lock| lock.is_some());
            if is_left {
                // A leftover that cannot be removed does no harm.
                let _ = remove(&mount.join(&name), Instant::now() + REMOVAL);
            }
        }
    }
}

fn is_top(name: &str) -> bool {
    name.strip_prefix(TOP_PREFIX).is_some_and(|pid| pid.parse::<u32>().is_ok())
}

/// Kills all processes in a cgroup and below, and removes it. Succeeds if the cgroup does not
/// exist.
fn remove(directory: &Path, deadline: Instant) -> io::Result<()> {
    loop {
        kill_all(directory);
        match remove_once(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

fn remove_once(directory: &Path) -> io::Result<()> {
    for child in subdirectories(directory).unwrap_or_default() {
        remove_once(&directory.join(child.name))?;
    }
    fs::remove_dir(directory)
}

fn kill_all(directory: &Path) {
    for child in subdirectories(directory).unwrap_or_default() {
        kill_all(&directory.join(child.name));
    }
    let pids = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in pids.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
        // Fails if the process has just ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that is killed even if the test fails.
    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Starts a process in a container's cgroup of the tree.
    fn inhabit(tree: &Tree) -> Sleeper {
        let cgroup = tree.create("kubepods/burstable/pod1/c").unwrap();
        let sleeper =
            Sleeper(Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap());
        cgroup.add_process(sleeper.0.id()).unwrap();
        sleeper
    }

    fn directories(tree: &Tree) -> Vec<PathBuf> {
        mounts(&tree.hierarchy).iter().map(|mount| mount.join(&tree.top)).collect()
    }

    /// A single test: the root cgroup is named after the process, so two tests at once would
    /// collide.
    #[test]
    fn cgroups_are_removed_after_a_panic_and_after_a_kill() {
        let mut left = Vec::new();
        let mut sleepers = Vec::new();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let tree = Tree::new().unwrap();
            left = directories(&tree);
            sleepers.push(inhabit(&tree));
            assert!(
                left.iter().all(|directory| directory.join("kubepods/burstable/pod1/c").is_dir()),
                "{left:?}"
            );
            panic!("on purpose");
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"on purpose"));
        assert!(left.iter().all(|directory| !directory.exists()), "{left:?}");

        let mut killed = Tree::new().unwrap();
        sleepers.push(inhabit(&killed));
        remove_leftovers(&killed.hierarchy);
        assert!(
            left.iter().all(|directory| directory.exists()),
            "the cgroups of a demo that lives were taken"
        );
        // Releases the lock, as the kernel does for a killed process.
        killed.lock = None;
        std::mem::forget(killed);
        let next = Tree::new().unwrap();
        assert!(directories(&next).iter().all(|directory| !directory.join("kubepods").exists()));
    }
}
