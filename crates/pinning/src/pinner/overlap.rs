//! Measures the time in which other pods could run on a pod's exclusive CPUs, from effective
//! cpusets.
//!
//! The time is an upper bound. It starts at the last pass or when the later of the two pods was
//! first seen, and ends with this pass.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use cgroupfs::{has_processes, is_populated};
use kernel_text::CpuSet;
use kubepods::PodIndex;
use placement::{Class, CpusetCgroup, Holding, Plan, PodCgroups, Uid};

use super::Pinner;
use super::inputs::names;
use super::publish::id;
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
        if own.is_empty() {
            return BTreeMap::new();
        }
        let admission = self.config.admission.as_ref();
        let sandboxes = admission.map(|one| one.lock().sandboxes().clone()).unwrap_or_default();
        let of_others = |pod: &PodCgroups| {
            let others = own.iter().filter(|(uid, _)| **uid != pod.uid);
            others.fold(CpuSet::new(), |all, (_, held)| all.union(&held.cpus))
        };
        // Read once, for all owners. An owner on its own CPUs is not read: that may be a walk over
        // thousands of nested cgroups.
        let running: Vec<_> =
            view.pods.iter().flat_map(|pod| running_on(pod, &of_others(pod), &sandboxes)).collect();
        let since = |uid, holding| since(uid, holding, view, plan, &running);
        own.iter().filter_map(|(uid, holding)| Some((uid.clone(), since(uid, holding)?))).collect()
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

    /// Overlaps of the CPUs that pods have by claims, whatever grants them. They are measured,
    /// never granted or enforced here.
    pub(super) fn overlaps_of_claims(&self, view: &View, plan: &Plan, pods: &PodIndex) -> Overlaps {
        let claimed = self.claimed(view, pods);
        let overlapping = self.overlapping(view, plan, &claimed);
        self.charge(&overlapping, claimed.keys(), pods, Instant::now())
    }

    /// CPUs by claims of the pods that have cgroups, as of LSE pods, if the kubelet confirms them.
    fn claimed(&self, view: &View, pods: &PodIndex) -> Held {
        let claimed = view.pods.iter().filter_map(|cgroups| {
            let pod = pods.pod(&cgroups.uid)?;
            let claimants = pod.containers.iter().filter(|one| one.claimed_cpus.is_some());
            let claimants = claimants.filter(|one| self.has_claim(pod, &one.name));
            let lists = claimants.filter_map(|one| one.claimed_cpus.as_deref()?.parse().ok());
            let cpus = lists.reduce(|all: CpuSet, cpus| all.union(&cpus));
            let cpus = cpus.filter(|cpus| !cpus.is_empty())?;
            Some((cgroups.uid.clone(), Holding { class: Class::Lse, cpus }))
        });
        claimed.collect()
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

/// Earliest time from which one of these cgroups could run on the CPUs.
fn since(
    owner: &Uid,
    own: &Holding,
    view: &View,
    plan: &Plan,
    running: &[(&Uid, &CpusetCgroup)],
) -> Option<Instant> {
    let seen = |path: &Path| view.seen.get(path).map(|(since, _)| *since);
    let born = view
        .pods
        .iter()
        .find(|pod| pod.uid == *owner)
        .and_then(|pod| seen(&pod.cgroups.first()?.path))?;
    let may_not = |uid: &Uid| {
        let other = plan.placements.get(uid);
        *uid != *owner && other.is_none_or(|other| !other.class.may_share_with(own.class))
    };
    let on_own = running
        .iter()
        .filter(|(uid, cgroup)| may_not(uid) && !cgroup.effective.is_disjoint(&own.cpus));
    on_own.filter_map(|(_, cgroup)| Some(seen(&cgroup.path)?.max(born))).min()
}

/// Cgroups of the pod whose processes may use one of these CPUs. Processes of a known child count
/// there: its CPUs may be fewer. The process of a sandbox only sleeps.
fn running_on<'a>(
    pod: &'a PodCgroups,
    cpus: &CpuSet,
    sandboxes: &BTreeSet<String>,
) -> Vec<(&'a Uid, &'a CpusetCgroup)> {
    if cpus.is_empty() {
        return Vec::new();
    }
    let cgroups = pod.cgroups.iter().enumerate();
    let runs = |at, path| {
        let has_children = pod.cgroups.iter().any(|below| below.parent == Some(at));
        if has_children { has_processes(path) } else { is_populated(path) }
    };
    cgroups
        .filter(|(at, cgroup)| {
            let is_sandbox = || id(&cgroup.path).is_some_and(|id| sandboxes.contains(id));
            !cgroup.effective.is_disjoint(cpus) && !is_sandbox() && runs(*at, &cgroup.path)
        })
        .map(|(_, cgroup)| (&pod.uid, cgroup))
        .collect()
}

fn clone((uid, holding): (&Uid, &Holding)) -> (Uid, Holding) {
    (uid.clone(), holding.clone())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A pod on CPUs 0-1 with a container on these, each a directory with the files of cgroup v2.
    fn pod(root: &Path, container_cpus: &str) -> PodCgroups {
        let cgroup = |path: &str, parent, cpus: &str, processes| {
            let path = root.join(path);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.procs"), processes).unwrap();
            fs::write(path.join("cgroup.events"), "populated 1\n").unwrap();
            let cpus: CpuSet = cpus.parse().unwrap();
            CpusetCgroup { path, parent, configured: cpus.clone(), effective: cpus, ours: true }
        };
        let cgroups =
            vec![cgroup("pod", None, "0-1", ""), cgroup("pod/c", Some(0), container_cpus, "7\n")];
        PodCgroups { uid: "u".into(), cgroups }
    }

    #[test]
    fn processes_of_a_container_count_with_the_containers_cpus() {
        let root = tempfile::tempdir().unwrap();
        let sandboxes = BTreeSet::new();
        let running = |pod: &PodCgroups, cpus: &str| {
            let cpus = cpus.parse().unwrap();
            running_on(pod, &cpus, &sandboxes)
                .into_iter()
                .map(|(_, one)| one.path.strip_prefix(root.path()).unwrap().display().to_string())
                .collect::<Vec<_>>()
        };
        let confined = pod(root.path(), "0");
        assert!(running(&confined, "1").is_empty(), "nothing runs in the pod's own cgroup");
        assert_eq!(running(&confined, "0"), ["pod/c"]);
        fs::write(root.path().join("pod/cgroup.procs"), "8\n").unwrap();
        assert_eq!(running(&confined, "1"), ["pod"]);
        // Processes below a container are those of a container.
        let below = pod(root.path(), "1");
        fs::write(root.path().join("pod/c/cgroup.procs"), "").unwrap();
        assert_eq!(running(&below, "1"), ["pod/c"]);
        let sandboxes = ["c".to_owned()].into();
        let cpus = "1".parse().unwrap();
        assert_eq!(running_on(&below, &cpus, &sandboxes).len(), 0, "a sandbox");
    }
}
