//! The order in which cpusets are written, as data. Crate `pinning` carries it out and stops at the
//! first failed step.
//!
//! First all pods shrink, which is verified; then CPUs are granted; then all pods grow. Within one
//! pod the order follows its hierarchy. On cgroup v1 a child must lie within its parent at every
//! moment (EACCES, EBUSY otherwise): so write the union of old and new top-down, then the new set
//! bottom-up. On v2 no write is rejected and a child follows its parent. A cpuset that already has
//! the intended effect is not written, because a rewrite resets the affinity that an application
//! set.

mod build;
mod tree;

use std::collections::BTreeMap;
use std::path::PathBuf;

use kernel_text::{CgroupVersion, CpuSet};

use crate::plan::{Class, Holding, Placement};
use crate::pod::Uid;

use build::Build;

/// The part of the hierarchy that the agent does not write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpusetHierarchy {
    /// Version of the hierarchy, which sets the rules. v1: a write fails unless every cpuset lies
    /// within its parent's. v2: effective = configured ∩ parent's, or the parent's if that is
    /// empty.
    pub version: CgroupVersion,
    /// Effective CPUs of the pods' common ancestor.
    pub ceiling: CpuSet,
    /// The set that is written for the whole of `ceiling`. On v2 it is every possible CPU, which
    /// survives hotplug; on v1 it is the ceiling itself, because the kernel rejects more.
    pub full: CpuSet,
}

/// Current state of one cpuset cgroup of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpusetCgroup {
    /// Directory of the cgroup.
    pub path: PathBuf,
    /// Index of its parent among the pod's cgroups, lower than its own; `None` if the parent is not
    /// the pod's.
    pub parent: Option<usize>,
    /// `cpuset.cpus`; empty on v2 if it was never written.
    pub configured: CpuSet,
    /// `cpuset.cpus.effective` (v2), `cpuset.effective_cpus` (v1).
    pub effective: CpuSet,
    /// Whether it is the cgroup of the pod or of a container. A cgroup that an application created
    /// below its container is not: it is only kept within the pod's CPUs, and follows its parent if
    /// it did so before.
    pub ours: bool,
}

/// The cgroups of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCgroups {
    /// UID of the pod.
    pub uid: Uid,
    /// The cgroups, parents before children.
    pub cgroups: Vec<CpusetCgroup>,
}

/// A transition from the current to the planned state.
#[derive(Debug, Clone, Copy)]
pub struct Transition<'a> {
    /// Rules and limits of the hierarchy.
    pub hierarchy: &'a CpusetHierarchy,
    /// Current cgroups of the pods. Pods without a placement are not changed.
    pub pods: &'a [PodCgroups],
    /// CPUs that are granted to exclusive pods so far.
    pub held: &'a BTreeMap<Uid, Holding>,
    /// The planned CPUs of each pod.
    pub placements: &'a BTreeMap<Uid, Placement>,
}

/// One step of a transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Writes `cpus` to the cgroup's `cpuset.cpus` and reads the effective set back; succeeds if it
    /// is the expected one.
    Write {
        /// UID of the cgroup's pod.
        uid: Uid,
        /// Directory of the cgroup.
        path: PathBuf,
        /// The set to write, never empty.
        cpus: CpuSet,
        /// The expected effective set.
        effective: CpuSet,
    },
    /// Reads the effective set again before CPUs are granted: another writer may have changed it.
    Verify {
        /// UID of the cgroup's pod.
        uid: Uid,
        /// Directory of the cgroup.
        path: PathBuf,
        /// The expected effective set.
        effective: CpuSet,
    },
    /// From here on the pod no longer holds these CPUs. Nothing to write.
    Release {
        /// UID of the previous owner.
        uid: Uid,
        /// The released CPUs.
        cpus: CpuSet,
    },
    /// From here on the pod holds exactly these CPUs exclusively, in this class. Nothing to write.
    Grant {
        /// UID of the new owner.
        uid: Uid,
        /// All CPUs of the pod, and its class.
        holding: Holding,
    },
}

/// An invalid transition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// An empty set cannot be written to a populated cgroup.
    #[error("pod {0}: no CPU planned")]
    Empty(Uid),
    /// The planned CPUs exceed those of the pod's ancestors.
    #[error("pod {uid}: CPUs {cpus} are not in the cpuset of its ancestors")]
    BeyondCeiling {
        /// UID of the pod.
        uid: Uid,
        /// The CPUs that the ancestors lack.
        cpus: CpuSet,
    },
    /// A child is listed before its parent.
    #[error("{path}: the plan lists it before its parent", path = .0.display())]
    Order(PathBuf),
}

/// Computes the steps from the current to the planned state; empty if nothing changes.
///
/// # Errors
/// A placement that is empty or exceeds the ceiling, or cgroups in the wrong order. In that case
/// nothing has been written.
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

/// Computes the steps that widen every cgroup of the pods to the whole ceiling, parents first, and
/// release all held CPUs.
///
/// # Errors
/// Cgroups in the wrong order, or an empty ceiling.
pub fn drain_steps(
    hierarchy: &CpusetHierarchy,
    pods: &[PodCgroups],
    held: &BTreeMap<Uid, Holding>,
) -> Result<Vec<Step>, StepError> {
    let everything = Placement { class: Class::Share, cpus: hierarchy.ceiling.clone(), spec: None };
    let placements = pods.iter().map(|pod| (pod.uid.clone(), everything.clone())).collect();
    write_steps(&Transition { hierarchy, pods, held, placements: &placements })
}

/// Computes the writes that let a pod also run on `cpus`, parents first; no cgroup loses a CPU.
/// Skips cgroups that `may_widen` rejects.
#[must_use]
pub fn widen_steps(
    hierarchy: &CpusetHierarchy,
    pod: &PodCgroups,
    cpus: &CpuSet,
    may_widen: impl Fn(&CpusetCgroup) -> bool,
) -> Vec<Step> {
    let mut effective: Vec<CpuSet> = Vec::with_capacity(pod.cgroups.len());
    let mut steps = Vec::new();
    for cgroup in &pod.cgroups {
        let above = cgroup.parent.map_or(&hierarchy.ceiling, |parent| &effective[parent]);
        let now = match hierarchy.version {
            CgroupVersion::V1 => cgroup.effective.clone(),
            CgroupVersion::V2 => Some(cgroup.configured.intersection(above))
                .filter(|own| !own.is_empty())
                .unwrap_or_else(|| above.clone()),
        };
        let goal = now.union(&cpus.intersection(above));
        if goal == now || !may_widen(cgroup) {
            effective.push(now);
            continue;
        }
        let cpus = if goal == hierarchy.ceiling { hierarchy.full.clone() } else { goal.clone() };
        steps.push(Step::Write {
            uid: pod.uid.clone(),
            path: cgroup.path.clone(),
            cpus,
            effective: goal.clone(),
        });
        effective.push(goal);
    }
    steps
}

fn in_order(pod: &PodCgroups) -> Result<(), StepError> {
    let disordered =
        |(at, cgroup): &(usize, &CpusetCgroup)| cgroup.parent.is_some_and(|parent| parent >= *at);
    match pod.cgroups.iter().enumerate().find(disordered) {
        Some((_, cgroup)) => Err(StepError::Order(cgroup.path.clone())),
        None => Ok(()),
    }
}
