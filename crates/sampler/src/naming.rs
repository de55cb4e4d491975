//! Names of a cgroup's series: the join with the pods, and the fallback for unnamed cgroups.
//!
//! Pure: time and kernel data are arguments. [`Naming`](crate::cgroup::Naming) holds the result.

use std::time::{Duration, Instant};

use kubepods::model::{Container, ContainerKind, Owner, Pod, Resources};
use kubepods::path::QosClass;
use kubepods::{Lookup, PodIndex};
use snapshot::{ContainerIdentity, PodIdentity, SpecRow, labels};

use crate::cgroup::{ContainerKey, Naming};
use crate::timing::Timing;

/// Schedule of the lookups of an unnamed cgroup: the first at once, then at growing delays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupSchedule {
    due: Instant,
    /// Delay between the last lookup and the next; zero before the first.
    delay: Duration,
}

impl LookupSchedule {
    pub(crate) fn new(found: Instant) -> Self {
        Self { due: found, delay: Duration::ZERO }
    }

    pub(crate) fn due(self) -> Instant {
        self.due
    }

    pub(crate) fn is_due(self, now: Instant) -> bool {
        self.due <= now
    }

    /// Whether further lookups are useless if no source answers: a pause process would have been
    /// found by now.
    pub(crate) fn is_exhausted(self, timing: &Timing) -> bool {
        self.delay * 2 >= timing.max_lookup_delay
    }

    /// Records a lookup at `now`.
    pub(crate) fn record(&mut self, now: Instant, timing: &Timing) {
        let delay = (self.delay * 2).max(timing.first_lookup_delay);
        self.delay = delay.min(timing.max_lookup_delay);
        self.due = now + self.delay;
    }
}

/// Name of a container's cgroup.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Name {
    /// A container of a known pod.
    Known(Box<KnownContainer>),
    /// Not known yet: counted, but not shown.
    Pending,
    /// Shown by its id.
    Unmapped(Box<ContainerIdentity>),
    /// A sandbox: shown only if it uses CPU.
    Sandbox,
}

/// A named container and the data from its pod's spec.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownContainer {
    pub(crate) identity: ContainerIdentity,
    pub(crate) request_cores: Option<f64>,
    pub(crate) memory_request_bytes: Option<u64>,
    pub(crate) spec: SpecRow,
}

/// Limits of a container's cgroup, as the kernel enforces them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) cpu_cores: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
}

/// Facts about an unnamed cgroup, apart from the pod list.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Circumstances {
    /// Time since the cgroup was found.
    pub(crate) age: Duration,
    /// Age of the cgroup when the request for the latest list began; `None` if that list is older.
    pub(crate) age_at_list: Option<Duration>,
    pub(crate) limits: Limits,
    /// Whether a source of names may answer.
    pub(crate) may_answer: bool,
}

/// Kernel data about an unnamed cgroup and its pod. Each method costs reads, so it is called only
/// if needed.
pub(crate) trait Surroundings {
    /// Whether its only process is a pause process.
    fn runs_pause(&self) -> bool;
    /// Whether it contains a process, visible or not, or a child cgroup.
    fn is_populated(&self) -> bool;
    /// Whether the pod has a cgroup for this container.
    fn lives(&self, container_id: &str) -> bool;
    /// Whether another cgroup of the pod is its proven sandbox. A pod has one at a time.
    fn has_sandbox(&self) -> bool;
}

/// Names a container's cgroup. A sandbox needs positive evidence: a pause process in it, or a list
/// that was requested well after the cgroup appeared and leaves no other explanation.
pub(crate) fn name(
    index: &PodIndex,
    key: &ContainerKey,
    circumstances: Circumstances,
    surroundings: &impl Surroundings,
    timing: &Timing,
) -> Name {
    let Circumstances { age, age_at_list, limits, may_answer } = circumstances;
    let lookup = index.container(&key.uid, &key.id);
    if let Lookup::Named { pod, container } = lookup {
        return Name::Known(Box::new(known(pod, container, key)));
    }
    if surroundings.runs_pause() && !surroundings.has_sandbox() {
        return Name::Sandbox;
    }
    let is_old_enough = is_shown_unnamed(index, key, age, may_answer, timing);
    let unnamed = |is_shown| match is_shown {
        true => Name::Unmapped(Box::new(unmapped(index, key))),
        false => Name::Pending,
    };
    let Lookup::Unlisted { pod } = lookup else {
        return unnamed(is_old_enough);
    };
    if !key.has_container_id() {
        return Name::Sandbox;
    }
    if age_at_list.is_some_and(|age| age >= timing.listed_after) {
        if let Some(container) = by_limits(pod, limits) {
            return Name::Known(Box::new(known(pod, container, key)));
        }
        // The containers of a virtual machine have no cgroups.
        let lives = |id: &str| pod.is_sandboxed() || surroundings.lives(id);
        if pod.leaves_only_its_sandbox(lives) && !surroundings.has_sandbox() {
            return Name::Sandbox;
        }
    }
    // Leftovers of an earlier run are counted but not shown: they need no name.
    unnamed(is_old_enough && surroundings.is_populated())
}

