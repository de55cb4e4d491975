//! The planner: (node, pods, profiles, what is held) → who gets which CPUs, and who is refused and why.
//!
//! Pure. A running exclusive pod keeps its CPUs; planning again from its own result changes nothing.

mod grants;

use std::collections::{BTreeMap, BTreeSet};

use kernel_text::CpuSet;

use crate::best_effort::narrow;
use crate::pod::{Authorization, Claim, Pod, Profiles, ResourceSpec, Rules, Uid, Wish, classify};
use crate::policy::NumaStrategy;
use crate::reason::Reason;
use crate::topology::Topology;

use grants::Grants;

/// What the node offers and how the operator wants it placed.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// The online CPUs.
    pub topology: &'a Topology,
    /// CPUs that pods may run on at all: the effective cpuset of the pods' common ancestor.
    pub allowed: &'a CpuSet,
    /// CPUs that are kept for the host.
    pub reserved: &'a CpuSet,
    /// What the kubelet's CPU manager owns.
    pub kubelet: &'a Kubelet,
    /// What the operator set.
    pub settings: &'a Settings,
}

/// The kubelet's CPU manager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// `static`: the kubelet owns its containers and its default set, so nothing is carved and nothing touched.
    pub static_policy: bool,
    /// CPUs that the kubelet gave to containers for themselves; they count as LSE.
    pub exclusive: CpuSet,
    /// Pods with such containers: they get nothing here, and are not written, whatever the policy is said to be.
    pub pods: BTreeSet<Uid>,
}

/// What the operator sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Least CPUs of the share pool; at least 1 is kept whatever this says. A new grant also leaves as many as the pods
    /// of the pool request.
    pub share_floor: usize,
    /// Which NUMA nodes are filled first.
    pub strategy: NumaStrategy,
    /// Honour the resource-status annotation: any pod's author can then claim any CPU that is free.
    pub trust_resource_status: bool,
    /// Most CPUs of the best-effort pool; `None` is all that the contract gives it.
    pub best_effort_cpus: Option<usize>,
    /// Which pods may claim what, and how much.
    pub authorization: Authorization,
}

/// What running pods hold: the last committed plan, checked against their effective cpusets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Current {
    /// What exclusive pods have for themselves.
    pub held: BTreeMap<Uid, Holding>,
    /// Pods that lost a conflict; they stay shared for as long as they live.
    pub demoted: BTreeSet<Uid>,
    /// Pods that share for now whatever they ask for: nothing can be enforced for them. Not a part of any outcome.
    pub withheld: BTreeSet<Uid>,
}

/// The CPUs of one exclusive pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// LSE or LSR.
    pub class: Class,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// Who gets which CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Every pod whose cpuset is ours to write. Empty under the kubelet's static policy.
    pub placements: BTreeMap<Uid, Placement>,
    /// The pools.
    pub pools: Pools,
    /// Pods whose wish was not granted, or that say something else that cannot be understood.
    pub refusals: BTreeMap<Uid, Reason>,
    /// Pods that lost a conflict, now or earlier.
    pub demoted: BTreeSet<Uid>,
}

/// One pod's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The class that it runs in, which is not always the one that it asks for.
    pub class: Class,
    /// Its CPUs, never empty.
    pub cpus: CpuSet,
    /// The policies of a pod with CPUs of its own.
    pub spec: Option<ResourceSpec>,
}

/// What a pod's CPUs are to other pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Own CPUs, shared with nobody.
    Lse,
    /// Own CPUs, where best-effort pods may run too.
    Lsr,
    /// The share pool.
    Share,
    /// The best-effort pool.
    BestEffort,
}

/// The CPUs of each pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pools {
    /// CPUs of LSE and LSR pods.
    pub exclusive: CpuSet,
    /// Where LS pods, and those that ask for nothing, run.
    pub share: CpuSet,
    /// Where BE pods run.
    pub best_effort: CpuSet,
    /// Kept for the host.
    pub reserved: CpuSet,
    /// Given to containers by the kubelet.
    pub kubelet: CpuSet,
}

/// A node on which nothing can be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No CPU is left for pods, and an empty cpuset cannot be written.
    #[error("no CPU is online, allowed, unreserved and free of the kubelet's own")]
    NothingUsable,
}

