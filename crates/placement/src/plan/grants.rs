//! Grants of exclusive CPUs: running exclusive pods keep theirs, oldest first; then the others in
//! order of arrival.

use std::collections::{BTreeMap, BTreeSet};

use kernel_text::CpuSet;

use crate::pod::{Claim, Pod, ResourceSpec, Uid};
use crate::policy::{Bind, BindPolicy, Exclusivity};
use crate::reason::Reason;
use crate::take::{Hold, Request, TakeError, Taken, fits, take};

use super::{Class, Current, Node};

/// Exclusive CPUs of one pod.
pub(super) struct Grant {
    namespace: String,
    pub(super) class: Class,
    pub(super) cpus: CpuSet,
    pub(super) spec: ResourceSpec,
}

/// Grants of one plan while it is computed.
pub(super) struct Grants<'a> {
    node: Node<'a>,
    /// CPUs that are online and allowed, not reserved and not the kubelet's.
    usable: &'a CpuSet,
    pub(super) granted: BTreeMap<Uid, Grant>,
    pub(super) rejections: BTreeMap<Uid, Reason>,
    pub(super) demoted: BTreeSet<Uid>,
    /// CPU requests of the pods in the shared pool, including rejected claimants, millicores.
    requested_millis: u64,
}

type Claims<'a> = [(&'a Pod, &'a Claim)];

impl<'a> Grants<'a> {
    pub(super) fn new(node: Node<'a>, usable: &'a CpuSet, requested_millis: u64) -> Self {
        let (granted, rejections, demoted) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { node, usable, granted, rejections, demoted, requested_millis }
    }

    /// Grants as many claims as possible. `claims` are sorted, oldest first.
    pub(super) fn grant_all(&mut self, claims: &Claims<'_>, current: &Current) {
        let kept = self.keep(claims, current);
        self.keep_limits(claims);
        self.resize(claims);
        let mut taken = self.taken(None);
        for (pod, claim) in claims {
            let is_decided = self.granted.contains_key(&pod.uid) || self.demoted.contains(&pod.uid);
            if is_decided || current.withheld.contains(&pod.uid) {
                continue;
            }
            // CPUs that were given up for the floor or a resize may be free again after all.
            let again = kept
                .get(&pod.uid)
                .filter(|kept| kept.len() == claim.cpus && kept.is_disjoint(&taken.cpus()));
            let cpus = match again {
                Some(kept) => self.within_limits(pod, kept.clone()),
                None => self.fresh(pod, claim, &taken),
            };
            match cpus {
                Ok(cpus) => {
                    taken.add(cpus.clone(), claim.spec.exclusive);
                    self.record(pod, claim, Ok(cpus));
                }
                Err(reason) => self.reject(pod, claim, reason),
            }
        }
    }

    /// Records the rejection. The pod runs in the shared pool, which must also cover its request.
    fn reject(&mut self, pod: &Pod, claim: &Claim, reason: Reason) {
        self.requested_millis =
            self.requested_millis.saturating_add(pod.request_millis.unwrap_or(0));
        self.record(pod, claim, Err(reason));
    }

    /// Lets running exclusive pods keep their remaining CPUs; if two hold the same CPU, the newer
    /// one is demoted.
    fn keep(&mut self, claims: &Claims<'_>, current: &Current) -> BTreeMap<Uid, CpuSet> {
        let mut kept = BTreeMap::new();
        let mut all = CpuSet::new();
        for (pod, claim) in claims {
            if current.withheld.contains(&pod.uid) {
                self.reject(pod, claim, Reason::SteppedBack);
                continue;
            }
            let lost = current.demoted.contains(&pod.uid);
            let cpus = current
                .held
                .get(&pod.uid)
                .map(|held| held.cpus.intersection(self.usable))
                .unwrap_or_default();
            if lost || !cpus.is_disjoint(&all) {
                self.demoted.insert(pod.uid.clone());
                self.record(pod, claim, Err(Reason::ExclusiveConflict));
            } else if !cpus.is_empty() {
                all = all.union(&cpus);
                kept.insert(pod.uid.clone(), cpus.clone());
                self.record(pod, claim, Ok(cpus));
            }
        }
        kept
    }

    /// Revokes grants, newest first, until the shared pool has its floor and the caps hold: CPUs
    /// may have gone offline, or the operator may have lowered a limit.
    fn keep_limits(&mut self, claims: &Claims<'_>) {
        for (pod, claim) in claims.iter().rev() {
            if self.granted.contains_key(&pod.uid)
                && let Err(reason) = self.limits(pod, 0, self.floor())
            {
                self.granted.remove(&pod.uid);
                self.record(pod, claim, Err(reason));
            }
        }
    }

    /// Resizes grants whose size no longer matches the claim, because the request or the usable
    /// CPUs changed.
    fn resize(&mut self, claims: &Claims<'_>) {
        for (pod, claim) in claims {
            let Some(grant) = self.granted.get(&pod.uid) else { continue };
            if grant.cpus.len() != claim.cpus {
                let kept = grant.cpus.clone();
                let taken = self.taken(Some(&pod.uid));
                let cpus = self.resized(claim, &kept, &taken);
                self.granted.remove(&pod.uid);
                let cpus = cpus.and_then(|cpus| self.within_limits(pod, cpus));
                self.record(pod, claim, cpus);
            }
        }
    }

