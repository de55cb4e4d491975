//! A kubepods-shaped tree of real cgroups, removed on drop.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::cgroup::{Cgroup, LAYOUT};
use super::turn;

/// Kubernetes QoS class, as in the kubelet's directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// `<own name>/kubepods` with the QoS levels, as the kubelet creates them with the cgroupfs driver.
///
/// Removed on drop with all processes in it, also during a panic. While it exists, no other test
/// uses the CPUs.
pub(crate) struct RealTree {
    root: Cgroup,
    kubepods: Cgroup,
    _turn: MutexGuard<'static, ()>,
}

impl RealTree {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let turn = turn();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = Cgroup::create(format!("cpuwarden-it-{}-{number}", std::process::id()).into());
        // From here on, a panic removes what was created.
        let mut tree = Self { kubepods: root.clone(), root, _turn: turn };
        // Other load on this machine must not influence throttling here.
        tree.root.set_highest_weight();
        tree.kubepods = tree.root.child("kubepods");
        for level in ["burstable", "besteffort"] {
            tree.kubepods.child(level);
        }
        tree
    }

    /// The cgroup above kubepods, which stands for the node's root cgroup.
    pub(crate) fn above(&self) -> &Cgroup {
        &self.root
    }

    /// The kubepods root.
    pub(crate) fn kubepods(&self) -> &Cgroup {
        &self.kubepods
    }

    /// Creates a pod's cgroup. Its containers are its children.
    pub(crate) fn pod(&self, qos: Qos, uid: &str) -> Cgroup {
        let level = match qos {
            Qos::Guaranteed => "",
            Qos::Burstable => "burstable",
            Qos::BestEffort => "besteffort",
        };
        Cgroup::create(self.kubepods.path().join(level).join(format!("pod{uid}")))
    }
}

impl Drop for RealTree {
    fn drop(&mut self) {
        for directory in self.root.dirs() {
            if let Err(left) = remove(&directory) {
                // Must not panic, since this may run during a panic.
                eprintln!("{} is left behind: {left}", directory.display());
            }
        }
    }
}

/// Kills all processes in a cgroup and below, and removes it.
fn remove(directory: &Path) -> std::io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        kill_all(directory);
        match remove_once(directory) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            done => return done,
        }
    }
}

fn remove_once(directory: &Path) -> std::io::Result<()> {
    for child in children(directory) {
        remove_once(&child)?;
    }
    fs::remove_dir(directory)
}

fn kill_all(directory: &Path) {
    if LAYOUT.is_v2 {
        let _ = fs::write(directory.join("cgroup.kill"), "1");
        return;
    }
    children(directory).iter().for_each(|child| kill_all(child));
    for pid in fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default().lines() {
        let _ = pid
            .parse()
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
    }
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}
