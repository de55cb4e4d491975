//! The snapshot that a tick publishes.
//!
//! `None` means that the kernel, the kubelet or the cgroup does not provide the value; a consumer
//! omits the series. Counters accumulate over a container's restarts while the agent runs, so they
//! never decrease.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kernel_text::{CpuPlace, WeightRule};

use crate::container::{CfsTotals, ContainerIdentity, ContainerRow, WindowHistogram};
use crate::gc::NodeGc;
use crate::labels;
use crate::limit::{CpuLimit, Limit};
use crate::waits::NodeWaits;

/// The state of the node after one tick.
#[derive(Debug, Clone, Default)]
pub struct NodeSnapshot {
    /// Number of the tick, from 1.
    pub sequence: u64,
    /// Wall-clock time of the tick; `None` before the first.
    pub taken: Option<SystemTime>,
    /// Time at which the tick read the counters, by the monotonic clock; `None` before the first.
    pub read_at: Option<Instant>,
    /// Current time between ticks (the governor may have lengthened the configured one).
    pub interval: Duration,
    /// One row per container, sorted by (namespace, pod, container).
    pub containers: Vec<ContainerRow>,
    /// One row per pod whose own cgroup has, or had, a CFS quota.
    pub pods: Vec<PodRow>,
    /// The kubelet's cgroups with their names, to look up a container by cgroup.
    pub cgroups: Vec<CgroupRow>,
    /// Containers without a cgroup; `None` without a recent list of pods.
    pub missing: Option<Arc<[MissingContainer]>>,
    /// Waits and their causes, if traced.
    pub waits: Arc<NodeWaits>,
    /// Garbage collection, if read.
    pub gc: Arc<NodeGc>,
    /// Metrics of the node.
    pub node: NodeRow,
    /// The sampler's own metrics.
    pub sampler: SamplerRow,
}

impl NodeSnapshot {
    /// Optional features of all parts and their state.
    pub fn features(&self) -> impl Iterator<Item = &FeatureState> {
        self.node.features.iter().chain(&self.waits.feature).chain(&self.gc.feature)
    }
}

/// Names and labels of a pod's series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodIdentity {
    /// `namespace="…",pod="…"`, escaped for the Prometheus text format, without braces.
    pub labels: Box<str>,
    /// Namespace; empty while the pod is unknown.
    pub namespace: String,
    /// Pod name; the pod's UID while the pod is unknown.
    pub pod: String,
}

impl PodIdentity {
    /// Identity of the pod with this namespace and name, with the labels of its series.
    #[must_use]
    pub fn new(namespace: String, pod: String) -> Self {
        let labels = labels::pairs(&[("namespace", &namespace), ("pod", &pod)]);
        Self { labels, namespace, pod }
    }
}

/// One of the kubelet's cgroups.
#[derive(Debug, Clone)]
pub struct CgroupRow {
    /// Inode of its directory in the hierarchy with the cpu controller.
    pub inode: u64,
    /// Path below that hierarchy's mount, such as `kubepods/burstable/pod…/…`.
    pub path: Arc<str>,
    /// Role of the cgroup.
    pub kind: CgroupKind,
}

/// Role of a cgroup.
#[derive(Debug, Clone)]
pub enum CgroupKind {
    /// A container, with the identity of its series.
    Container(Arc<ContainerIdentity>),
    /// A container or a sandbox that is not named yet.
    Pending,
    /// A pod's sandbox, or a container's monitor.
    Sandbox,
    /// A pod.
    Pod,
    /// A kubepods root, the system partition, or a QoS level.
    AbovePods,
}

/// A container that a recent list of pods calls running, and that has had no cgroup for 30 s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingContainer {
    /// Namespace of the pod.
    pub namespace: Box<str>,
    /// Name of the pod.
    pub pod: Box<str>,
    /// Name of the container.
    pub container: Box<str>,
    /// Runtime class of the pod, if it is known to run pods in a sandbox, which has a cgroup instead.
    pub sandboxed_by: Option<Box<str>>,
}

