//! The last plan and the reservations since, and the decisions from them. Pure: time is an
//! argument.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel_text::{CgroupVersion, CpuSet};
use placement::{Class, Holding, Placement, Plan, Pod, Uid};

use super::attempts::Attempts;
use super::{ForeignContainer, ForeignContainers, Placed};
use crate::Machine;
use crate::planned::{PlanInputs, Planned, Rules};

/// Maximum time from the last start of a container until a pass sees its pod, and from a resize
/// until a list of pods has it.
const RESERVED_FOR: Duration = Duration::from_secs(10);

/// The plan of a pass that enforces it.
#[derive(Debug, Clone)]
pub(crate) struct InEffect {
    pub(crate) machine: Arc<Machine>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) planned: Planned,
    pub(crate) version: CgroupVersion,
    /// Grants in force before the plan is carried out.
    pub(crate) held: BTreeMap<Uid, Holding>,
    /// CPUs that each pod's cgroup has from before the writes until after them. A container outside
    /// of them cannot be created on cgroup v1.
    pub(crate) confined: BTreeMap<Uid, CpuSet>,
}

/// CPUs in which containers of a pod have started.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reservation {
    pub(crate) claim: Pod,
    pub(crate) holding: Holding,
    pub(crate) since: Instant,
}

/// Size that the runtime is about to give to a pod.
#[derive(Debug, Clone, Copy)]
struct Resize {
    request_millis: Option<u64>,
    limit_millis: Option<u64>,
    since: Instant,
}

/// The last plan with the starts since.
#[derive(Debug, Default)]
pub(crate) struct AdmissionState {
    /// `None` while pinning is not in effect.
    published: Option<Published>,
    reservations: BTreeMap<Uid, Reservation>,
    /// Resizes that no list of pods is known to have.
    resizes: BTreeMap<Uid, Resize>,
    /// Containers that got their CPUs at their creation, by id.
    placed: BTreeSet<String>,
    foreign: ForeignContainers,
    attempts: Attempts,
    /// Sandboxes of pods, by id.
    sandboxes: BTreeSet<String>,
}

#[derive(Debug)]
struct Published {
    at: Instant,
    effect: InEffect,
    /// Inputs of the next plan: the last plan's outcome with the starts since.
    inputs: PlanInputs,
    /// The last plan, made again after a start of an unknown pod.
    plan: Arc<Plan>,
    /// Whether a start has changed the inputs.
    has_starts: bool,
}

impl AdmissionState {
    /// CPUs for a new container, and whether they were reserved now.
    pub(super) fn start(
        &mut self,
        pod: &Pod,
        container_id: &str,
        max_age: Duration,
        now: Instant,
    ) -> Option<(Placed, bool)> {
        let pod = self.in_force(pod);
        let (placement, is_reserved) = self.reserve(&pod, max_age, now)?;
        let cpus = self.published.as_ref()?.free(&pod, &placement, true)?;
        self.placed.insert(container_id.to_owned());
        Some((Placed { class: placement.class, cpus }, is_reserved))
    }

    /// CPUs for an update of a placed container, and whether they were reserved now.
    pub(super) fn keep(
        &mut self,
        pod: &Pod,
        container_id: &str,
        max_age: Duration,
        now: Instant,
    ) -> Option<(Placed, bool)> {
        if !self.placed.contains(container_id) {
            return None;
        }
        let pod = self.in_force(pod);
        let (placement, is_reserved) = self.reserve(&pod, max_age, now)?;
        let published = self.published.as_ref()?;
        // On cgroup v2 the container's CPUs may exceed those of its pod, and then follow them. So a
        // pod that grows has its CPUs as soon as a pass has widened its cgroup.
        let is_confined = published.effect.version == CgroupVersion::V1;
        let cpus = published.free(&pod, &placement, is_confined)?;
        Some((Placed { class: placement.class, cpus }, is_reserved))
    }

    /// The runtime is about to give the pod another size. Returns whether CPUs were reserved now.
    pub(super) fn resize(&mut self, pod: &Pod, max_age: Duration, now: Instant) -> bool {
        let Some((_, is_reserved)) = self.reserve(pod, max_age, now) else { return false };
        let Pod { request_millis, limit_millis, .. } = *pod;
        self.resizes.insert(pod.uid.clone(), Resize { request_millis, limit_millis, since: now });
        is_reserved
    }