/// Whether an unlisted cgroup of this age is shown by its id.
pub(crate) fn is_shown_unnamed(
    index: &PodIndex,
    key: &ContainerKey,
    age: Duration,
    may_answer: bool,
    timing: &Timing,
) -> bool {
    let held_back = match index.pod(&key.uid) {
        Some(_) => timing.hide_unlisted,
        None if may_answer => timing.hide_unknown_pod,
        None => Duration::ZERO,
    };
    age >= held_back
}

/// Finds the container by its limits, for a kubelet that lists the container's id too late.
fn by_limits(pod: &Pod, limits: Limits) -> Option<&Container> {
    let cpu_millis = limits.cpu_cores.map(|cores| (cores * 1000.0).round() as u64);
    pod.container_by_limits(cpu_millis, limits.memory_bytes)
}

/// Finds the listed container with this id, for a cgroup that is gone or was classified as a
/// sandbox.
pub(crate) fn listed(index: &PodIndex, key: &ContainerKey) -> Option<KnownContainer> {
    match index.container(&key.uid, &key.id) {
        Lookup::Named { pod, container } => Some(known(pod, container, key)),
        _ => None,
    }
}

/// Current spec data of an already named container. Returns `None` if its pod, or the container in
/// it, is no longer known: the previous data then stays.
pub(crate) fn refreshed(
    index: &PodIndex,
    key: &ContainerKey,
    identity: &ContainerIdentity,
) -> Option<KnownContainer> {
    let pod = index.pod(&key.uid)?;
    let is_same = *pod.namespace == *identity.namespace && *pod.name == *identity.pod;
    let container = pod.container_by_name(&identity.container).filter(|_| is_same)?;
    let mut known = known(pod, container, key);
    if container.id.as_deref() != Some(&*key.id) {
        // The container has two cgroups, and the other one is running now.
        known.identity.container_id.clone_from(&identity.container_id);
    }
    Some(known)
}

fn known(pod: &Pod, container: &Container, key: &ContainerKey) -> KnownContainer {
    let (namespace, pod_name, name) =
        (pod.namespace.to_string(), pod.name.to_string(), container.name.to_string());
    let identity = ContainerIdentity {
        labels: labels::pairs(&[
            ("namespace", &namespace),
            ("pod", &pod_name),
            ("container", &name),
        ]),
        namespace,
        pod: pod_name,
        container: name,
        uid: pod.uid.to_string(),
        container_id: key.id.to_string(),
        image: container.image.to_string(),
        qos_class: pod.qos_class.unwrap_or(key.qos).as_str().to_owned(),
        cpu_qos: pod.pinning.qos_class.as_deref().unwrap_or_default().to_owned(),
        best_effort: is_best_effort(Some(pod), key),
        cgroup_driver: key.driver.as_str(),
        workload: workload(pod),
        pod_labels: Box::default(),
        claims_cpus: container.claimed_cpus.is_some(),
    };
    let resources = container.resources;
    KnownContainer {
        identity,
        request_cores: resources.cpu_request_millis.map(|millis| millis as f64 / 1000.0),
        memory_request_bytes: resources.memory_request_bytes,
        spec: spec(pod, container),
    }
}

fn spec(pod: &Pod, container: &Container) -> SpecRow {
    let differs = |actual: Option<Resources>, desired: Resources| {
        actual.is_some_and(|actual| actual.cpu_limit_millis != desired.cpu_limit_millis)
    };
    let count = |has: fn(&Resources) -> bool| {
        let lasting = pod.containers.iter().filter(|one| one.kind != ContainerKind::Ephemeral);
        lasting.filter(|one| has(&one.resources)).count() as u32
    };
    SpecRow {
        kind: container.kind,
        resources: container.resources,
        pod: pod.resources,
        is_resizing: pod.resize.is_some()
            || differs(container.actual_resources, container.resources)
            || differs(pod.actual_resources, pod.resources),
        containers: count(|_| true),
        guaranteed: count(Resources::is_guaranteed),
        memory_limits: count(|resources| resources.memory_limit_bytes.is_some()),
        pod_requests_cpu: pod.resources.cpu_request_millis.is_some(),
        pod_limits_memory: pod.resources.memory_limit_bytes.is_some(),
    }
}

