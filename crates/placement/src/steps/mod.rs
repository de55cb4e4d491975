//! The order in which cpusets are written, as data; `pinning` carries it out and stops where a step fails.
//!
//! Everybody shrinks first, that is verified, then CPUs are granted, then everybody grows. Within one pod the order is
//! that of its hierarchy: on cgroup v1 a child must lie within its parent at every moment (EACCES, EBUSY otherwise), so
//! top-down the union of old and new, then bottom-up the new; on v2 nothing is rejected and a child follows its parent.
//! A cpuset that already has the meant effect is not written: a rewrite resets the affinity that an application set.

mod build;
mod tree;

use std::collections::BTreeMap;
use std::path::PathBuf;

use kernel_text::CpuSet;

use crate::plan::{Class, Holding, Placement};
use crate::pod::Uid;

use build::Build;

/// The rules that a cpuset hierarchy follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// cgroup v1: every cpuset lies within its parent's, or the write fails.
    V1,
    /// cgroup v2: effective = configured ∩ parent's, and the parent's where that is empty.
    V2,
}

/// The part of the hierarchy that is not ours to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its rules.
    pub version: Version,
    /// Effective CPUs of the pods' common ancestor.
    pub ceiling: CpuSet,
    /// What is written for the whole of `ceiling`: every possible CPU on v2, so that it outlives hotplug; the ceiling
    /// itself on v1, which refuses more.
    pub full: CpuSet,
}

/// One cpuset cgroup of a pod as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Its directory.
    pub path: PathBuf,
    /// Place of its parent among the pod's cgroups, before its own; `None` where the parent is not the pod's.
    pub parent: Option<usize>,
    /// `cpuset.cpus`; empty on v2 where it was never written.
    pub configured: CpuSet,
    /// `cpuset.cpus.effective` (v2), `cpuset.effective_cpus` (v1).
    pub effective: CpuSet,
    /// The pod's own or a container's. A cgroup that an application made below its container is not ours: it is only
    /// kept within the pod's CPUs, and follows them where it followed its parent.
    pub ours: bool,
}

/// The cgroups of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCgroups {
    /// Whose they are.
    pub uid: Uid,
    /// Parents before children.
    pub cgroups: Vec<Cgroup>,
}

/// From what is to what is planned.
#[derive(Debug, Clone, Copy)]
pub struct Transition<'a> {
    /// The hierarchy's rules.
    pub hierarchy: &'a Hierarchy,
    /// The pods' cgroups as they are now. Pods without a placement are left alone.
    pub pods: &'a [PodCgroups],
    /// CPUs that exclusive pods were granted before.
    pub held: &'a BTreeMap<Uid, Holding>,
    /// What is planned.
    pub placements: &'a BTreeMap<Uid, Placement>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write `cpus` into the cgroup's `cpuset.cpus` and read the effective set back; done when it is as meant.
    Write {
        /// Whose cgroup.
        uid: Uid,
        /// The cgroup.
        path: PathBuf,
        /// The text to write, as a set; never empty.
        cpus: CpuSet,
        /// The effective set that must read back.
        effective: CpuSet,
    },
    /// Read the effective set once more before CPUs are granted: another writer may have come between.
    Verify {
        /// Whose cgroup.
        uid: Uid,
        /// The cgroup.
        path: PathBuf,
        /// The effective set that must read back.
        effective: CpuSet,
    },
    /// From here on these CPUs are the pod's no more. Nothing to write.
    Release {
        /// Whose they were.
        uid: Uid,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// From here on these CPUs, all that the pod has, are its own, as this class. Nothing to write.
    Grant {
        /// Whose they are.
        uid: Uid,
        /// What it has, and as which class.
        holding: Holding,
    },
}

/// A transition that cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// An empty set cannot be written to a populated cgroup.
    #[error("pod {0}: no CPU planned")]
    Empty(Uid),
    /// CPUs that the hierarchy above the pod does not have.
    #[error("pod {uid}: CPUs {cpus} are beyond its ancestors' cpuset")]
    BeyondCeiling {
        /// The pod.
        uid: Uid,
        /// The CPUs beyond.
        cpus: CpuSet,
    },
    /// A child before its parent.
    #[error("{path}: its parent does not come before it", path = .0.display())]
    Order(PathBuf),
}

/// The steps from what is to what is planned; none where nothing changes.
///
/// # Errors
/// A placement that is empty or beyond the ceiling, or cgroups that are not in order. Nothing has been written then.
pub fn write_steps(transition: &Transition<'_>) -> Result<Vec<Step>, StepError> {
    for pod in transition.pods {
        in_order(pod)?;
        if let Some(placement) = transition.placements.get(&pod.uid) {
            if placement.cpus.is_empty() {
                return Err(StepError::Empty(pod.uid.clone()));
            }
            let beyond = placement.cpus.difference(&transition.hierarchy.ceiling);
            if !beyond.is_empty() {
                return Err(StepError::BeyondCeiling { uid: pod.uid.clone(), cpus: beyond });
            }
        }
    }
    Ok(Build::new(*transition).run())
}

/// The steps that widen every cgroup of the pods to the whole ceiling, parents first, and release what is held.
///
/// # Errors
/// Cgroups that are not in order, or an empty ceiling.
pub fn drain_steps(
    hierarchy: &Hierarchy,
    pods: &[PodCgroups],
    held: &BTreeMap<Uid, Holding>,
) -> Result<Vec<Step>, StepError> {
    let everything = Placement { class: Class::Share, cpus: hierarchy.ceiling.clone(), spec: None };
    let placements = pods.iter().map(|pod| (pod.uid.clone(), everything.clone())).collect();
    write_steps(&Transition { hierarchy, pods, held, placements: &placements })
}

/// The writes that let a pod run on `cpus` too, parents first; no cgroup loses a CPU. Cgroups that `may_widen` does not
/// take are not written.
#[must_use]
pub fn widen_steps(
    hierarchy: &Hierarchy,
    pod: &PodCgroups,
    cpus: &CpuSet,
    may_widen: impl Fn(&Cgroup) -> bool,
) -> Vec<Step> {
    let mut effective: Vec<CpuSet> = Vec::with_capacity(pod.cgroups.len());
    let mut steps = Vec::new();
    for cgroup in &pod.cgroups {
        let above = cgroup.parent.map_or(&hierarchy.ceiling, |parent| &effective[parent]);
        let now = match hierarchy.version {
            Version::V1 => cgroup.effective.clone(),
            Version::V2 => Some(cgroup.configured.intersection(above))
                .filter(|own| !own.is_empty())
                .unwrap_or_else(|| above.clone()),
        };
        let goal = now.union(&cpus.intersection(above));
        if goal == now || !may_widen(cgroup) {
            effective.push(now);
            continue;
        }
        let cpus = if goal == hierarchy.ceiling { hierarchy.full.clone() } else { goal.clone() };
        steps.push(Step::Write { uid: pod.uid.clone(), path: cgroup.path.clone(), cpus, effective: goal.clone() });
        effective.push(goal);
    }
    steps
}

fn in_order(pod: &PodCgroups) -> Result<(), StepError> {
    let disordered = |(at, cgroup): &(usize, &Cgroup)| cgroup.parent.is_some_and(|parent| parent >= *at);
    match pod.cgroups.iter().enumerate().find(disordered) {
        Some((_, cgroup)) => Err(StepError::Order(cgroup.path.clone())),
        None => Ok(()),
    }
}