/// A pod cgroup with a quota of its own.
#[derive(Debug, Clone, Default)]
pub struct PodRow {
    /// Names and labels.
    pub identity: Arc<PodIdentity>,
    /// CFS counters of the pod's own cgroup.
    pub cfs: CfsTotals,
    /// Share of throttled periods per window.
    pub windows: WindowHistogram,
    /// CPU limit of the pod's own cgroup; [`Limit::Unlimited`] after the quota was removed.
    pub cpu_limit: Limit<CpuLimit>,
}

/// Metrics of the node.
#[derive(Debug, Clone, Default)]
pub struct NodeRow {
    /// CPUs by state (`online`, `possible`, `isolated`, …), from `/sys/devices/system/cpu`.
    pub cpus: Vec<(&'static str, u32)>,
    /// Topology of each online CPU.
    pub cpu_info: Vec<CpuPlace>,
    /// Time stolen by the hypervisor, nanoseconds; `None` if `/proc/stat` cannot be read.
    pub steal_ns: Option<u64>,
    /// Time in which CPUs were idle, nanoseconds summed over CPUs; `None` if `/proc/stat` cannot be
    /// read.
    pub idle_ns: Option<u64>,
    /// PSI `some` of `/proc/pressure/cpu`, nanoseconds.
    pub pressure_waiting_ns: Option<u64>,
    /// The kernel and its cgroups.
    pub kernel: KernelInfo,
    /// Optional features and their state.
    pub features: Vec<FeatureState>,
}

impl NodeRow {
    /// Number of online CPUs.
    #[must_use]
    pub fn online_cpus(&self) -> Option<u32> {
        self.cpus.iter().find(|(state, _)| *state == "online").map(|&(_, cpus)| cpus)
    }
}

/// The kernel and its cgroups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelInfo {
    /// Kernel release, as `uname -r` prints it.
    pub release: String,
    /// `v1`, `v2` or `hybrid`.
    pub cgroup_version: &'static str,
    /// `cgroupfs`, `systemd` or `unknown`.
    pub cgroup_driver: &'static str,
    /// `task` from Linux 6.18 (a task is throttled when it returns to user space), `cfs_rq` before.
    pub throttle_accounting: &'static str,
    /// `on`, `off` (compiled in, disabled at boot) or `absent`.
    pub psi: &'static str,
    /// Whether `/sys/kernel/btf/vmlinux` exists.
    pub btf: bool,
    /// Conversion rule between shares and weights: configured on v1, derived from the containers on
    /// v2.
    pub weight_rule: WeightRule,
}

/// One optional feature.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureState {
    /// Name, `snake_case`.
    pub feature: &'static str,
    /// Whether the feature is in use.
    pub enabled: bool,
    /// The reason why it is not in use, or empty.
    pub reason: String,
}

/// The sampler's own metrics.
#[derive(Debug, Clone, Default)]
pub struct SamplerRow {
    /// Watched cgroups by kind: `container`, `sandbox`, `pod`, `qos`.
    pub cgroups: Vec<(&'static str, u64)>,
    /// Unnamed cgroups by kind.
    pub unmapped_cgroups: Vec<(&'static str, u64)>,
    /// Failed reads since the start by reason: `vanished`, `io`, `parse`.
    pub read_errors: Vec<(&'static str, u64)>,
    /// Number of cgroups whose files are opened for each read because descriptors ran out.
    pub unkept_cgroups: u64,
    /// Time spent reading the containers' threads since the start, nanoseconds.
    pub task_scan_ns: Option<u64>,
    /// Number of thread reads since the start.
    pub task_scan_threads: Option<u64>,
    /// Resource use of the agent's own process.
    pub process: ProcessRow,
}

/// Resource use of the agent's own process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessRow {
    /// CPU time, user and system, nanoseconds.
    pub cpu_ns: Option<u64>,
    /// Resident memory, bytes.
    pub resident_bytes: Option<u64>,
    /// Virtual memory, bytes.
    pub virtual_bytes: Option<u64>,
    /// Open file descriptors, at the last walk.
    pub open_fds: Option<u64>,
    /// Limit of open file descriptors.
    pub max_fds: Option<u64>,
    /// Start of the process, seconds since the epoch.
    pub start_time_seconds: Option<f64>,
}
