//! A pod as cpuwarden stores it: only names, identities and resources of the API object.
//!
//! Plain immutable values, filled by `decode` and the sources. `None` means that the object does
//! not contain the value, never zero.

use crate::path::QosClass;

/// A pod bound to this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.namespace`.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.uid` as reported by this source. The kubelet and the API server differ for static
    /// pods.
    pub uid: Box<str>,
    /// Hash of a static pod's manifest, used in its cgroup name instead of a UID. In the kubelet's
    /// list it equals the UID.
    pub static_hash: Option<Box<str>>,
    /// `spec.nodeName`.
    pub node: Option<Box<str>>,
    /// `status.qosClass`; `None` until the kubelet has seen the pod.
    pub qos_class: Option<QosClass>,
    /// `spec.priority`.
    pub priority: Option<i32>,
    /// `spec.priorityClassName`.
    pub priority_class: Option<Box<str>>,
    /// Request for Koordinator-style pinning.
    pub pinning: PinningRequest,
    /// Request for environment variables at the start of its containers.
    pub injection: InjectionRequest,
    /// Annotation `koordinator.sh/cpuBurst`, JSON, unparsed.
    pub burst: Option<Box<str>>,
    /// `spec.runtimeClassName`.
    pub runtime_class: Option<Box<str>>,
    /// `metadata.labels`, sorted by key.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// The workload that the pod belongs to.
    pub owner: Option<Owner>,
    /// `status.phase`.
    pub phase: Phase,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.resources`: the pod-level resources of Kubernetes 1.32 and later.
    pub resources: Resources,
    /// `status.resources`: current pod-level resources, which lag behind [`Self::resources`] during
    /// a resize (1.35 and later).
    pub actual_resources: Option<Resources>,
    /// Status of an in-place resize of the pod.
    pub resize: Option<Resize>,
    /// CPU and memory of the whole pod as the container runtime reports them, for a pod that no
    /// list contains yet. Such a pod has no spec: its containers are those created so far, of
    /// unknown kind.
    pub unlisted: Option<Resources>,
    /// Init containers and sidecars, then containers, then ephemeral containers, each in spec
    /// order.
    pub containers: Vec<Container>,
}

/// The pod author's request for CPU placement, unparsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinningRequest {
    /// Label `koordinator.sh/qosClass`.
    pub qos_class: Option<Box<str>>,
    /// Label `koordinator.sh/priority-class`.
    pub priority_class: Option<Box<str>>,
    /// Annotation `scheduling.koordinator.sh/resource-spec`, JSON.
    pub resource_spec: Option<Box<str>>,
    /// Annotation `scheduling.koordinator.sh/resource-status`, JSON.
    pub resource_status: Option<Box<str>>,
}

/// The pod author's request for environment variables, unparsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InjectionRequest {
    /// Annotation `cpuwarden.io/inject-env`.
    pub variables: Option<Box<str>>,
    /// Annotation `cpuwarden.io/inject-env-containers`.
    pub containers: Option<Box<str>>,
}

/// The controller of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// `Deployment`, `StatefulSet`, `DaemonSet`, `CronJob`, `Job`, `Rollout`, `ReplicaSet`, `Node`
    /// (static pods), …
    pub kind: Box<str>,
    /// Name of the controller.
    pub name: Box<str>,
}

/// `status.phase`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not started, or not reported.
    #[default]
    Pending,
    /// At least one container has started.
    Running,
    /// All containers ended successfully.
    Succeeded,
    /// Some container failed, or the pod was never admitted (then without container statuses).
    Failed,
    /// The node cannot determine the phase.
    Unknown,
}

impl Phase {
    /// Whether no container of the pod will start any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// CPU and memory of a `resources` object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resources {
    /// `requests.cpu`, millicores.
    pub cpu_request_millis: Option<u64>,
    /// `limits.cpu`, millicores; never 0, which is no limit.
    pub cpu_limit_millis: Option<u64>,
    /// `requests.memory`, bytes.
    pub memory_request_bytes: Option<u64>,
    /// `limits.memory`, bytes; never 0, which is no limit.
    pub memory_limit_bytes: Option<u64>,
}

impl Resources {
    /// Whether CPU and memory have limits that equal the requests: if all containers of a pod do,
    /// its QoS class is Guaranteed. A request that is not set equals the limit.
    #[must_use]
    pub fn is_guaranteed(&self) -> bool {
        let is_equal = |limit: Option<u64>, request: Option<u64>| {
            limit.is_some() && request.is_none_or(|request| Some(request) == limit)
        };
        is_equal(self.cpu_limit_millis, self.cpu_request_millis)
            && is_equal(self.memory_limit_bytes, self.memory_request_bytes)
    }
}

/// Status of an in-place resize: `status.resize` up to 1.32, the conditions `PodResizePending` and
/// `PodResizeInProgress` since 1.33.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resize {
    /// Requested, but not evaluated yet.
    Proposed,
    /// Being applied.
    InProgress,
    /// Does not fit at present.
    Deferred,
    /// Can never fit on this node.
    Infeasible,
}

/// The list of the spec that contains a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// `spec.containers`.
    #[default]
    App,
    /// `spec.initContainers`: runs to completion before the next ones start.
    Init,
    /// `spec.initContainers` with `restartPolicy: Always`.
    Sidecar,
    /// `spec.ephemeralContainers`.
    Ephemeral,
}

/// `state` of a container status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ContainerState {
    /// No status yet.
    #[default]
    Unreported,
    /// Not started, or between two runs.
    Waiting,
    /// Running.
    Running,
    /// Ended.
    Terminated,
}

/// A container of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    /// `name`.
    pub name: Box<str>,
    /// The list of the spec that contains it.
    pub kind: ContainerKind,
    /// Id of the current or, without one, the last run, without `containerd://`. It is absent until
    /// the kubelet knows it, which is later than the creation of the cgroup.
    pub id: Option<Box<str>>,
    /// Id of the previous run (`lastState.terminated.containerID`).
    pub last_id: Option<Box<str>>,
    /// Part of the id before `://`: `containerd`, `cri-o`, `docker`.
    pub runtime: Option<Box<str>>,
    /// `image` of the spec, as its author wrote it.
    pub image: Box<str>,
    /// Desired resources, from the spec.
    pub resources: Resources,
    /// Current resources, from the status (1.33 and later, or with the InPlacePodVerticalScaling
    /// gate).
    pub actual_resources: Option<Resources>,
    /// Whether the spec has claims of dynamic resource allocation.
    pub has_claims: bool,
    /// CPUs of its claims in list format, by an environment variable that the container runtime
    /// reports. Every author of a pod can set it; no list contains it.
    pub claimed_cpus: Option<Box<str>>,
    /// State of the current run.
    pub state: ContainerState,
    /// `restartCount`.
    pub restart_count: u32,
    /// Whether no further run starts before the kubelet reports it: the container is running, or
    /// has ended for good.
    pub is_final: bool,
}

