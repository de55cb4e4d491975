//! A kubepods-shaped tree of real cgroups, removed on drop.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::cgroup::{Cgroup, LAYOUT};
use super::stage::OnStage;
use super::turn;

/// Kubernetes QoS class, as in the kubelet's directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// `<own name>/tree-<number>/kubepods` with the QoS levels, as the kubelet creates them with the cgroupfs
/// driver.
///
/// Removed on drop with all processes in it, also during a panic.
pub(crate) struct RealTree {
    root: Cgroup,
    kubepods: Cgroup,
    _stage: OnStage,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl RealTree {
    /// A tree for load: while it exists, no other test of this process loads the CPUs.
    pub(crate) fn new() -> Self {
        Self::create(Some(turn()))
    }

    /// A tree for containers that use a small part of a CPU: other tests may load the CPUs.
    pub(crate) fn beside_others() -> Self {
        Self::create(None)
    }

    fn create(turn: Option<MutexGuard<'static, ()>>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let stage = OnStage::enter();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = stage.cgroup().child(&format!("tree-{number}"));
        // From here on, a panic removes what was created.
        let mut tree = Self { kubepods: root.clone(), root, _stage: stage, _turn: turn };
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
        remove_all(&self.root, remove);
    }
}

pub(super) fn remove_all(cgroup: &Cgroup, remove: impl Fn(&Path) -> std::io::Result<()>) {
    for directory in cgroup.dirs() {
        if let Err(left) = remove(&directory) {
            // Must not panic, since this may run during a panic.
            eprintln!("{} is left behind: {left}", directory.display());
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