    /// A subset or a superset of the current CPUs, or another set if neither has the required
    /// shape.
    fn resized(&self, claim: &Claim, kept: &CpuSet, taken: &Taken) -> Result<CpuSet, Reason> {
        let request = self.request(claim)?;
        if kept.len() > claim.cpus {
            let part = Request { allowed: Some(kept.clone()), ..request.clone() };
            if let Ok(cpus) = take(self.node.topology, taken, &part) {
                return Ok(cpus);
            }
        }
        let chosen = take(self.node.topology, taken, &request)?;
        if kept.is_subset(&chosen) || kept.len() > claim.cpus {
            return Ok(chosen);
        }
        let more = Request {
            cpus: claim.cpus - kept.len(),
            allowed: Some(self.usable.difference(kept)),
            ..request.clone()
        };
        let grown = take(self.node.topology, taken, &more).map(|more| more.union(kept));
        Ok(grown.ok().filter(|cpus| fits(self.node.topology, &request, cpus)).unwrap_or(chosen))
    }

    fn fresh(&self, pod: &Pod, claim: &Claim, taken: &Taken) -> Result<CpuSet, Reason> {
        self.caps(pod, claim.cpus)?;
        let request = self.request(claim)?;
        let cpus = match &claim.decided {
            Some(decided) => self.decided(&request, decided, taken)?,
            None => take(self.node.topology, taken, &request)?,
        };
        self.within_limits(pod, cpus)
    }

    /// The CPUs chosen by a trusted scheduler, if no other pod holds them.
    fn decided(
        &self,
        request: &Request,
        decided: &CpuSet,
        taken: &Taken,
    ) -> Result<CpuSet, Reason> {
        if decided.len() != request.cpus || !decided.is_subset(self.usable) {
            return Err(Reason::ResourceStatusInvalid);
        }
        let exactly = Request { allowed: Some(decided.clone()), ..request.clone() };
        take(self.node.topology, taken, &exactly).map_err(|error| match error {
            TakeError::NotEnough { .. } => Reason::ResourceStatusConflict,
            shape => shape.into(),
        })
    }

    fn within_limits(&self, pod: &Pod, cpus: CpuSet) -> Result<CpuSet, Reason> {
        let requested = usize::try_from(self.requested_millis.div_ceil(1000)).unwrap_or(usize::MAX);
        self.limits(pod, cpus.len(), self.floor().max(requested)).map(|()| cpus)
    }

    /// Whether the pod may get `more` CPUs while the shared pool keeps `floor` CPUs.
    fn limits(&self, pod: &Pod, more: usize, floor: usize) -> Result<(), Reason> {
        self.caps(pod, more)?;
        if self.leaves(more, floor) { Ok(()) } else { Err(Reason::SharePoolFloor) }
    }

    /// Checks the operator's caps for the namespace and the node.
    fn caps(&self, pod: &Pod, more: usize) -> Result<(), Reason> {
        let authorization = &self.node.settings.authorization;
        let exceeds = |cap: Option<usize>, granted: usize| {
            cap.is_some_and(|cap| granted.saturating_add(more) > cap)
        };
        let all = || self.granted.values();
        let of_namespace = all()
            .filter(|grant| grant.namespace == pod.namespace)
            .map(|grant| grant.cpus.len())
            .sum();
        // The namespace of a pod that is no longer listed may be unknown.
        if !pod.admitted && exceeds(authorization.namespace_cap(&pod.namespace), of_namespace) {
            return Err(Reason::NamespaceCap);
        }
        match exceeds(authorization.max_exclusive_cpus, all().map(|grant| grant.cpus.len()).sum()) {
            true => Err(Reason::NodeCap),
            false => Ok(()),
        }
    }

    /// Configured minimum of the shared pool. A running pod may lose its CPUs to this minimum, but
    /// never to the requests of pods that arrive later.
    fn floor(&self) -> usize {
        self.node.settings.share_floor.max(1).min(self.usable.len())
    }

    /// Whether the shared pool keeps `floor` CPUs if `more` CPUs are granted.
    fn leaves(&self, more: usize, floor: usize) -> bool {
        let granted: usize = self.granted.values().map(|grant| grant.cpus.len()).sum();
        granted.saturating_add(more).saturating_add(floor) <= self.usable.len()
    }

    fn request(&self, claim: &Claim) -> Result<Request, Reason> {
        let whole_cores = Bind { policy: BindPolicy::FullPcpus, required: true };
        if claim.spec.bind == whole_cores
            && !claim.cpus.is_multiple_of(self.node.topology.whole_core_multiple())
        {
            return Err(Reason::NotWholeCores);
        }
        Ok(Request {
            cpus: claim.cpus,
            bind: claim.spec.bind,
            exclusive: claim.spec.exclusive,
            strategy: self.node.settings.strategy,
            allowed: Some(self.usable.clone()),
            max_holders: 1,
        })
    }

    /// CPUs held by all pods except `but`, including the kubelet's containers.
    fn taken(&self, but: Option<&Uid>) -> Taken {
        let others = self.granted.iter().filter(|(uid, _)| Some(*uid) != but);
        let hold =
            |grant: &Grant| Hold { cpus: grant.cpus.clone(), exclusive: grant.spec.exclusive };
        let mut taken: Taken = others.map(|(_, grant)| hold(grant)).collect();
        taken.add(self.node.kubelet.exclusive.clone(), Exclusivity::default());
        taken
    }

    fn record(&mut self, pod: &Pod, claim: &Claim, cpus: Result<CpuSet, Reason>) {
        match cpus {
            Ok(cpus) => {
                self.rejections.remove(&pod.uid);
                let (namespace, class, spec) = (pod.namespace.clone(), claim.class, claim.spec);
                self.granted.insert(pod.uid.clone(), Grant { namespace, class, cpus, spec });
            }
            Err(reason) => {
                self.rejections.insert(pod.uid.clone(), reason);
            }
        }
    }
}