/// Minimum CPU limit with a quota, millicores: the kubelet sets at least 1 ms per 100 ms
/// (`pkg/kubelet/cm/helpers_linux.go`, `MinQuotaPeriod`).
const MIN_QUOTA_MILLIS: u64 = 10;

/// Rounds a memory limit down to units of 64 KiB. The kernel rounds it down to whole pages, which
/// are at most that large.
fn in_pages(bytes: u64) -> u64 {
    bytes >> 16
}

/// Koordinator's priorities of batch pods.
const BATCH: std::ops::RangeInclusive<i32> = 5000..=5999;

/// Runtimes that run a pod in a virtual machine or on a kernel of its own, by the word in the name
/// of the runtime class: `gvisor`, `kata-qemu`, `runsc-kvm`. There the containers' threads are in
/// the cgroup of the sandbox.
const SANDBOXED: [&str; 8] =
    ["gvisor", "runsc", "kata", "katacontainers", "firecracker", "edera", "quark", "urunc"];

/// Lowest priority of a system-critical pod (`SystemCriticalPriority` of Kubernetes).
const SYSTEM_CRITICAL: i32 = 2_000_000_000;

impl Pod {
    /// Whether the pod is best effort: by its QoS class, or a Burstable pod with the priority of a
    /// batch pod. A Guaranteed pod never is: it may have exclusive CPUs. A system-critical pod
    /// never is either: kubeadm's kube-proxy requests nothing, and its class is BestEffort.
    #[must_use]
    pub fn is_best_effort(&self) -> bool {
        if self.priority.is_some_and(|value| value >= SYSTEM_CRITICAL) {
            return false;
        }
        match self.qos_class {
            Some(QosClass::BestEffort) => true,
            Some(QosClass::Burstable) => self.priority.is_some_and(|value| BATCH.contains(&value)),
            Some(QosClass::Guaranteed) | None => false,
        }
    }

    /// Whether its runtime class is one that is known to run pods in a sandbox.
    #[must_use]
    pub fn is_sandboxed(&self) -> bool {
        let class = self.runtime_class.as_deref().unwrap_or_default();
        class.split(['-', '.']).any(|word| SANDBOXED.contains(&word))
    }

