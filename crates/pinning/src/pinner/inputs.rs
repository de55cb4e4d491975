//! What goes into a plan: the pods that have cgroups, what the kubelet owns, who else does.

use std::collections::BTreeMap;
use std::time::Instant;

use cgroupfs::has_processes;
use kernel_text::CpuSet;
use placement::{Holding, Kubelet, Plan, Pod, PodCgroups, QOS_CLASS_LABEL, Uid};
use pods::PodIndex;

use super::{OWNERS_EVERY, Pinner};
use crate::checkpoint::class_name;
use crate::claims::{claim, has_ended};
use crate::decision::{Decision, Verdict};
use crate::owner::{CpuManagerState, other_agents};
use crate::tree::View;

impl Pinner {
    /// What the kubelet owns; and why nothing may be written beside it or beside another agent.
    pub(super) fn kubelet(&mut self, pods: &PodIndex, given: &CpuSet, now: Instant) -> (Kubelet, Option<String>) {
        if self.owners.as_ref().is_none_or(|(at, _)| now.duration_since(*at) >= OWNERS_EVERY) {
            self.owners = Some((now, other_agents(&self.config.proc_root, pods)));
        }
        let others = self.owners.as_ref().map(|(_, names)| names.join(", ")).filter(|names| !names.is_empty());
        let others = others.map(|names| format!("{names} places containers on this node too"));
        match self.cpu_manager().and_then(|state| state.kubelet()) {
            Ok(mut kubelet) => {
                kubelet.exclusive = kubelet.exclusive.union(given);
                let owned = kubelet.static_policy.then(|| "the kubelet's CPU manager policy is static".to_owned());
                (kubelet, others.or(owned))
            }
            Err(unknown) => {
                let reason = format!("the kubelet's CPU manager policy is not known: {unknown}");
                (Kubelet { static_policy: false, exclusive: given.clone() }, others.or(Some(reason)))
            }
        }
    }

    /// The kubelet's own word for its policy, where there is one; its file's for what it gave away.
    fn cpu_manager(&self) -> Result<CpuManagerState, String> {
        let file = CpuManagerState::read(&self.config.cpu_manager_state);
        match &self.policy {
            Some(policy) => {
                let entries = file.map(|state| state.entries).unwrap_or_default();
                Ok(CpuManagerState { policy_name: policy.clone(), entries })
            }
            None => file,
        }
    }

    /// The pods that have cgroups, as the planner takes them.
    pub(super) fn claims(&mut self, view: &View, pods: &PodIndex) -> Vec<Pod> {
        self.note_arrivals(view);
        view.pods.iter().map(|pod| self.claim(pod, pods)).collect()
    }

    fn claim(&self, cgroups: &PodCgroups, pods: &PodIndex) -> Pod {
        let uid = &cgroups.uid;
        let arrival = self.record.checkpoint.arrivals.get(&**uid).copied().unwrap_or(u64::MAX);
        match (pods.pod(uid), self.record.planned.held.get(uid)) {
            (Some(pod), _) if !has_ended(pod) => claim(uid.clone(), pod, arrival),
            // A pod that the kubelet does not list, and that still runs, keeps what it has.
            (None, Some(holding)) if runs(cgroups) => as_it_is(uid, holding, arrival),
            // Not yet known, or over: it shares.
            _ => Pod { uid: uid.clone(), arrival, ..Pod::default() },
        }
    }

    /// Who comes later is younger; of those that are seen together, who has the higher inode. Not from anything that a
    /// pod's author writes.
    fn note_arrivals(&mut self, view: &View) {
        let arrivals = &mut self.record.checkpoint.arrivals;
        let inode = |uid: &str| {
            let pod = view.pods.iter().find(|pod| *pod.uid == *uid)?;
            view.seen.get(&pod.cgroups.first()?.path).map(|(_, inode)| *inode)
        };
        let mut new: Vec<_> = view
            .pods
            .iter()
            .map(|pod| &*pod.uid)
            .filter(|uid| !arrivals.contains_key(*uid))
            .map(|uid| (inode(uid), uid))
            .collect();
        if new.is_empty() && arrivals.len() == view.pods.len() {
            return;
        }
        new.sort_unstable();
        let next = arrivals.values().max().map_or(0, |last| last.saturating_add(1));
        let here: BTreeMap<&str, ()> = view.pods.iter().map(|pod| (&*pod.uid, ())).collect();
        arrivals.retain(|uid, _| here.contains_key(uid.as_str()));
        arrivals.extend((next..).zip(new).map(|(arrival, (_, uid))| (uid.to_owned(), arrival)));
    }

    /// Each pod's refusal once, said in one line.
    pub(super) fn new_refusals(&mut self, plan: &Plan, pods: &PodIndex) -> Vec<Decision> {
        let mut new = Vec::new();
        for (uid, &reason) in plan.refusals.iter().filter(|(uid, reason)| self.refused.get(*uid) != Some(reason)) {
            let refused = decision(uid, pods, Verdict::Refused(reason));
            let Decision { namespace, pod, .. } = &refused;
            tracing::warn!(namespace, pod, %reason, "runs shared: its wish for CPUs is not granted");
            new.push(refused);
        }
        self.refused = plan.refusals.clone();
        new
    }
}

/// A decision about the pod of this UID.
pub(super) fn decision(uid: &str, pods: &PodIndex, verdict: Verdict) -> Decision {
    let (namespace, pod) = names(uid, pods);
    Decision { uid: uid.to_owned(), namespace, pod, verdict }
}

/// Namespace and name; the UID where the pod is not known.
pub(super) fn names(uid: &str, pods: &PodIndex) -> (String, String) {
    pods.pod(uid)
        .map_or_else(|| (String::new(), uid.to_owned()), |pod| (pod.namespace.to_string(), pod.name.to_string()))
}

fn runs(pod: &PodCgroups) -> bool {
    pod.cgroups.iter().any(|cgroup| has_processes(&cgroup.path))
}

fn as_it_is(uid: &Uid, holding: &Holding, arrival: u64) -> Pod {
    let millis = Some(holding.cpus.len() as u64 * 1000);
    let labels = [(QOS_CLASS_LABEL.to_owned(), class_name(holding.class).to_owned())].into();
    Pod { uid: uid.clone(), labels, request_millis: millis, limit_millis: millis, arrival, ..Pod::default() }
}
