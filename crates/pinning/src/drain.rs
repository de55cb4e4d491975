//! Undoes pinning: every written cgroup gets all CPUs again, or its original CPUs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use cgroupfs::{control, cpuset, node};
use kernel_text::{CgroupVersion, CpuSet};
use placement::{Holding, PodCgroups, Uid, drain_steps};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use state_dir::{DrainRequest, Lock, PinningCheckpoint, Writer};
use watchdog::errors::chain;

use crate::carry_out::{carry_out, write_v1};
use crate::grants::to_current;
use crate::nested::{self, NarrowedCpusets};
use crate::node_config::NodeConfig;
use crate::owner::{CpuManagerState, KubeletsOwn};
use crate::tree::{PodTree, View};
use crate::{Error, Result};

/// Configuration of [`drain`].
#[derive(Debug, Clone)]
pub struct DrainConfig {
    /// Cgroups and files of the node.
    pub node: NodeConfig,
    /// The pods to widen.
    pub scope: Scope,
}

/// The pods that a drain widens. Pods with exclusive CPUs from the kubelet are never widened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Pods that were written, according to the checkpoint.
    Written,
    /// Every pod, for use if the checkpoint is lost.
    EveryPod,
}

/// Result of a drain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Number of cpusets that were written.
    pub written: usize,
    /// Errors of the cgroups that could not be restored, one message each.
    pub errors: Vec<String>,
}

/// The process that drained, with the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainOutcome {
    /// This process.
    Here(Drained),
    /// A running agent; `None` if it could not store its result.
    ByAgent(Option<Drained>),
    /// Nothing to drain: no checkpoint of this boot. The kubelet's static policy confines pods too,
    /// so pods are not widened.
    Nothing,
}

/// Asks a running agent to drain and waits for it. Drains itself if there is no agent, if the agent
/// leaves a checkpoint, or with [`Scope::EveryPod`].
///
/// # Errors
/// No cpusets here, a checkpoint of another hierarchy, or an agent that cannot be asked.
/// Also an agent that does not release the lock within `timeout`.
pub fn drain(config: &DrainConfig, timeout: Duration) -> Result<DrainOutcome> {
    let state_dir = &config.node.state_dir;
    // An agent that has ever enforced has created it. A drain leaves nothing where there was nothing.
    if config.scope == Scope::Written && matches!(state_dir.try_exists(), Ok(false)) {
        return Ok(DrainOutcome::Nothing);
    }
    let request = DrainRequest::of(state_dir);
    let asked = request.make();
    let (_lock, waited) = wait_for_lock(state_dir, asked, Instant::now() + timeout)?;
    let found = match PinningCheckpoint::read(state_dir) {
        Ok(found) => found
            .filter(|checkpoint| !is_of_another_boot(checkpoint, &config.node.proc_root))
            .map(Some),
        Err(error) => {
            tracing::warn!(
                error = chain(&error),
                "failed to read the checkpoint; widening the cpuset of every pod"
            );
            Some(None)
        }
    };
    match found {
        None if config.scope == Scope::Written => Ok(match request.answered() {
            None if !waited => DrainOutcome::Nothing,
            answer => DrainOutcome::ByAgent(answer),
        }),
        None | Some(None) => give_back_here(config, PinningCheckpoint::default(), Scope::EveryPod)
            .map(DrainOutcome::Here),
        Some(Some(checkpoint)) => {
            give_back_here(config, checkpoint, config.scope).map(DrainOutcome::Here)
        }
    }
}

fn is_of_another_boot(checkpoint: &PinningCheckpoint, proc_root: &Path) -> bool {
    let boots = (&checkpoint.boot_id, node::boot_id(proc_root));
    matches!(boots, (Some(then), Some(now)) if *then != now)
}

