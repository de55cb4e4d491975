//! Inputs of the findings of one container.

use api::{CpuAdvice, Injected, MemoryAdvice, Runtime, Verdict};
use snapshot::Limit;

use crate::collections::Collections;
use crate::pod::PodQuota;

/// The list of a pod's spec that contains a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// `containers`.
    #[default]
    Containers,
    /// `initContainers`, sidecars included.
    InitContainers,
    /// `ephemeralContainers`: interactive debugging, absent from the workload.
    Ephemeral,
}

/// Properties of the pod's spec, apart from the container's requests.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spec {
    /// The list that contains the container.
    pub place: Place,
    /// CPU limit of the container, cores. The kernel may enforce another one, or none.
    pub limit_cores: Option<f64>,
    /// Memory limit of the container, bytes; the kernel rounds it down to whole pages.
    pub memory_limit: Option<u64>,
    /// CPU limit of the pod itself, cores (`spec.resources`).
    pub pod_limit_cores: Option<f64>,
    /// Whether the pod itself has a CPU request (`spec.resources`).
    pub pod_requests_cpu: bool,
    /// Whether the pod itself has a memory limit.
    pub pod_limits_memory: bool,
    /// Whether the pod itself has a memory request.
    pub pod_requests_memory: bool,
    /// Whether any container of the pod has a memory limit.
    pub has_memory_limits: bool,
    /// Whether the pod is being resized, so that the kernel's limits may be older.
    pub is_resizing: bool,
    /// Whether the pod belongs to a Job, whose template cannot be changed.
    pub is_of_a_job: bool,
    /// Whether the pod's QoS class is Guaranteed: its limits and requests must stay equal.
    pub is_guaranteed: bool,
    /// Whether its Koordinator class (LSE, LSR) grants exclusive CPUs for whole-CPU requests.
    pub is_exclusive_class: bool,
}

/// Facts of one container over the retained windows. A missing value is unknown, not zero.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Container name, for the patch.
    pub container: String,
    /// Spec of the pod; `None` while the pod is unknown, and then the requests are unknown, too.
    pub spec: Option<Spec>,
    /// Number of CPUs that the container may use (cpuset).
    pub cpus: Option<u32>,
    /// Number of the node's online CPUs.
    pub node_cpus: Option<u32>,
    /// Whether the container runtime reports that the CPUs are those of a claim.
    pub claims_cpus: bool,
    /// CPU limit, cores: the lowest of its own and its ancestors' limits.
    pub limit_cores: Option<f64>,
    /// The container's own CPU limit, cores, as its spec sets it; `None` without one, even if an
    /// ancestor has a limit.
    pub own_limit_cores: Option<f64>,
    /// Whether the container's own cgroup is known to have no quota.
    pub has_no_quota: bool,
    /// Quota of the pod's cgroup.
    pub pod: Option<PodQuota>,
    /// CPU request, cores.
    pub request_cores: Option<f64>,
    /// Share of throttled periods under its own quota.
    pub throttled_share: Option<f64>,
    /// Whether its own quota throttled it only in the first minute after a start.
    pub is_throttled_at_start_only: bool,
    /// Time lost to other pods, core-seconds per second; part of the demand behind the request.
    pub lost_cores: Option<f64>,
    /// Time throttled by an ancestor's quota, seconds per second.
    pub ancestor_throttled_rate: Option<f64>,
    /// Memory limit, bytes.
    pub memory_limit: Limit<u64>,
    /// Memory request, bytes.
    pub memory_request: Option<u64>,
    /// Kernel release, as `uname -r` prints it.
    pub kernel_release: String,
    /// CPU advice of the replay.
    pub cpu: CpuAdvice,
    /// Memory advice for the heap.
    pub memory: Option<MemoryAdvice>,
    /// Runtime of the container's first process.
    pub runtime: Option<Runtime>,
    /// Measured garbage collection; `None` unless it is read.
    pub gc: Option<Collections>,
    /// Environment variables that the agent injected, or would inject.
    pub injected: Vec<Injected>,
    /// The verdict about the pod, if others slow it and this is its busiest container.
    pub slowed: Option<Verdict>,
}
