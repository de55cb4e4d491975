//! What a cgroup's series are called: the join with the pods, and what to show while a name is not known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pods::model::{Container, Pod};
use pods::{Lookup, PodIndex, Pods};

use crate::cgroup::ContainerKey;
use crate::labels;
use crate::snapshot::{ContainerIdentity, PodIdentity, SpecRow};

/// How long a cgroup without a name is held back where a source of names answers: longer than a kubelet takes to list
/// a new pod, so that a series is not first shown under another name.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cgroup of a settled pod that is this old and in no list is its sandbox: the kubelet lists a new container after its
/// next relist, about a second.
const LISTED_AFTER: Duration = Duration::from_secs(5);

/// Who knows the names of cgroups. The sampler never waits for it.
pub trait PodNames: Send {
    /// The pods as last known.
    fn index(&self) -> Arc<PodIndex>;
    /// This cgroup has no name in the present index; an empty id asks for the pod. May be called at every tick.
    fn ask(&self, pod_uid: &str, container_id: &str);
    /// Some source has answered or is still being asked for the first time: a name may come soon.
    fn may_answer(&self) -> bool;
}

impl PodNames for Pods {
    fn index(&self) -> Arc<PodIndex> {
        Self::index(self)
    }

    fn ask(&self, pod_uid: &str, container_id: &str) {
        Self::ask(self, pod_uid, container_id);
    }

    fn may_answer(&self) -> bool {
        let status = self.status();
        status.iter().any(|source| source.ever() || source.error.is_none())
    }
}

/// What to call a container's cgroup.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Name {
    /// A container of a known pod.
    Known(Box<KnownContainer>),
    /// Not yet; held back.
    Pending,
    /// Show it by its path.
    Unmapped,
    /// A sandbox: never shown.
    Sandbox,
}

/// A named container and what its pod's spec says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownContainer {
    pub(crate) identity: ContainerIdentity,
    pub(crate) request_cores: Option<f64>,
    pub(crate) memory_request_bytes: Option<u64>,
    pub(crate) spec: SpecRow,
}

/// What the kernel lets a container's cgroup use.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) cpu_cores: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
}

/// Names a container's cgroup that was `found` then. A kubelet that lists its id too late names it by its limits.
pub(crate) fn name(names: &dyn PodNames, index: &PodIndex, key: &ContainerKey, found: Instant, limits: Limits) -> Name {
    let pending = || {
        names.ask(&key.uid, &key.id);
        Name::Pending
    };
    let listed_by_now = found.elapsed() >= LISTED_AFTER;
    match index.container(&key.uid, &key.id) {
        Lookup::Named { pod, container } => Name::Known(Box::new(known(pod, container, key))),
        // A list from before the cgroup was there cannot tell a sandbox from a container that is new.
        Lookup::Sandbox { .. } if listed_by_now => Name::Sandbox,
        Lookup::Unlisted { pod } if listed_by_now => match by_limits(pod, limits) {
            Some(container) => Name::Known(Box::new(known(pod, container, key))),
            None => pending(),
        },
        Lookup::Sandbox { .. } | Lookup::Unlisted { .. } => pending(),
        Lookup::UnknownPod => match pending() {
            held_back if names.may_answer() && found.elapsed() < PATIENCE => held_back,
            _ => Name::Unmapped,
        },
    }
}

fn by_limits(pod: &Pod, limits: Limits) -> Option<&Container> {
    let cpu_millis = limits.cpu_cores.map(|cores| (cores * 1000.0).round() as u64);
    pod.container_by_limits(cpu_millis, limits.memory_bytes)
}

fn known(pod: &Pod, container: &Container, key: &ContainerKey) -> KnownContainer {
    let (namespace, pod_name, name) = (pod.namespace.to_string(), pod.name.to_string(), container.name.to_string());
    let identity = ContainerIdentity {
        labels: labels::pairs(&[("namespace", &namespace), ("pod", &pod_name), ("container", &name)]),
        namespace,
        pod: pod_name,
        container: name,
        uid: pod.uid.to_string(),
        container_id: key.id.to_string(),
        image: container.image.to_string(),
        qos_class: pod.qos_class.unwrap_or(key.qos).as_str().to_owned(),
        cpu_qos: pod.pinning.qos_class.as_deref().unwrap_or_default().to_owned(),
        cgroup_driver: key.driver.as_str(),
    };
    let resources = container.resources;
    KnownContainer {
        identity,
        request_cores: resources.cpu_request_millis.map(|millis| millis as f64 / 1000.0),
        memory_request_bytes: resources.memory_request_bytes,
        spec: SpecRow {
            kind: container.kind,
            pod_requests_cpu: pod.resources.cpu_request_millis.is_some(),
            pod_limits_memory: pod.resources.memory_limit_bytes.is_some(),
        },
    }
}

/// What the path alone tells.
pub(crate) fn unmapped(key: &ContainerKey) -> ContainerIdentity {
    ContainerIdentity {
        labels: labels::pairs(&[("namespace", ""), ("pod", &key.uid), ("container", &key.id)]),
        pod: key.uid.to_string(),
        container: key.id.to_string(),
        uid: key.uid.to_string(),
        container_id: key.id.to_string(),
        qos_class: key.qos.as_str().to_owned(),
        cgroup_driver: key.driver.as_str(),
        ..ContainerIdentity::default()
    }
}

/// What a pod's own series are called; true where the pod is known.
pub(crate) fn pod(index: &PodIndex, uid: &str) -> (PodIdentity, bool) {
    let (namespace, pod, known) = match index.pod(uid) {
        Some(pod) => (pod.namespace.to_string(), pod.name.to_string(), true),
        None => (String::new(), uid.to_owned(), false),
    };
    (PodIdentity { labels: labels::pairs(&[("namespace", &namespace), ("pod", &pod)]), namespace, pod }, known)
}

#[cfg(test)]
mod tests {
    use pods::model::{ContainerKind, Resources};
    use pods::path::{Driver, QosClass};

    use super::*;

    #[test]
    fn a_container_is_known_by_its_place_and_by_what_its_pod_has_for_all() {
        let key = ContainerKey { uid: "u".into(), id: "i".into(), qos: QosClass::Burstable, driver: Driver::Cgroupfs };
        let sidecar = Container { kind: ContainerKind::Sidecar, ..Container::default() };
        let spec = |resources| known(&Pod { resources, ..Pod::default() }, &sidecar, &key).spec;
        let none = SpecRow { kind: ContainerKind::Sidecar, pod_requests_cpu: false, pod_limits_memory: false };
        assert_eq!(spec(Resources::default()), none);
        let cpu = Resources { cpu_request_millis: Some(500), ..Resources::default() };
        assert_eq!(spec(cpu), SpecRow { pod_requests_cpu: true, ..none });
        let memory = Resources { memory_limit_bytes: Some(1 << 30), ..Resources::default() };
        assert_eq!(spec(memory), SpecRow { pod_limits_memory: true, ..none });
    }
}