/// Whether the pod is best effort; by its cgroup until its class is known.
fn is_best_effort(pod: Option<&Pod>, key: &ContainerKey) -> bool {
    let known = pod.filter(|pod| pod.qos_class.is_some());
    known.map_or(key.qos == QosClass::BestEffort, Pod::is_best_effort)
}

/// A label of pods that container_info has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedLabel {
    /// Key of the pod's label.
    pub key: Box<str>,
    /// Name of the metric's label.
    pub name: Box<str>,
}

/// The exported labels that the pod has, escaped.
pub(crate) fn pod_labels(index: &PodIndex, uid: &str, exported: &[ExportedLabel]) -> Box<str> {
    let Some(pod) = index.pod(uid).filter(|_| !exported.is_empty()) else { return Box::default() };
    let present = exported.iter().filter_map(|label| Some((&*label.name, pod.label(&label.key)?)));
    let mut text = String::new();
    labels::append(&mut text, present);
    text.into_boxed_str()
}

/// The workload of a pod. A static pod belongs to its node, which is none.
fn workload(pod: &Pod) -> Option<Owner> {
    pod.owner.clone().filter(|owner| &*owner.kind != "Node")
}

/// Identity of an unnamed cgroup: the container's id, under its pod or, if the pod is unknown,
/// under the pod's UID.
pub(crate) fn unmapped(index: &PodIndex, key: &ContainerKey) -> ContainerIdentity {
    in_pod(index, key, &key.id)
}

/// Container name of a sandbox's series, as cAdvisor names it. No container has this name: names
/// are lowercase.
const SANDBOX: &str = "POD";

/// Identity of a sandbox that uses CPU; `None` while the pod is unknown.
pub(crate) fn sandbox(index: &PodIndex, key: &ContainerKey) -> Option<ContainerIdentity> {
    let pod = index.pod(&key.uid)?;
    let identity = in_pod(index, key, SANDBOX);
    let cpu_qos = pod.pinning.qos_class.as_deref().unwrap_or_default().to_owned();
    let qos_class = pod.qos_class.unwrap_or(key.qos).as_str().to_owned();
    Some(ContainerIdentity { cpu_qos, qos_class, workload: workload(pod), ..identity })
}

/// Identity that collects the counts of a pod's unnamed exited containers once there are many;
/// without a container name.
pub(crate) fn exited_unnamed(index: &PodIndex, key: &ContainerKey) -> ContainerIdentity {
    ContainerIdentity { container_id: String::new(), ..in_pod(index, key, "") }
}

fn in_pod(index: &PodIndex, key: &ContainerKey, container: &str) -> ContainerIdentity {
    let pod = index.pod(&key.uid);
    let (namespace, name) = pod.map_or(("", &*key.uid), |pod| (&*pod.namespace, &*pod.name));
    ContainerIdentity {
        labels: labels::pairs(&[("namespace", namespace), ("pod", name), ("container", container)]),
        namespace: namespace.to_owned(),
        pod: name.to_owned(),
        container: container.to_owned(),
        uid: key.uid.to_string(),
        container_id: key.id.to_string(),
        qos_class: key.qos.as_str().to_owned(),
        best_effort: is_best_effort(pod.map(|pod| &**pod), key),
        cgroup_driver: key.driver.as_str(),
        ..ContainerIdentity::default()
    }
}

/// Identity and naming state of a pod's own series.
pub(crate) fn pod(
    index: &PodIndex,
    uid: &str,
    age: Duration,
    may_answer: bool,
    timing: &Timing,
) -> (PodIdentity, Naming) {
    let (namespace, pod, naming) = match index.pod(uid) {
        Some(pod) => (pod.namespace.to_string(), pod.name.to_string(), Naming::Named),
        None if may_answer && age < timing.hide_unknown_pod => {
            (String::new(), uid.to_owned(), Naming::Pending)
        }
        None => (String::new(), uid.to_owned(), Naming::Unmapped),
    };
    (PodIdentity::new(namespace, pod), naming)
}

#[cfg(test)]
mod tests;
