//! Measures the time in which other pods could run on a pod's exclusive CPUs, from effective
//! cpusets.
//!
//! The time is an upper bound. It starts at the last pass or when the later of the two pods was
//! first seen, and ends with this pass.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cgroupfs::is_populated;
use kubepods::PodIndex;
use placement::{Holding, Plan, Uid};

use super::Pinner;
use super::inputs::names;
use crate::tree::View;

/// Exclusive CPUs by owner.
type Held = BTreeMap<Uid, Holding>;
/// Overlap time by namespace and pod.
type Overlaps = BTreeMap<(String, String), Duration>;

impl Pinner {
    /// Pods whose exclusive CPUs other pods may use now, with the earliest possible start.
    pub(super) fn overlapping(
        &self,
        view: &View,
        plan: &Plan,
        own: &Held,
    ) -> BTreeMap<Uid, Instant> {
        own.iter()
            .filter_map(|(uid, holding)| Some((uid.clone(), since(uid, holding, view, plan)?)))
            .collect()
    }

    /// Overlaps of the committed grants while this agent does not enforce them.
    pub(super) fn unguarded(&self, view: &View, plan: &Plan, pods: &PodIndex) -> Overlaps {
        if !self.config.enforce {
            return Overlaps::new();
        }
        let here = |uid: &Uid| view.pods.iter().any(|pod| pod.uid == *uid);
        let own: Held =
            self.record.committed.held.iter().filter(|(uid, _)| here(uid)).map(clone).collect();
        self.charge(&self.overlapping(view, plan, &own), own.keys(), pods, Instant::now())
    }

    /// Time from these starts, or from the last pass if later, to `now`.
    pub(super) fn charge<'a>(
        &self,
        overlapping: &BTreeMap<Uid, Instant>,
        own: impl Iterator<Item = &'a Uid>,
        pods: &PodIndex,
        now: Instant,
    ) -> Overlaps {
        own.map(|uid| {
            let since = overlapping
                .get(uid)
                .map(|since| self.last.ended.map_or(*since, |ended| ended.max(*since)));
            (names(uid, pods), since.map_or(Duration::ZERO, |since| now.duration_since(since)))
        })
        .collect()
    }
}

fn since(owner: &Uid, own: &Holding, view: &View, plan: &Plan) -> Option<Instant> {
    let seen = |path| view.seen.get(path).map(|(since, _)| *since);
    let born = view
        .pods
        .iter()
        .find(|pod| pod.uid == *owner)
        .and_then(|pod| seen(&pod.cgroups.first()?.path))?;
    let others = view.pods.iter().filter(|pod| pod.uid != *owner);
    let foreign = others.filter(|pod| {
        plan.placements.get(&pod.uid).is_none_or(|other| !other.class.may_share_with(own.class))
    });
    let cgroups = foreign.flat_map(|pod| &pod.cgroups);
    let there = cgroups
        .filter(|cgroup| !cgroup.effective.is_disjoint(&own.cpus) && is_populated(&cgroup.path));
    there.filter_map(|cgroup| Some(seen(&cgroup.path)?.max(born))).min()
}

fn clone((uid, holding): (&Uid, &Holding)) -> (Uid, Holding) {
    (uid.clone(), holding.clone())
}
