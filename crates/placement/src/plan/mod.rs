//! The planner: (node, pods, profiles, current CPUs) → each pod's CPUs, and the rejected pods with
//! the reason.
//!
//! Pure functions. A running exclusive pod keeps its CPUs; planning again from its own result
//! changes nothing.

mod grants;

use std::collections::{BTreeMap, BTreeSet};

use kernel_text::CpuSet;

use crate::best_effort::narrow;
use crate::pod::{
    Authorization, Claim, Classification, Pod, Profiles, ResourceSpec, Rules, Uid, classify,
};
use crate::policy::NumaStrategy;
use crate::reason::Reason;
use crate::topology::Topology;

use grants::Grants;

/// Resources of the node and the operator's settings.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// The online CPUs.
    pub topology: &'a Topology,
    /// CPUs available to pods: the effective cpuset of the pods' common ancestor.
    pub allowed: &'a CpuSet,
    /// CPUs reserved for the host.
    pub reserved: &'a CpuSet,
    /// State of the kubelet's CPU manager.
    pub kubelet: &'a Kubelet,
    /// Settings of the operator.
    pub settings: &'a PlacementSettings,
}

/// State of the kubelet's CPU manager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// Whether the policy is `static`: the kubelet then owns its containers and its default set, so
    /// no CPU is granted and no cpuset written.
    pub static_policy: bool,
    /// CPUs that the kubelet assigned exclusively to containers; they count as LSE.
    pub exclusive: CpuSet,
    /// Pods with such containers: they get no CPUs here and are not written, whatever the reported
    /// policy is.
    pub pods: BTreeSet<Uid>,
    /// Pods that another program than the kubelet places, which are left alone in the same way.
    pub others: BTreeSet<Uid>,
}

/// Settings of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementSettings {
    /// Minimum number of CPUs in the shared pool, at least 1. A new grant also leaves as many CPUs
    /// as the pods of the pool request.
    pub share_floor: usize,
    /// Order in which NUMA nodes are filled.
    pub strategy: NumaStrategy,
    /// Whether to honor the resource-status annotation: any pod's author can then claim any free
    /// CPU.
    pub trust_resource_status: bool,
    /// Maximum number of CPUs in the best-effort pool; `None` means no limit.
    pub best_effort_cpus: Option<usize>,
    /// Permissions and caps of pods' claims.
    pub authorization: Authorization,
}

/// CPUs of running pods: the last committed plan, checked against their effective cpusets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Current {
    /// Exclusive CPUs by pod.
    pub held: BTreeMap<Uid, Holding>,
    /// Pods that lost a conflict; they run in the shared pool for the rest of their lives.
    pub demoted: BTreeSet<Uid>,
    /// Pods that run in the shared pool for now, because nothing can be enforced for them. Never
    /// part of an outcome.
    pub withheld: BTreeSet<Uid>,
}

/// Exclusive CPUs of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// LSE or LSR.
    pub class: Class,
    /// CPUs of the pod.
    pub cpus: CpuSet,
}

/// Result of planning: the CPUs of each pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// All pods whose cpuset the agent writes. Empty under the kubelet's static policy.
    pub placements: BTreeMap<Uid, Placement>,
    /// The pools.
    pub pools: Pools,
    /// Pods whose request was rejected, or that have another invalid label or annotation.
    pub rejections: BTreeMap<Uid, Reason>,
    /// Pods that lost a conflict, now or earlier.
    pub demoted: BTreeSet<Uid>,
}

/// CPUs of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Class that the pod runs in, which may differ from the requested one.
    pub class: Class,
    /// CPUs of the pod, never empty.
    pub cpus: CpuSet,
    /// Policies of a pod with exclusive CPUs.
    pub spec: Option<ResourceSpec>,
}

/// Sharing of a pod's CPUs with other pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Exclusive CPUs, not shared with any pod.
    Lse,
    /// Exclusive CPUs on which best-effort pods may run too.
    Lsr,
    /// CPUs of the shared pool.
    Share,
    /// CPUs of the best-effort pool.
    BestEffort,
}

/// The CPUs of each pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pools {
    /// CPUs of LSE and LSR pods.
    pub exclusive: CpuSet,
    /// CPUs of LS pods and of pods without a class.
    pub share: CpuSet,
    /// CPUs of BE pods.
    pub best_effort: CpuSet,
    /// CPUs reserved for the host.
    pub reserved: CpuSet,
    /// CPUs that the kubelet assigned to containers.
    pub kubelet: CpuSet,
}

/// A node on which nothing can be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No CPU is left for pods; an empty cpuset cannot be written.
    #[error(
        "no CPU is available: every CPU is offline, not allowed, reserved, or assigned by the kubelet"
    )]
    NothingUsable,
}

impl Default for PlacementSettings {
    fn default() -> Self {
        Self {
            share_floor: 2,
            strategy: NumaStrategy::default(),
            trust_resource_status: false,
            best_effort_cpus: None,
            authorization: Authorization::default(),
        }
    }
}

impl Kubelet {
    /// Whether the kubelet or another program places this pod.
    #[must_use]
    pub fn places(&self, pod: &Uid) -> bool {
        self.static_policy || self.pods.contains(pod) || self.others.contains(pod)
    }
}