/// Waits until no agent holds the lock. The flag is true if an agent held it. A state directory
/// without write access does not block the drain: if this process cannot take a lock there, no
/// agent holds it.
fn wait_for_lock(
    state_dir: &Path,
    asked: state_dir::Result<()>,
    deadline: Instant,
) -> Result<(Option<Lock>, bool)> {
    match Lock::take(state_dir, Writer::Pinning) {
        Ok(lock) => Ok((Some(lock), false)),
        Err(state_dir::Error::Locked(_)) => {
            // If asking failed, the agent that holds the lock does not know that it should drain.
            asked?;
            Ok((Some(Lock::wait(state_dir, Writer::Pinning, deadline)?), true))
        }
        Err(error) => {
            tracing::warn!(
                error = chain(&error),
                "draining without the lock of the state directory"
            );
            Ok((None, false))
        }
    }
}

fn give_back_here(
    config: &DrainConfig,
    mut checkpoint: PinningCheckpoint,
    scope: Scope,
) -> Result<Drained> {
    let mut tree = PodTree::new(&config.node.hierarchy, config.node.kubepods.clone(), 0, None)?;
    tree.reconcile(Instant::now(), Duration::ZERO);
    let entries = checkpoint.written.len();
    if let Some(first) = checkpoint.written.keys().next().cloned()
        && checkpoint.relocate(tree.mount()) == 0
        && scope == Scope::Written
        && !checkpoint.has_place_below(tree.mount())
    {
        let (checkpoint, mount) =
            (PinningCheckpoint::path(&config.node.state_dir), tree.mount().to_owned());
        return Err(Error::Unmatched { checkpoint, entries, first, mount });
    }
    let view = tree.view(&node::cpu_list(&config.node.sys_root, "possible")?)?;
    let kubelets = CpuManagerState::read(&config.node.cpu_manager_state)
        .map(|state| state.exclusive())
        .unwrap_or_default();
    let drained = give_back(&tree, &view, &checkpoint, scope, &kubelets);
    if drained.errors.is_empty()
        && let Err(error) = PinningCheckpoint::remove(&config.node.state_dir)
    {
        tracing::warn!(error = chain(&error), "failed to delete the checkpoint");
    }
    Ok(drained)
}

/// Widens the written cgroups, parents first; then restores those that originally had fewer CPUs,
/// children first. Leaves alone containers with exclusive CPUs from the kubelet, and widens no
/// other onto these CPUs.
pub(crate) fn give_back(
    tree: &PodTree,
    view: &View,
    checkpoint: &PinningCheckpoint,
    scope: Scope,
    kubelets: &KubeletsOwn,
) -> Drained {
    let (mut drained, version) = (Drained::default(), tree.version());
    let held: BTreeMap<Uid, Holding> = to_current(&checkpoint.committed).held;
    let hierarchy = open_to_all(&view.hierarchy, kubelets);
    let (own, others): (Vec<_>, Vec<_>) =
        view.pods.iter().partition(|pod| kubelets.pods.contains(&pod.uid));
    let is_written = |pod: &PodCgroups| {
        scope == Scope::EveryPod
            || pod.cgroups.iter().any(|cgroup| was_written(checkpoint, &cgroup.path))
    };
    let pods: Vec<PodCgroups> = others.into_iter().filter(|pod| is_written(pod)).cloned().collect();
    let mut narrowed = checkpoint.narrowed.clone();
    match drain_steps(&hierarchy, &pods, &held) {
        Ok(steps) => {
            for step in &steps {
                let done = carry_out(step, version, &mut narrowed);
                drained.count(done.map(|()| matches!(step, placement::Step::Write { .. })));
            }
        }
        Err(error) => drained.errors.push(error.to_string()),
    }
    let is_kubelets =
        |path: &Path| own.iter().any(|pod| pod.cgroups.iter().any(|cgroup| cgroup.path == path));
    for (path, was) in checkpoint.written.iter().rev() {
        if was_written(checkpoint, path) && !is_kubelets(path) {
            let before = still_there(&was.original, &hierarchy, &kubelets.cpus);
            drained.count(restore(path, &before, version, &mut narrowed));
        }
    }
    // Nested cpusets that did not grow with their container.
    drained.written += nested::give_back(&narrowed);
    drained
}

