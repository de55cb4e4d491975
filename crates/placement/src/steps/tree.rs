//! One pod's cgroups during the writes: the effect of each write on the effective sets, by the
//! hierarchy's rules.

use std::path::{Path, PathBuf};

use kernel_text::{CgroupVersion, CpuSet};

use super::{CpusetCgroup, CpusetHierarchy};

/// A pod's cgroups, parents before children.
pub(super) struct CpusetTree<'a> {
    hierarchy: &'a CpusetHierarchy,
    nodes: Vec<CpusetNode>,
}

struct CpusetNode {
    path: PathBuf,
    parent: Option<usize>,
    configured: CpuSet,
    effective: CpuSet,
    /// Whether an application chose this set: it is kept within the pod's CPUs, but never widened.
    chosen: bool,
}

/// One write within a tree.
pub(super) struct TreeWrite {
    pub(super) at: usize,
    /// The set to write.
    pub(super) cpus: CpuSet,
    /// The effective set after the write.
    pub(super) effective: CpuSet,
}

impl<'a> CpusetTree<'a> {
    pub(super) fn new(hierarchy: &'a CpusetHierarchy, cgroups: &[CpusetCgroup]) -> Self {
        let mut nodes: Vec<CpusetNode> = Vec::with_capacity(cgroups.len());
        for cgroup in cgroups {
            let follows = |at: usize| !nodes[at].chosen && nodes[at].effective == cgroup.effective;
            let chosen = !cgroup.ours && !cgroup.parent.is_some_and(follows);
            let CpusetCgroup { path, parent, configured, effective, .. } = cgroup.clone();
            nodes.push(CpusetNode { path, parent, configured, effective, chosen });
        }
        Self { hierarchy, nodes }
    }

    pub(super) fn path(&self, at: usize) -> &Path {
        &self.nodes[at].path
    }

    /// The set with which the pod leaves all CPUs outside `target`: the part of the target that it
    /// already has and that is not `blocked`. If that is empty, the unblocked part of the target;
    /// if that is empty too, any part it has, or the target.
    pub(super) fn retreat(&self, target: &CpuSet, blocked: &CpuSet) -> CpuSet {
        let has = self
            .nodes
            .iter()
            .filter(|node| !node.chosen)
            .fold(CpuSet::new(), |all, node| all.union(&node.effective));
        let kept = has.intersection(target);
        let choices = [kept.difference(blocked), target.difference(blocked), kept];
        choices.into_iter().find(|cpus| !cpus.is_empty()).unwrap_or_else(|| target.clone())
    }

    /// The writes that give the pod this set, in the order that the hierarchy requires. A set
    /// chosen by an application is kept as far as it lies within the pod's set.
    pub(super) fn apply(&mut self, wanted: &CpuSet) -> Vec<TreeWrite> {
        let goals = self.goals(wanted);
        let mut writes = Vec::new();
        match self.hierarchy.version {
            CgroupVersion::V1 => {
                for (at, goal) in goals.iter().enumerate() {
                    if !goal.is_subset(&self.nodes[at].configured) {
                        writes.push(self.write(at, &self.nodes[at].configured.union(goal)));
                    }
                }
                for (at, goal) in goals.iter().enumerate().rev() {
                    if self.nodes[at].configured != *goal {
                        writes.push(self.write(at, goal));
                    }
                }
            }
            // A set chosen by an application needs no write: the kernel keeps it within its
            // parent's set.
            CgroupVersion::V2 => {
                for (at, goal) in goals.iter().enumerate() {
                    if self.nodes[at].effective != *goal {
                        writes.push(self.write(at, goal));
                    }
                }
            }
        }
        writes
    }

    /// The intended set of each cgroup; a child's lies within its parent's.
    fn goals(&self, wanted: &CpuSet) -> Vec<CpuSet> {
        let mut goals: Vec<CpuSet> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let above = node.parent.map_or(wanted, |parent| &goals[parent]);
            let choice = node.configured.intersection(above);
            // v1 allows no tasks in an empty cpuset, so nothing runs there until its creator has
            // written it.
            let is_unused =
                self.hierarchy.version == CgroupVersion::V1 && node.configured.is_empty();
            let goal = if node.chosen && (is_unused || !choice.is_empty()) {
                choice
            } else {
                above.clone()
            };
            goals.push(goal);
        }
        goals
    }

    fn write(&mut self, at: usize, wanted: &CpuSet) -> TreeWrite {
        let everything = *wanted == self.hierarchy.ceiling;
        let cpus = if everything { self.hierarchy.full.clone() } else { wanted.clone() };
        self.nodes[at].configured = cpus.clone();
        self.recompute();
        TreeWrite { at, cpus, effective: wanted.clone() }
    }

    fn recompute(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let above =
                node.parent.map_or(&self.hierarchy.ceiling, |parent| &self.nodes[parent].effective);
            let within = node.configured.intersection(above);
            let effective = match self.hierarchy.version {
                CgroupVersion::V2 if within.is_empty() => above.clone(),
                CgroupVersion::V1 | CgroupVersion::V2 => within,
            };
            self.nodes[at].effective = effective;
        }
    }
}
