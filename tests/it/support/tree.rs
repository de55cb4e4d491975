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

/// `<own name>/tree/kubepods` with the QoS levels, as the kubelet creates them with the cgroupfs
/// driver.
///
/// Removed on drop with all processes in it, also during a panic. While it exists, no other test of
/// this process uses the CPUs.
pub(crate) struct RealTree {
    root: Cgroup,
    kubepods: Cgroup,
    _stage: Stage,
    _turn: MutexGuard<'static, ()>,
}

impl RealTree {
    pub(crate) fn new() -> Self {
        let turn = turn();
        let stage = Stage::enter();
        let root = stage.cgroup.child("tree");
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

/// A cgroup that comes before everything else on the machine. In it, this process and its tree have
/// the same weight, whatever the weight of the cgroup from which the tests were started: neither
/// its loads nor the agent can starve.
struct Stage {
    cgroup: Cgroup,
    /// Cgroup of this process and the agents that it starts.
    runner: Cgroup,
    /// `cgroup.procs` of the cgroup where this process was before.
    before: PathBuf,
}

impl Stage {
    fn enter() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cpuwarden-it-{}-{number}", std::process::id());
        let before = Cgroup::of_this_process().procs();
        let cgroup = Cgroup::create(name.into());
        let stage = Self { runner: cgroup.existing_child("runner"), cgroup, before };
        stage.cgroup.set_highest_weight();
        let runner = stage.cgroup.child("runner");
        fs::write(runner.procs(), std::process::id().to_string()).unwrap();
        stage
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // An agent may outlive the tree.
        for pid in fs::read_to_string(self.runner.procs()).unwrap_or_default().lines() {
            let _ = fs::write(&self.before, pid);
        }
        // Not with the processes in it: this is one of them.
        [&self.runner, &self.cgroup]
            .into_iter()
            .for_each(|cgroup| remove_all(cgroup, |directory| fs::remove_dir(directory)));
    }
}

fn remove_all(cgroup: &Cgroup, remove: impl Fn(&Path) -> std::io::Result<()>) {
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