/// The hierarchy with all CPUs except those that the kubelet granted exclusively.
fn open_to_all(
    hierarchy: &placement::CpusetHierarchy,
    kubelets: &KubeletsOwn,
) -> placement::CpusetHierarchy {
    let rest = hierarchy.ceiling.difference(&kubelets.cpus);
    if kubelets.cpus.is_empty() || rest.is_empty() {
        return hierarchy.clone();
    }
    placement::CpusetHierarchy { version: hierarchy.version, ceiling: rest.clone(), full: rest }
}

/// Whether the path is still the cgroup that was written (same inode).
fn was_written(checkpoint: &PinningCheckpoint, path: &Path) -> bool {
    let was = checkpoint.written.get(path);
    was.is_some_and(|was| cgroupfs::inode(path).is_ok_and(|inode| inode == was.inode))
}

/// The part of the original CPUs that can be restored. v1 rejects a CPU that has gone offline since
/// (EINVAL) and has removed it from every cpuset itself. CPUs that the kubelet granted exclusively
/// since are left out.
fn still_there(before: &str, hierarchy: &placement::CpusetHierarchy, kubelets: &CpuSet) -> String {
    let Ok(cpus) = before.parse::<CpuSet>() else { return before.to_owned() };
    match hierarchy.version {
        CgroupVersion::V1 => cpus.intersection(&hierarchy.ceiling).to_string(),
        CgroupVersion::V2 if kubelets.is_empty() => before.to_owned(),
        CgroupVersion::V2 if cpus.difference(kubelets).is_empty() => hierarchy.full.to_string(),
        CgroupVersion::V2 => cpus.difference(kubelets).to_string(),
    }
}

/// Restores the original CPUs; returns whether a write was needed. The kernel refuses to empty the
/// cpuset of a cgroup with processes (ENOSPC), and on v1 of one with a child that has CPUs (EBUSY,
/// both from `validate_change` in kernel/cgroup/cpuset.c): the agent found the cgroup before its
/// runtime filled it. The cgroup then keeps all CPUs, which has the same effect as an empty set.
fn restore(
    path: &Path,
    before: &str,
    version: CgroupVersion,
    narrowed: &mut NarrowedCpusets,
) -> Result<bool> {
    let now = cpuset::read(path, version)?.map(|cpuset| cpuset.configured.to_string());
    if now.as_deref().is_none_or(|now| now == before) {
        return Ok(false);
    }
    if let (CgroupVersion::V1, Ok(cpus)) = (version, before.parse::<CpuSet>())
        && !cpus.is_empty()
    {
        return write_v1(path, &cpus, narrowed).map(|()| true);
    }
    match control::write(&path.join(cpuset::CPUS), if before.is_empty() { "\n" } else { before }) {
        Err(error) if before.is_empty() && is_needed_by_others(&error) => Ok(false),
        written => Ok(written.map(|()| true)?),
    }
}

/// Whether the kernel refused to empty a cpuset because of its processes or children.
fn is_needed_by_others(error: &cgroupfs::Error) -> bool {
    [Errno::NOSPC, Errno::BUSY]
        .map(|errno| Some(errno.raw_os_error()))
        .contains(&error.raw_os_error())
}

impl Drained {
    fn count(&mut self, done: Result<bool>) {
        match done {
            Ok(wrote) => self.written += usize::from(wrote),
            // A removed cgroup needs no restoring.
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
            still_there(
                before,
                &placement::CpusetHierarchy { version, full: ceiling.clone(), ceiling },
                &CpuSet::new(),
            )
        };
        assert_eq!(still("1-3", CgroupVersion::V1), "1-2");
        assert_eq!(still("1-3", CgroupVersion::V2), "1-3");
        assert_eq!(still("", CgroupVersion::V2), "");
    }

    #[test]
    fn on_v2_cpus_of_the_kubelet_are_not_given_back() {
        let rest: CpuSet = "0-2".parse().unwrap();
        let hierarchy = placement::CpusetHierarchy {
            version: CgroupVersion::V2,
            full: rest.clone(),
            ceiling: rest,
        };
        let still = |before| still_there(before, &hierarchy, &"3".parse().unwrap());
        assert_eq!([still(""), still("2-3"), still("3")], ["0-2", "2", "0-2"]);
    }
}
