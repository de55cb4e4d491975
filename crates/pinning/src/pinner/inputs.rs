//! Inputs of a plan: the pods that have cgroups, the kubelet's exclusive CPUs, and other owners.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use cgroupfs::has_processes;
use kernel_text::CpuSet;
use kubepods::{PodIndex, Reported};
use placement::{Holding, Kubelet, Plan, Pod, PodCgroups, QOS_CLASS_LABEL, Reason, Uid};

use super::{OtherAgents, Pinner};
use crate::admission::{Admission, AdmissionState, Claim, ForeignContainer, Reservation};
use crate::claims::{claim, has_ended};
use crate::decision::{Decision, PodOutcome};
use crate::grants::class_name;
use crate::owner::{CpuManagerState, OwnerSearch, other_agents};
use crate::tree::View;

/// Interval between searches for other agents among the processes.
const AGENT_SEARCH_EVERY: Duration = Duration::from_secs(30);

impl Pinner {
    /// The kubelet's exclusive CPUs, and the obstacle to writing beside the kubelet or another
    /// agent, if any.
    pub(super) fn kubelet(
        &mut self,
        pods: &PodIndex,
        given: &CpuSet,
        now: Instant,
    ) -> (Kubelet, Option<String>) {
        let others = self.other_agents(pods, now).join(", ");
        let others = Some(others).filter(|names| !names.is_empty());
        let others = others.map(|names| format!("{names} also places containers on this node"));
        let file = CpuManagerState::read(&self.config.node.cpu_manager_state);
        let mut own = file.as_ref().map(CpuManagerState::exclusive).unwrap_or_default();
        own.cpus = own.cpus.union(given);
        own.pods.extend(self.holders(pods));
        let policy = policy(&self.kubelet.policy, &file);
        let obstacle = match &policy {
            Ok(true) => Some("the kubelet's CPU manager policy is static".to_owned()),
            Err(unknown) => Some(format!("the kubelet's CPU manager policy is unknown: {unknown}")),
            Ok(false) if !own.is_empty() => {
                Some(format!("the kubelet has assigned exclusive CPUs {} to containers", own.cpus))
            }
            Ok(false) => None,
        };
        let admission = self.config.admission.as_ref().map(Admission::lock);
        let authorization = &self.config.settings.authorization;
        let claim = |container: &ForeignContainer| self.claim_by_variable(container, pods);
        let foreign = |state: &AdmissionState| state.foreign().pods(authorization, claim);
        let state = admission.as_deref();
        let left_alone = state.map(foreign).unwrap_or_default();
        let plugin = state.and_then(|state| state.obstacle(now));
        let kubelet = Kubelet {
            static_policy: policy.unwrap_or(false),
            exclusive: own.cpus,
            pods: own.pods,
            others: left_alone,
        };
        (kubelet, others.or(obstacle).or(plugin))
    }

    /// What the kubelet reports of a container's claim.
    fn claim_by_variable(&self, container: &ForeignContainer, pods: &PodIndex) -> Claim {
        let name = container.name.rsplit('/').next().unwrap_or_default();
        match pods.pod(&container.pod) {
            Some(pod) if self.has_claim(pod, name) => Claim::Confirmed,
            Some(pod) if pod.is_listed() => Claim::Refuted,
            _ => Claim::Unknown,
        }
    }

    /// Whether the spec or pod-resources has a claim of this container.
    pub(super) fn has_claim(&self, pod: &kubepods::model::Pod, container: &str) -> bool {
        let resources = &self.kubelet.resources;
        pod.container_by_name(container).is_some_and(|one| one.has_claims)
            || resources.is_claimant(&pod.namespace, &pod.name, container)
    }

    /// Names of other agents that place containers, searched for at an interval.
    fn other_agents(&mut self, pods: &PodIndex, now: Instant) -> &[String] {
        let is_recent = matches!(
            self.other_agents,
            OtherAgents::Found { at, .. } if now.duration_since(at) < AGENT_SEARCH_EVERY
        );
        if !is_recent {
            let search = OwnerSearch {
                proc_root: &self.config.node.proc_root,
                kubelet_root: self.config.node.cpu_manager_state.parent().unwrap_or(Path::new("/")),
                namespaces: &self.config.owner_namespaces,
            };
            let names = other_agents(&search, pods, &self.kubelet.resources);
            self.other_agents = OtherAgents::Found { at: now, names };
        }
        match &self.other_agents {
            OtherAgents::Found { names, .. } => names,
            OtherAgents::NotSearched => &[],
        }
    }

    /// Pods with exclusive CPUs from the kubelet, according to pod-resources.
    pub(super) fn holders(&self, pods: &PodIndex) -> Vec<Uid> {
        let names: BTreeSet<(&str, &str)> = self.kubelet.resources.holders().collect();
        if names.is_empty() {
            return Vec::new();
        }
        let held = pods.pods().iter().filter(|pod| names.contains(&(&*pod.namespace, &*pod.name)));
        held.flat_map(|pod| [Some(&pod.uid), pod.static_hash.as_ref()])
            .flatten()
            .map(|uid| Uid::from(&**uid))
            .collect()
    }