impl Class {
    /// Whether the class has exclusive CPUs.
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        matches!(self, Self::Lse | Self::Lsr)
    }

    /// Whether a pod of this class may run on CPUs of a pod of class `owner`.
    #[must_use]
    pub const fn may_share_with(self, owner: Self) -> bool {
        match owner {
            Self::Lse => false,
            Self::Lsr => matches!(self, Self::BestEffort),
            Self::Share | Self::BestEffort => true,
        }
    }
}

impl Plan {
    /// The state after the plan is carried out.
    #[must_use]
    pub fn outcome(&self) -> Current {
        let own = self.placements.iter().filter(|(_, placement)| placement.class.is_exclusive());
        let holding = |placement: &Placement| Holding {
            class: placement.class,
            cpus: placement.cpus.clone(),
        };
        Current {
            held: own.map(|(uid, placement)| (uid.clone(), holding(placement))).collect(),
            demoted: self.demoted.clone(),
            withheld: BTreeSet::new(),
        }
    }
}

/// Plans the node. `pods` are running or about to run; a duplicate UID counts once.
///
/// # Errors
/// No CPU is left for pods.
pub fn plan(
    node: &Node<'_>,
    pods: &[Pod],
    profiles: &Profiles,
    current: &Current,
) -> Result<Plan, PlanError> {
    let usable = usable(node)?;
    let PlacementSettings { trust_resource_status, authorization, .. } = node.settings;
    let rules = Rules { profiles, trust_resource_status: *trust_resource_status, authorization };
    let classified: Classified<'_> =
        pods.iter().map(|pod| (&pod.uid, (pod, classify(pod, &rules)))).collect();
    let grants = grants(node, &usable, &classified, current);
    let pools = pools(node, &usable, &grants);
    let placement = |(&uid, (_, class)): (&&Uid, &(&Pod, Classification))| {
        (uid.clone(), placement(uid, class, &grants, &pools))
    };
    let ours = classified.iter().filter(|(uid, _)| !node.kubelet.places(uid));
    let placements = ours.map(placement).collect();
    let mut rejections: BTreeMap<Uid, Reason> = classified
        .iter()
        .filter_map(|(&uid, (_, class))| Some((uid.clone(), class.rejection?)))
        .collect();
    rejections.extend(grants.rejections);
    Ok(Plan { placements, pools, rejections, demoted: grants.demoted })
}

type Classified<'a> = BTreeMap<&'a Uid, (&'a Pod, Classification)>;

fn usable(node: &Node<'_>) -> Result<CpuSet, PlanError> {
    let online = node.topology.online().intersection(node.allowed);
    let usable = online.difference(node.reserved).difference(&node.kubelet.exclusive);
    if usable.is_empty() { Err(PlanError::NothingUsable) } else { Ok(usable) }
}

fn grants<'a>(
    node: &Node<'a>,
    usable: &'a CpuSet,
    classified: &Classified<'_>,
    current: &Current,
) -> Grants<'a> {
    let claims = classified.values().filter_map(|(pod, class)| Some((*pod, class.claim.as_ref()?)));
    let mut claims: Vec<(&Pod, &Claim)> = claims.collect();
    claims.sort_by_key(|(pod, _)| (pod.arrival, &pod.uid));
    let sharers = classified
        .values()
        .filter(|(_, class)| class.claim.is_none() && class.shared == Class::Share);
    let requested_millis =
        sharers.filter_map(|(pod, _)| pod.request_millis).fold(0, u64::saturating_add);
    let mut grants = Grants::new(*node, usable, requested_millis);
    let (others, ours): (Vec<_>, Vec<_>) =
        claims.into_iter().partition(|(pod, _)| node.kubelet.places(&pod.uid));
    for (pod, _) in others {
        let is_kubelets = !node.kubelet.others.contains(&pod.uid);
        let reason = if is_kubelets { Reason::KubeletStatic } else { Reason::OtherOwner };
        grants.rejections.insert(pod.uid.clone(), reason);
    }
    grants.grant_all(&ours, current);
    grants
}

fn pools(node: &Node<'_>, usable: &CpuSet, grants: &Grants<'_>) -> Pools {
    let of = |classes: &[Class]| {
        let granted = grants.granted.values().filter(|grant| classes.contains(&grant.class));
        granted.fold(CpuSet::new(), |all, grant| all.union(&grant.cpus))
    };
    let exclusive = of(&[Class::Lse, Class::Lsr]);
    let best_effort = usable.difference(&of(&[Class::Lse]));
    let best_effort = match node.settings.best_effort_cpus {
        Some(most) => narrow(node.topology, &best_effort, most.max(1)),
        None => best_effort,
    };
    let share = usable.difference(&exclusive);
    Pools {
        exclusive,
        share,
        best_effort,
        reserved: node.reserved.clone(),
        kubelet: node.kubelet.exclusive.clone(),
    }
}

fn placement(uid: &Uid, class: &Classification, grants: &Grants<'_>, pools: &Pools) -> Placement {
    if let Some(grant) = grants.granted.get(uid) {
        return Placement { class: grant.class, cpus: grant.cpus.clone(), spec: Some(grant.spec) };
    }
    let cpus = if class.shared == Class::BestEffort { &pools.best_effort } else { &pools.share };
    Placement { class: class.shared, cpus: cpus.clone(), spec: None }
}
