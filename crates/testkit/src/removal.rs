//! Removal of cgroups with everything in them.

use std::fs;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cgroupfs::subdirectories;
use rustix::process::{Pid, Signal, kill_process};

use crate::Cgroup;

/// Maximum time for processes to die and their cgroups to empty; a throttled process dies at its
/// next period.
const REMOVAL: Duration = Duration::from_secs(10);
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// A cgroup that is removed on drop with all processes in it and all cgroups below, also during a
/// panic.
#[derive(Debug)]
pub struct OwnedCgroup(Cgroup);

impl OwnedCgroup {
    /// Creates the cgroup at a path relative to the root of each hierarchy. Its parent must exist.
    #[must_use]
    pub fn create(path: impl Into<PathBuf>) -> Self {
        Self(Cgroup::create(path))
    }
}

impl Deref for OwnedCgroup {
    type Target = Cgroup;

    fn deref(&self) -> &Cgroup {
        &self.0
    }
}

impl Drop for OwnedCgroup {
    fn drop(&mut self) {
        remove_each(&self.0, remove);
    }
}

/// Applies the removal to the cgroup's directory in each hierarchy.
pub(crate) fn remove_each(cgroup: &Cgroup, remove: impl Fn(&Path) -> io::Result<()>) {
    for directory in cgroup.dirs() {
        if let Err(error) = remove(&directory) {
            // Must not panic, since this may run during a panic.
            eprintln!("{} is left behind: {error}", directory.display());
        }
    }
}

/// Kills all processes in the directory's cgroup and below, and removes it. Succeeds if the cgroup
/// does not exist.
///
/// # Errors
/// A process is still there after ten seconds, or the kernel rejects the removal.
pub fn remove(directory: &Path) -> io::Result<()> {
    let deadline = Instant::now() + REMOVAL;
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
    let kill = directory.join("cgroup.kill");
    // v2 from Linux 5.14: with all below, and those that a process forks meanwhile.
    if kill.exists() && fs::write(kill, "1").is_ok() {
        return;
    }
    for child in subdirectories(directory).unwrap_or_default() {
        kill_all(&directory.join(child.name));
    }
    let pids = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in pids.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
        // Fails if the process has just ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}