    /// The pod's CPUs, and whether they were reserved now.
    fn reserve(&mut self, pod: &Pod, max_age: Duration, now: Instant) -> Option<(Placement, bool)> {
        let published = self.published.as_mut()?;
        let authorization = &published.effect.rules.settings.authorization;
        if now.saturating_duration_since(published.at) > max_age
            || published.is_left_alone(pod)
            || self.foreign.is_preserved(&pod.uid, authorization)
        {
            return None;
        }
        let placement = published.placement(pod)?;
        let class = placement.class;
        let is_reserved = class.is_exclusive() && {
            let holding = Holding { class, cpus: placement.cpus.clone() };
            let new = published.reserve(pod, &holding);
            if new || self.reservations.contains_key(&pod.uid) {
                let claim = pod.clone();
                let reservation = Reservation { claim, holding, since: now };
                self.reservations.insert(pod.uid.clone(), reservation);
            }
            new
        };
        Some((placement, is_reserved))
    }

    /// The pod with the size that the runtime is about to give to it, if any.
    fn in_force<'a>(&self, pod: &'a Pod) -> Cow<'a, Pod> {
        self.resizes.get(&pod.uid).map_or(Cow::Borrowed(pod), |resize| {
            let Resize { request_millis, limit_millis, .. } = *resize;
            Cow::Owned(Pod { request_millis, limit_millis, ..pod.clone() })
        })
    }

    /// Gives the pods of a pass the sizes that the runtime is about to write, until their list has
    /// them.
    pub(crate) fn apply_resizes(&mut self, claims: &mut [Pod], now: Instant) {
        self.resizes.retain(|_, one| now.saturating_duration_since(one.since) < RESERVED_FOR);
        for pod in claims {
            let Some(&Resize { request_millis, limit_millis, .. }) = self.resizes.get(&pod.uid)
            else {
                continue;
            };
            if (pod.request_millis, pod.limit_millis) == (request_millis, limit_millis) {
                self.resizes.remove(&pod.uid);
            }
            (pod.request_millis, pod.limit_millis) = (request_millis, limit_millis);
        }
    }

    pub(super) fn synchronized(
        &mut self,
        sandboxes: BTreeSet<String>,
        placed: BTreeSet<String>,
        foreign: BTreeMap<String, ForeignContainer>,
        now: Instant,
    ) {
        self.sandboxes = sandboxes;
        self.placed = placed;
        self.foreign.replace(foreign);
        self.attempts = Attempts::default();
        self.yield_to_others(now);
    }

    pub(super) fn sandbox_started(&mut self, id: &str) {
        self.sandboxes.insert(id.to_owned());
    }

    pub(super) fn start_foreign(&mut self, id: &str, container: ForeignContainer, now: Instant) {
        self.foreign.add(id, container);
        self.yield_to_others(now);
    }

    /// Returns whether the container may have CPUs.
    pub(super) fn creation_began(
        &mut self,
        pod: &str,
        name: &str,
        id: &str,
        is_placed: bool,
        now: Instant,
    ) -> bool {
        let may_have_cpus = self.attempts.begin(pod, name, is_placed, now);
        if !may_have_cpus {
            self.placed.remove(id);
        }
        may_have_cpus
    }

    /// Returns whether the obstacle has come.
    pub(super) fn creation_ended(&mut self, pod: &str, name: &str, now: Instant) -> bool {
        let had_obstacle = self.attempts.obstacle(now).is_some();
        self.attempts.end(pod, name, now);
        self.yield_to_others(now);
        !had_obstacle && self.attempts.obstacle(now).is_some()
    }

    /// The obstacle to writing any cpuset, if another program places containers.
    pub(crate) fn obstacle(&self, now: Instant) -> Option<String> {
        self.foreign.obstacle().or_else(|| self.attempts.obstacle(now))
    }

    /// Places nothing beside another program that places containers.
    fn yield_to_others(&mut self, now: Instant) {
        if self.obstacle(now).is_some() {
            self.suspend();
        }
    }

    /// Returns whether the container was a foreign one.
    pub(super) fn container_stopped(&mut self, id: &str) -> bool {
        self.foreign.remove(id)
    }

    /// Returns whether the container was a foreign one.
    pub(super) fn container_removed(&mut self, id: &str) -> bool {
        self.placed.remove(id);
        self.foreign.remove(id)
    }

    /// Ends the pod's reservation and removes its foreign containers; returns whether it had any of
    /// them, or was a part of the obstacle.
    pub(super) fn pod_removed(&mut self, uid: &str, sandbox: &str, now: Instant) -> bool {
        self.sandboxes.remove(sandbox);
        self.resizes.remove(uid);
        let had_foreign = self.foreign.remove_pod(uid);
        let had_obstacle = self.attempts.obstacle(now).is_some();
        self.attempts.remove_pod(uid);
        let is_obstacle_over = had_obstacle && self.attempts.obstacle(now).is_none();
        self.end_reservation(uid) || had_foreign || is_obstacle_over
    }

    fn end_reservation(&mut self, uid: &str) -> bool {
        let was_reserved = self.reservations.remove(uid).is_some();
        if let Some(published) = self.published.as_mut().filter(|_| was_reserved) {
            published.forget(uid);
        }
        was_reserved
    }

    /// The reservations for the next plan; those of pods that never appeared end.
    pub(crate) fn reservations(&mut self, now: Instant) -> &BTreeMap<Uid, Reservation> {
        let is_current =
            |one: &Reservation| now.saturating_duration_since(one.since) < RESERVED_FOR;
        self.reservations.retain(|_, one| is_current(one));
        &self.reservations
    }

    /// Containers that are not this agent's to place.
    pub(crate) fn foreign(&self) -> &ForeignContainers {
        &self.foreign
    }

    /// Sandboxes of pods, by id.
    pub(crate) fn sandboxes(&self) -> &BTreeSet<String> {
        &self.sandboxes
    }

    /// Begins again after a panic, with the foreign containers and the sandboxes, which are
    /// reported only once.
    pub(super) fn renew(&mut self) {
        let (foreign, sandboxes) = (take(&mut self.foreign), take(&mut self.sandboxes));
        *self = Self { foreign, sandboxes, ..Self::default() };
    }

    /// Containers that got their CPUs at their creation, by id.
    pub(crate) fn placed(&self) -> &BTreeSet<String> {
        &self.placed
    }

    /// Publishes a plan, which includes the reservations, before it is carried out. `seen` are the
    /// pods that have cgroups: from here on they are in every plan.
    pub(crate) fn publish(&mut self, effect: InEffect, seen: &BTreeSet<&Uid>, now: Instant) {
        self.reservations.retain(|uid, _| !seen.contains(uid));
        if self.obstacle(now).is_some() {
            // Reported since the pass has asked for obstacles.
            return;
        }
        let same = self.published.take().filter(|old| {
            !old.has_starts && Arc::ptr_eq(&old.effect.planned.plan, &effect.planned.plan)
        });
        let inputs = same.map_or_else(|| next_inputs(&effect.planned), |old| old.inputs);
        let plan = Arc::clone(&effect.planned.plan);
        self.published = Some(Published { at: now, effect, inputs, plan, has_starts: false });
    }

    /// Records the results of the writes: the grants in force, and the CPUs of the pods' cgroups.
    pub(crate) fn apply_results(
        &mut self,
        held: &BTreeMap<Uid, Holding>,
        confined: impl Fn(&Uid) -> Option<CpuSet>,
    ) {
        let Some(Published { effect, .. }) = &mut self.published else { return };
        if effect.held != *held {
            effect.held.clone_from(held);
        }
        for (uid, cpus) in &mut effect.confined {
            if let Some(now) = confined(uid) {
                *cpus = now;
            }
        }
    }

    /// Pinning is not in effect: nothing is placed until the next plan.
    pub(crate) fn suspend(&mut self) {
        self.published = None;
        self.reservations.clear();
        self.resizes.clear();
    }
}

