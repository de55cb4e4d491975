//! How long somebody else could run on a pod's own CPUs, from effective cpusets.
//!
//! An upper bound: from the last pass, or from when the younger of the two was first seen, to the end of this pass.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cgroupfs::has_processes;
use placement::{Plan, Uid};
use pods::PodIndex;

use super::Pinner;
use super::inputs::names;
use crate::tree::View;

impl Pinner {
    /// Pods on whose CPUs others may run now, and since when at most.
    pub(super) fn overlapping(&self, view: &View, plan: &Plan) -> BTreeMap<Uid, Instant> {
        let own = plan.placements.iter().filter(|(_, placement)| placement.class.is_exclusive());
        own.filter_map(|(uid, _)| Some((uid.clone(), self.since(uid, view, plan)?))).collect()
    }

    fn since(&self, owner: &Uid, view: &View, plan: &Plan) -> Option<Instant> {
        let own = plan.placements.get(owner)?;
        let seen = |path| view.seen.get(path).map(|(since, _)| *since);
        let born = view.pods.iter().find(|pod| pod.uid == *owner).and_then(|pod| seen(&pod.cgroups.first()?.path))?;
        let others = view.pods.iter().filter(|pod| pod.uid != *owner);
        let foreign = others
            .filter(|pod| plan.placements.get(&pod.uid).is_none_or(|other| !other.class.may_share_with(own.class)));
        let cgroups = foreign.flat_map(|pod| &pod.cgroups);
        let there = cgroups.filter(|cgroup| !cgroup.effective.is_disjoint(&own.cpus) && has_processes(&cgroup.path));
        there.filter_map(|cgroup| Some(seen(&cgroup.path)?.max(born))).min()
    }

    /// The time from then, or from the last pass, to `now`.
    pub(super) fn charge(
        &self,
        overlapping: &BTreeMap<Uid, Instant>,
        plan: &Plan,
        pods: &PodIndex,
        now: Instant,
    ) -> BTreeMap<(String, String), Duration> {
        let own = plan.placements.iter().filter(|(_, placement)| placement.class.is_exclusive());
        own.map(|(uid, _)| {
            let since = overlapping.get(uid).map(|since| self.passed.map_or(*since, |passed| passed.max(*since)));
            (names(uid, pods), since.map_or(Duration::ZERO, |since| now.duration_since(since)))
        })
        .collect()
    }
}
