//! Inputs of the findings of one container.

use std::collections::HashMap;

use api::{CpuAdvice, Injected, MemoryAdvice, Runtime};
use snapshot::Limit;

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
    /// Lower bound of the wait caused by other pods, as a share of the CPU time used.
    pub contention_share: Option<f64>,
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
    /// Environment variables that the agent injected, or would inject.
    pub injected: Vec<Injected>,
    /// The pod that waits most for this container's pod.
    pub delay: Option<Delay>,
}

/// A pod that waits for the pod of a container.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delay {
    /// The pod that waits, as `namespace/pod`.
    pub victim: String,
    /// Share of its time that it waits, 0 to 1.
    pub lost: f64,
    /// CPU use of this pod, cores.
    pub used_cores: f64,
    /// CPU request of this pod, cores, if it is known.
    pub request_cores: Option<f64>,
    /// CPU limit of this pod, cores.
    pub limit_cores: Option<f64>,
    /// Threads of this pod that ran or wanted to run at once.
    pub runnable_threads: Option<u64>,
    /// Likely cause and remedy, which continue "this pod, which …".
    pub remedy: String,
}

/// Delays by namespace and name of the pod that causes them.
pub type Delays = HashMap<(String, String), Delay>;