impl Published {
    /// Whether the agent does not write this pod's cpusets: another program does, or it is paused.
    fn is_left_alone(&self, pod: &Pod) -> bool {
        let PlanInputs { kubelet, current, .. } = &self.inputs;
        kubelet.places(&pod.uid) || current.withheld.contains(&pod.uid)
    }

    /// The pod's CPUs by the last plan or, if the plan did not know the pod as it is now, by a new
    /// one.
    fn placement(&mut self, pod: &Pod) -> Option<Placement> {
        if self.take_in(pod) {
            self.has_starts = true;
            let InEffect { machine, rules, .. } = &self.effect;
            self.plan = Arc::new(self.inputs.plan(machine, rules).ok()?);
        }
        self.plan.placements.get(&pod.uid).cloned()
    }

    /// Adds the pod to the inputs; returns whether they change.
    fn take_in(&mut self, pod: &Pod) -> bool {
        let claims = &mut self.inputs.claims;
        let Some(known) = claims.iter_mut().find(|known| known.uid == pod.uid) else {
            claims.push(Pod { arrival: u64::MAX, ..pod.clone() });
            return true;
        };
        let new = Pod { arrival: known.arrival, ..pod.clone() };
        let is_new = *known != new;
        *known = new;
        is_new
    }

    /// Makes the pod the holder of its CPUs; returns whether it was not.
    fn reserve(&mut self, pod: &Pod, holding: &Holding) -> bool {
        let held = &mut self.inputs.current.held;
        if held.get(&pod.uid) == Some(holding) {
            return false;
        }
        if let Some(left) = held.insert(pod.uid.clone(), holding.clone()) {
            // Its containers run on these CPUs until a pass has narrowed them.
            let in_force = self.effect.held.entry(pod.uid.clone()).or_insert_with(|| left.clone());
            in_force.cpus = in_force.cpus.union(&left.cpus);
        }
        self.has_starts = true;
        true
    }

