//! Taking everything back: every cgroup that was written gets all CPUs again, or what it asked for before.

use std::path::Path;

use cgroupfs::{Hierarchy, Version, control, cpuset};
use kernel_text::CpuSet;
use placement::{Holding, PodCgroups, Uid, drain_steps};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::carry_out::carry_out;
use crate::checkpoint::Checkpoint;
use crate::pinner::chain;
use crate::state_dir::{DrainWish, Lock};
use crate::tree::{PodTree, View};
use crate::{Error, Machine, Result};

/// What a drain came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drained {
    /// Cpusets that were written.
    pub written: usize,
    /// What could not be given back, in words.
    pub errors: Vec<String>,
}

/// Asks a running agent to take everything back and waits until it has; then, or without one, does so itself. `None`
/// where no checkpoint tells of anything to give back: the kubelet's static policy confines pods too, and those are its own.
///
/// # Errors
/// No cpusets here, a state directory that cannot be written, or an agent that does not let go within `patience`.
pub fn drain(
    hierarchy: &Hierarchy,
    kubepods: Vec<String>,
    sys_root: &Path,
    state_dir: &Path,
    patience: Duration,
) -> Result<Option<Drained>> {
    std::fs::create_dir_all(state_dir).map_err(Error::state("make", state_dir))?;
    let wish = DrainWish::of(state_dir);
    wish.say()?;
    let _lock = wait_for_lock(state_dir, Instant::now() + patience)?;
    let checkpoint = match Checkpoint::read(state_dir) {
        Ok(None) => return Ok(None),
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(error = chain(&error), "every pod's cpuset is widened");
            None
        }
    };
    let mut tree = PodTree::new(hierarchy, kubepods)?;
    tree.walk(Instant::now());
    let view = tree.view(&Machine::read(sys_root)?.possible)?;
    let drained = give_back(&view, checkpoint.as_ref(), tree.version());
    if drained.errors.is_empty() {
        Checkpoint::remove(state_dir)?;
    }
    Ok(Some(drained))
}

fn wait_for_lock(state_dir: &Path, deadline: Instant) -> Result<Lock> {
    loop {
        match Lock::take(state_dir) {
            Err(Error::Locked(_)) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
            done => return done,
        }
    }
}

/// Widens what was touched, parents first; then gives back, children first, what asked for less before. With a
/// checkpoint that cannot be read, widens every pod.
pub(crate) fn give_back(view: &View, checkpoint: Option<&Checkpoint>, version: Version) -> Drained {
    let mut drained = Drained::default();
    let held: BTreeMap<Uid, Holding> = checkpoint.map(|c| c.committed.to_current().held).unwrap_or_default();
    let touched = |pod: &&PodCgroups| {
        let is = |path: &Path| checkpoint.is_none_or(|checkpoint| was_touched(checkpoint, view, path));
        pod.cgroups.iter().any(|cgroup| is(&cgroup.path))
    };
    let pods: Vec<PodCgroups> = view.pods.iter().filter(touched).cloned().collect();
    match drain_steps(&view.hierarchy, &pods, &held) {
        Ok(steps) => {
            for step in &steps {
                drained.count(carry_out(step, version).map(|()| matches!(step, placement::Step::Write { .. })));
            }
        }
        Err(error) => drained.errors.push(error.to_string()),
    }
    for (path, was) in checkpoint.iter().flat_map(|checkpoint| checkpoint.touched.iter().rev()) {
        if checkpoint.is_some_and(|checkpoint| was_touched(checkpoint, view, path)) {
            drained.count(restore(path, &still_there(&was.before, &view.hierarchy), version));
        }
    }
    drained
}

fn was_touched(checkpoint: &Checkpoint, view: &View, path: &Path) -> bool {
    let inode = view.seen.get(path).map(|(_, inode)| *inode);
    checkpoint.touched.get(path).is_some_and(|was| Some(was.inode) == inode)
}

/// What is left of what was asked for before: v1 refuses a CPU that has gone offline since (EINVAL), and has taken it out
/// of every cpuset itself.
fn still_there(before: &str, hierarchy: &placement::Hierarchy) -> String {
    match before.parse::<CpuSet>() {
        Ok(cpus) if hierarchy.version == placement::Version::V1 => cpus.intersection(&hierarchy.ceiling).to_string(),
        _ => before.to_owned(),
    }
}

/// What was asked for before. Kernels that do not empty the cpuset of a cgroup with processes (ENOSPC, `validate_change` in
/// kernel/cgroup/cpuset.c) leave the full mask in an empty set's place, which has the same effect.
fn restore(path: &Path, before: &str, version: Version) -> Result<bool> {
    let now = cpuset::read(path, version)?.map(|cpuset| cpuset.configured.to_string());
    if now.as_deref().is_none_or(|now| now == before) {
        return Ok(false);
    }
    match control::write(&path.join(cpuset::CPUS), if before.is_empty() { "\n" } else { before }) {
        Err(error) if before.is_empty() && error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => Ok(false),
        written => Ok(written.map(|()| true)?),
    }
}

impl Drained {
    fn count(&mut self, done: Result<bool>) {
        match done {
            Ok(wrote) => self.written += usize::from(wrote),
            // What is gone needs nothing back.
            Err(error) if error.is_vanished() => {}
            Err(error) => self.errors.push(chain(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_v1_a_cpu_that_has_gone_offline_is_not_asked_for_again() {
        let still = |before, version| {
            let ceiling: CpuSet = "0-2".parse().unwrap();
            still_there(before, &placement::Hierarchy { version, full: ceiling.clone(), ceiling })
        };
        assert_eq!(still("1-3", placement::Version::V1), "1-2");
        assert_eq!(still("1-3", placement::Version::V2), "1-3");
        assert_eq!(still("", placement::Version::V2), "");
    }
}