    /// The pods that have cgroups or reservations, in the planner's form.
    pub(super) fn claims(
        &mut self,
        view: &View,
        pods: &PodIndex,
        reservations: &BTreeMap<Uid, Reservation>,
    ) -> Vec<Pod> {
        self.note_arrivals(view);
        let is_seen = |uid: &Uid| view.pods.iter().any(|pod| pod.uid == *uid);
        let unseen = reservations.iter().filter(|(uid, _)| !is_seen(uid));
        let unseen = unseen.map(|(_, one)| Pod { arrival: u64::MAX, ..one.claim.clone() });
        let seen = view.pods.iter().map(|pod| self.claim(pod, pods, reservations.get(&pod.uid)));
        seen.chain(unseen).collect()
    }

    fn claim(&self, cgroups: &PodCgroups, pods: &PodIndex, reserved: Option<&Reservation>) -> Pod {
        let uid = &cgroups.uid;
        let arrival = self.record.checkpoint.arrivals.get(&**uid).copied().unwrap_or(u64::MAX);
        if let Some(Reservation { claim, .. }) = reserved
            && !is_listed(uid, pods)
        {
            return Pod { arrival, ..claim.clone() };
        }
        let held = self.record.planned.held.get(uid);
        if held.is_some() && !is_listed(uid, pods) && !runs(cgroups) {
            return Pod { uid: uid.clone(), arrival, ..Pod::default() };
        }
        match (pods.pod(uid), held) {
            (Some(pod), _) if !has_ended(pod) => claim(uid.clone(), pod, arrival),
            // A running pod that the kubelet does not list keeps its CPUs.
            (None, Some(holding)) => {
                let pin = self.record.checkpoint.pins.get(&**uid);
                let namespace = pin.map(|pin| pin.namespace.clone()).unwrap_or_default();
                Pod { namespace, ..as_it_is(uid, holding, arrival) }
            }
            // Not yet known, or ended: it runs in the shared pool.
            _ => Pod { uid: uid.clone(), arrival, ..Pod::default() },
        }
    }

    /// Assigns each new pod its rank in the order of arrival; pods first seen together are ordered
    /// by inode. Nothing that a pod's author can set affects the order.
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

    /// Logs and returns the rejections that are new since the last pass.
    pub(super) fn new_rejections(&mut self, plan: &Plan, pods: &PodIndex) -> Vec<Decision> {
        let mut new = Vec::new();
        for (uid, &reason) in plan
            .rejections
            .iter()
            .filter(|(uid, reason)| self.last.rejections.get(*uid) != Some(reason))
        {
            let rejected = decision(uid, pods, PodOutcome::Rejected(reason));
            let Decision { namespace, pod, .. } = &rejected;
            let value = pods.pod(uid).and_then(|pod| pod.pinning.qos_class.as_deref());
            match value.filter(|_| reason == Reason::UnknownQosClass) {
                Some(value) => tracing::warn!(
                    namespace, pod, %reason, value,
                    "the pod's label for its QoS class is ignored: use LSE, LSR, LS, BE or SYSTEM"
                ),
                None => tracing::warn!(
                    namespace, pod, %reason,
                    "exclusive CPUs rejected; the pod runs in the shared pool"
                ),
            }
            new.push(rejected);
        }
        self.last.rejections = plan.rejections.clone();
        new
    }
}

/// Builds the decision about the pod with this UID.
pub(super) fn decision(uid: &str, pods: &PodIndex, outcome: PodOutcome) -> Decision {
    let (namespace, pod) = names(uid, pods);
    Decision { uid: uid.to_owned(), namespace, pod, outcome }
}

/// Namespace and name of a pod; the name is the UID if the pod is unknown.
pub(super) fn names(uid: &str, pods: &PodIndex) -> (String, String) {
    pods.pod(uid).map_or_else(
        || (String::new(), uid.to_owned()),
        |pod| (pod.namespace.to_string(), pod.name.to_string()),
    )
}

/// Whether the policy `static` is in force, according to the kubelet (`/configz`) or its state
/// file. An error if both are silent or the only answer is not understood.
fn policy(
    reported: &Reported<String>,
    file: &Result<CpuManagerState, String>,
) -> Result<bool, String> {
    let of_file = || {
        file.as_ref()
            .map_err(Clone::clone)
            .and_then(|state| CpuManagerState::is_static(&state.policy_name))
    };
    match reported {
        Reported::Read(policy) => {
            Ok(CpuManagerState::is_static(policy)? || of_file().unwrap_or(false))
        }
        Reported::Failed(reason) => of_file()
            .map_err(|unknown| format!("{unknown}; the kubelet does not report it: {reason}")),
        Reported::NotAsked => of_file(),
    }
}

/// Whether the current list of pods contains the UID. A pod that has left the list can still be
/// looked up by UID.
fn is_listed(uid: &Uid, pods: &PodIndex) -> bool {
    pods.pods().iter().any(|pod| *pod.uid == **uid || pod.static_hash.as_deref() == Some(&**uid))
}

fn runs(pod: &PodCgroups) -> bool {
    pod.cgroups.iter().any(|cgroup| has_processes(&cgroup.path))
}

fn as_it_is(uid: &Uid, holding: &Holding, arrival: u64) -> Pod {
    let millis = Some(holding.cpus.len() as u64 * 1000);
    let labels = [(QOS_CLASS_LABEL.to_owned(), class_name(holding.class).to_owned())].into();
    Pod {
        uid: uid.clone(),
        labels,
        request_millis: millis,
        limit_millis: millis,
        admitted: true,
        arrival,
        ..Pod::default()
    }
}