    fn forget(&mut self, uid: &str) {
        self.has_starts = true;
        self.inputs.claims.retain(|pod| *pod.uid != *uid);
        self.inputs.current.held.remove(uid);
        if let Ok(plan) = self.inputs.plan(&self.effect.machine, &self.effect.rules) {
            self.plan = Arc::new(plan);
        }
    }

    /// The part of the placement that no other pod holds and, if the container is confined, that
    /// the pod's cgroup has. While the CPUs of an exclusive pod are still others', it starts in the
    /// shared pool.
    fn free(&self, pod: &Pod, placement: &Placement, is_confined: bool) -> Option<CpuSet> {
        let confined = self.effect.confined.get(&pod.uid).filter(|_| is_confined);
        let free = |class, cpus: &CpuSet| {
            let free = cpus.difference(&self.closed_to(&pod.uid, class));
            confined.map_or_else(|| free.clone(), |confined| free.intersection(confined))
        };
        let own = free(placement.class, &placement.cpus);
        let cpus = if own.is_empty() { free(Class::Share, &self.plan.pools.share) } else { own };
        (!cpus.is_empty()).then_some(cpus)
    }

    /// CPUs that other pods hold now, or will after the writes, and do not share with this class.
    fn closed_to(&self, uid: &Uid, class: Class) -> CpuSet {
        let all = self.effect.held.iter().chain(&self.inputs.current.held);
        let others = all.filter(|(other, held)| *other != uid && !class.may_share_with(held.class));
        others.fold(CpuSet::new(), |closed, (_, held)| closed.union(&held.cpus))
    }
}

/// Inputs of a plan that keeps the outcome of this one.
fn next_inputs(planned: &Planned) -> PlanInputs {
    let mut current = planned.plan.outcome();
    current.withheld.clone_from(&planned.from.current.withheld);
    PlanInputs { current, ..(*planned.from).clone() }
}

#[cfg(test)]
impl AdmissionState {
    /// Takes the plan of another state.
    pub(super) fn publish_of(&mut self, other: &mut Self) {
        self.published = other.published.take();
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.published.is_none()
    }

    /// CPUs that a pod holds in the next plan.
    pub(super) fn held(&self, uid: &Uid) -> Option<&Holding> {
        self.published.as_ref()?.inputs.current.held.get(uid)
    }
}
