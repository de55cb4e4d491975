//! Compares the kernel's cpusets with the checkpoint.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use placement::{Class, Holding, PodCgroups, Uid};
use state_dir::PinningCheckpoint;

use crate::grants::to_current;
use crate::tree::{PodTree, View};
use crate::{Machine, NodeConfig, Result};

/// UIDs of the pods whose grants are in effect: each of their cgroups has exactly these CPUs, and
/// no other pod has any of them, except best-effort pods on an LSR pod's CPUs.
///
/// # Errors
/// No cpusets here.
pub fn verified(node: &NodeConfig, checkpoint: &PinningCheckpoint) -> Result<BTreeSet<String>> {
    let mut tree = PodTree::new(&node.hierarchy, node.kubepods.clone(), 0, None)?;
    tree.reconcile(Instant::now(), Duration::ZERO);
    let view = tree.view(&Machine::read(&node.sys_root)?.possible)?;
    let held = to_current(&checkpoint.committed).held;
    Ok(held
        .iter()
        .filter(|(uid, holding)| holds(uid, holding, &view, checkpoint))
        .map(|(uid, _)| uid.to_string())
        .collect())
}

fn holds(uid: &Uid, holding: &Holding, view: &View, checkpoint: &PinningCheckpoint) -> bool {
    let own = view.pods.iter().find(|pod| pod.uid == *uid);
    let has_its_own = own.is_some_and(|pod| {
        pod.cgroups
            .iter()
            .filter(|cgroup| cgroup.ours)
            .all(|cgroup| cgroup.effective == holding.cpus)
    });
    let may_be_there = |pod: &PodCgroups| {
        pod.uid == *uid
            || (holding.class == Class::Lsr && checkpoint.best_effort.contains(&*pod.uid))
    };
    let mut strangers =
        view.pods.iter().filter(|pod| !may_be_there(pod)).flat_map(|pod| &pod.cgroups);
    has_its_own && strangers.all(|cgroup| cgroup.effective.is_disjoint(&holding.cpus))
}