    /// Finds a container by the runtime id of its current or previous run.
    pub fn container_by_id(&self, id: &str) -> Option<&Container> {
        let has = |field: &Option<Box<str>>| field.as_deref() == Some(id);
        self.containers
            .iter()
            .find(|container| has(&container.id))
            .or_else(|| self.containers.iter().find(|container| has(&container.last_id)))
    }

    /// Finds the only container without a known id that has these limits: `cpu_millis` and
    /// `memory_bytes` as set on a cgroup, `None` for no limit. Returns `None` if there is no limit
    /// at all, because a sandbox has none either.
    ///
    /// A kubelet that has just started lists ids seconds to minutes after the cgroups were created.
    pub fn container_by_limits(
        &self,
        cpu_millis: Option<u64>,
        memory_bytes: Option<u64>,
    ) -> Option<&Container> {
        cpu_millis.or(memory_bytes)?;
        let mut fitting = self.containers.iter().filter(|container| {
            let Resources { cpu_limit_millis, memory_limit_bytes, .. } = container.resources;
            container.id.is_none()
                && cpu_limit_millis.map(|millis| millis.max(MIN_QUOTA_MILLIS)) == cpu_millis
                && memory_limit_bytes.map(in_pages) == memory_bytes.map(in_pages)
        });
        fitting.next().filter(|_| fitting.next().is_none())
    }

    /// Possible names of the pod's cgroup: its UID and, for a static pod, its hash.
    pub fn cgroup_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.uid).chain(self.static_hash.as_deref())
    }

    /// Whether a list contains the pod, or contained it. If not, only the container runtime knows
    /// it.
    pub fn is_listed(&self) -> bool {
        self.unlisted.is_none()
    }

    /// Finds a container by name.
    pub fn container_by_name(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| &*container.name == name)
    }

    /// Value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(present, _)| (**present).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// Whether an unlisted cgroup of the pod must be its sandbox. Every container must have its id,
    /// none may be between two runs, and those listed as running must have a cgroup (`lives`). A
    /// list with a running container whose cgroup is gone is outdated, as every list is while the
    /// API server is down, and proves nothing.
    ///
    /// Valid only for a list that was requested well after the cgroup appeared.
    pub fn leaves_only_its_sandbox(&self, lives: impl Fn(&str) -> bool) -> bool {
        let is_accounted_for = |container: &Container| {
            let Some(id) = &container.id else { return false };
            container.is_final && (container.state != ContainerState::Running || lives(id))
        };
        !self.containers.is_empty() && self.containers.iter().all(is_accounted_for)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, cpu: Option<u64>, memory: Option<u64>) -> Container {
        let resources =
            Resources { cpu_limit_millis: cpu, memory_limit_bytes: memory, ..Resources::default() };
        Container { name: name.into(), resources, ..Container::default() }
    }

    fn found(containers: &[Container], cpu: Option<u64>, memory: Option<u64>) -> Option<Box<str>> {
        let pod = Pod { containers: containers.to_vec(), ..Pod::default() };
        pod.container_by_limits(cpu, memory).map(|container| container.name.clone())
    }

    #[test]
    fn unique_limits_identify_a_container() {
        let all = [
            container("app", Some(300), Some(64 << 20)),
            container("mesh", Some(300), Some(32 << 20)),
        ];
        assert_eq!(found(&all, Some(300), Some(32 << 20)).as_deref(), Some("mesh"));
        assert_eq!(found(&all, Some(300), None), None, "neither of them");
        assert_eq!(
            found(&[container("tiny", Some(1), None)], Some(10), None).as_deref(),
            Some("tiny")
        );
    }

    #[test]
    fn sandboxed_runtimes_are_known_by_a_word_of_their_class() {
        let is_sandboxed = |class: &str| {
            Pod { runtime_class: Some(class.into()), ..Pod::default() }.is_sandboxed()
        };
        for class in ["gvisor", "runsc-kvm", "kata", "kata-qemu", "kata-mshv-vm-isolation"] {
            assert!(is_sandboxed(class), "{class}");
        }
        for class in ["runc", "nvidia", "crun", "wasmtime-spin", "sysbox-runc", "katana"] {
            assert!(!is_sandboxed(class), "{class}");
        }
        assert!(!Pod::default().is_sandboxed());
    }

    #[test]
    fn shared_or_absent_limits_identify_no_container() {
        let twins = [container("a", Some(100), None), container("b", Some(100), None)];
        assert_eq!(found(&twins, Some(100), None), None);
        assert_eq!(found(&[container("free", None, None)], None, None), None);
    }

    #[test]
    fn a_container_whose_id_is_known_is_no_other_cgroup() {
        let listed = Container { id: Some("abc".into()), ..container("app", Some(100), None) };
        assert_eq!(found(&[listed], Some(100), None), None);
    }
}