impl Default for Settings {
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
    /// Whether the kubelet places this pod.
    pub(crate) fn owns(&self, pod: &Uid) -> bool {
        self.static_policy || self.pods.contains(pod)
    }
}

impl Class {
    /// CPUs of its own.
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        matches!(self, Self::Lse | Self::Lsr)
    }

    /// May a pod of this class run on CPUs that belong to a pod of class `owner`?
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
    /// What is held once the plan is carried out.
    #[must_use]
    pub fn outcome(&self) -> Current {
        let own = self.placements.iter().filter(|(_, placement)| placement.class.is_exclusive());
        let holding = |placement: &Placement| Holding { class: placement.class, cpus: placement.cpus.clone() };
        Current {
            held: own.map(|(uid, placement)| (uid.clone(), holding(placement))).collect(),
            demoted: self.demoted.clone(),
            withheld: BTreeSet::new(),
        }
    }
}

/// Plans the node anew. `pods` are those that run or are about to; a UID that occurs twice counts once.
///
/// # Errors
/// No CPU is left for pods at all.
pub fn plan(node: &Node<'_>, pods: &[Pod], profiles: &Profiles, current: &Current) -> Result<Plan, PlanError> {
    let usable = usable(node)?;
    let Settings { trust_resource_status, authorization, .. } = node.settings;
    let rules = Rules { profiles, trust_resource_status: *trust_resource_status, authorization };
    let wishes: Wishes<'_> = pods.iter().map(|pod| (&pod.uid, (pod, classify(pod, &rules)))).collect();
    let grants = grants(node, &usable, &wishes, current);
    let pools = pools(node, &usable, &grants);
    let placement = |(&uid, (_, wish)): (&&Uid, &(&Pod, Wish))| (uid.clone(), placement(uid, wish, &grants, &pools));
    let ours = wishes.iter().filter(|(uid, _)| !node.kubelet.owns(uid));
    let placements = ours.map(placement).collect();
    let mut refusals: BTreeMap<Uid, Reason> =
        wishes.iter().filter_map(|(&uid, (_, wish))| Some((uid.clone(), wish.refusal?))).collect();
    refusals.extend(grants.refusals);
    Ok(Plan { placements, pools, refusals, demoted: grants.demoted })
}

type Wishes<'a> = BTreeMap<&'a Uid, (&'a Pod, Wish)>;

fn usable(node: &Node<'_>) -> Result<CpuSet, PlanError> {
    let online = node.topology.online().intersection(node.allowed);
    let usable = online.difference(node.reserved).difference(&node.kubelet.exclusive);
    if usable.is_empty() { Err(PlanError::NothingUsable) } else { Ok(usable) }
}

fn grants<'a>(node: &Node<'a>, usable: &'a CpuSet, wishes: &Wishes<'_>, current: &Current) -> Grants<'a> {
    let claims = wishes.values().filter_map(|(pod, wish)| Some((*pod, wish.claim.as_ref()?)));
    let mut claims: Vec<(&Pod, &Claim)> = claims.collect();
    claims.sort_by_key(|(pod, _)| (pod.arrival, &pod.uid));
    let sharers = wishes.values().filter(|(_, wish)| wish.claim.is_none() && wish.shared == Class::Share);
    let requested_millis = sharers.filter_map(|(pod, _)| pod.request_millis).fold(0, u64::saturating_add);
    let mut grants = Grants::new(*node, usable, requested_millis);
    let (kubelets, ours): (Vec<_>, Vec<_>) = claims.into_iter().partition(|(pod, _)| node.kubelet.owns(&pod.uid));
    grants.refuse_all(&kubelets, Reason::KubeletStatic);
    grants.settle(&ours, current);
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
    Pools { exclusive, share, best_effort, reserved: node.reserved.clone(), kubelet: node.kubelet.exclusive.clone() }
}

fn placement(uid: &Uid, wish: &Wish, grants: &Grants<'_>, pools: &Pools) -> Placement {
    if let Some(grant) = grants.granted.get(uid) {
        return Placement { class: grant.class, cpus: grant.cpus.clone(), spec: Some(grant.spec) };
    }
    let cpus = if wish.shared == Class::BestEffort { &pools.best_effort } else { &pools.share };
    Placement { class: wish.shared, cpus: cpus.clone(), spec: None }
}
