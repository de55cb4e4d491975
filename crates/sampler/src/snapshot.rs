//! What one tick publishes: the whole node, as plain values, for consumers that never touch the kernel.
//!
//! `None` means that the kernel, the kubelet or the cgroup does not offer the value; a consumer leaves the series out.
//! Counters are accumulated over a container's restarts for as long as the agent lives, so they never go back.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub use kernel_text::WeightRule;
use kernel_text::request_shares;
use pods::model::ContainerKind;

use crate::waits::{ContainerWaits, NodeWaits};

/// The state of the node after one tick.
#[derive(Debug, Clone, Default)]
pub struct NodeSnapshot {
    /// Number of the tick, from 1.
    pub sequence: u64,
    /// Wall-clock time of the tick; `None` before the first.
    pub taken: Option<SystemTime>,
    /// When the tick read the counters, by the monotonic clock; `None` before the first.
    pub read_at: Option<Instant>,
    /// Time between ticks in force (the governor may have lengthened what was configured).
    pub interval: Duration,
    /// One row a container, in the order of (namespace, pod, container).
    pub containers: Vec<ContainerRow>,
    /// One row a pod whose own cgroup has, or had, a CFS quota.
    pub pods: Vec<PodRow>,
    /// The kubelet's cgroups, with their names; for whoever finds something by cgroup.
    pub cgroups: Vec<CgroupRow>,
    /// Who makes whom wait, where it is traced.
    pub waits: Arc<NodeWaits>,
    /// What is counted once a node.
    pub node: NodeRow,
    /// What the sampler says of itself.
    pub sampler: SamplerRow,
}

/// Length of a window, where ticks are no longer.
pub const WINDOW: Duration = Duration::from_secs(1);

/// Whether a tick ends the window that began at `began`: when the window is a second long, or with each tick where ticks
/// are longer.
#[must_use]
pub fn ends_window(began: Instant, tick: Instant, interval: Duration) -> bool {
    // Half a tick of tolerance: a tick that comes a little early must not make a window of two.
    tick.saturating_duration_since(began) + interval.min(WINDOW) / 2 >= WINDOW
}

/// Who a container's series belong to. Made once, when the name becomes known, and shared by all later snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerIdentity {
    /// `namespace="…",pod="…",container="…"`, escaped for the Prometheus text format, without braces.
    pub labels: Box<str>,
    /// Namespace; empty while the pod is unknown.
    pub namespace: String,
    /// Pod name; the pod's UID while the pod is unknown.
    pub pod: String,
    /// Container name; the container's id while the pod is unknown.
    pub container: String,
    /// The pod's UID as the kubelet reports it.
    pub uid: String,
    /// The runtime's id of the container that runs now, without the `containerd://` prefix.
    pub container_id: String,
    /// Image reference; empty while the pod is unknown.
    pub image: String,
    /// Kubernetes QoS class: `Guaranteed`, `Burstable`, `BestEffort`.
    pub qos_class: String,
    /// Koordinator QoS class from the pod's label: `LSE`, `LSR`, `LS`, `BE`, `SYSTEM`, or empty.
    pub cpu_qos: String,
    /// `cgroupfs` or `systemd`, from the path.
    pub cgroup_driver: &'static str,
}

/// Who a pod-level row belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodIdentity {
    /// `namespace="…",pod="…"`, escaped for the Prometheus text format, without braces.
    pub labels: Box<str>,
    /// Namespace; empty while the pod is unknown.
    pub namespace: String,
    /// Pod name; the pod's UID while the pod is unknown.
    pub pod: String,
}

/// CFS bandwidth counters of one cgroup (`cpu.stat`), accumulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CfsTotals {
    /// `nr_periods`: enforcement periods in which the group had something to run.
    pub periods: u64,
    /// `nr_throttled`: periods in which at least one CPU's share was throttled.
    pub throttled_periods: u64,
    /// `throttled_time` / `throttled_usec`: CPU-nanoseconds denied, summed over CPUs.
    pub throttled_ns: u64,
    /// `nr_bursts` (since 5.14).
    pub burst_periods: Option<u64>,
    /// `burst_time` / `burst_usec` (since 5.14), nanoseconds.
    pub burst_ns: Option<u64>,
}

/// Upper bounds of the throttled-window histogram: share of throttled periods in one window.
pub const WINDOW_BUCKETS: [f64; 8] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0];

/// Histogram of the share of throttled periods in each window that had periods.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WindowHistogram {
    /// Windows per bucket of [`WINDOW_BUCKETS`], not cumulative. A share is never above 1, so there is no overflow.
    pub counts: [u64; WINDOW_BUCKETS.len()],
    /// Sum of the shares.
    pub sum: f64,
}

/// One container, over all its restarts.
#[derive(Debug, Clone, Default)]
pub struct ContainerRow {
    /// Names and labels.
    pub identity: Arc<ContainerIdentity>,
    /// A cgroup of this container exists now. When false, the counters stand still and the gauges are `None`.
    pub live: bool,
    /// CPU time, nanoseconds: exact, where the modes are cut to the kernel's units.
    pub usage_ns: Option<u64>,
    /// CPU time in user mode, nanoseconds; on v1 in steps of 10 ms, on v2 of a microsecond.
    pub user_ns: Option<u64>,
    /// CPU time in kernel mode, nanoseconds, in the same steps.
    pub system_ns: Option<u64>,
    /// CFS counters of the container's own cgroup; `None` where it never had a quota.
    pub cfs: Option<CfsTotals>,
    /// CPU-nanoseconds denied by an ancestor's quota; `None` where no ancestor ever had one.
    pub throttled_ancestor_ns: Option<u64>,
    /// Share of throttled periods a window; `None` where there never was a quota of its own.
    pub windows: Option<WindowHistogram>,
    /// Lowest quota ÷ period over the container and its ancestors, cores; `None` when unlimited.
    pub limit_cores: Option<f64>,
    /// CFS period of that lowest quota, microseconds; the container's own where two quotas are equally low.
    pub limit_period_usec: Option<u64>,
    /// CPU request of the pod spec, cores.
    pub request_cores: Option<f64>,
    /// Share of contended CPUs, as the kernel has it.
    pub weight: Option<CpuWeight>,
    /// The node's rule between the two units of that share.
    pub weight_rule: WeightRule,
    /// Quota of the container's own cgroup, microseconds a period; `None` when unlimited.
    pub quota_usec: Option<u64>,
    /// CFS period of the container's own cgroup, microseconds.
    pub period_usec: Option<u64>,
    /// Path of the cgroup that fed it last, from the mount on: `/kubepods/burstable/pod…/…`.
    pub cgroup: Option<Arc<str>>,
    /// PSI `some` of `cpu.pressure`, nanoseconds.
    pub pressure_waiting_ns: Option<u64>,
    /// PSI `full` of `cpu.pressure`, nanoseconds.
    pub pressure_stalled_ns: Option<u64>,
    /// Run-queue delay that cannot have been throttling, nanoseconds.
    pub contention_lower_ns: Option<u64>,
    /// Run-queue delay that may have been contention, nanoseconds.
    pub contention_upper_ns: Option<u64>,
    /// Run-queue delay of all threads since they were first looked at, throttling included, nanoseconds.
    pub run_delay_ns: Option<u64>,
    /// What its threads waited for, by the trace; `None` where none runs, and before the first wait.
    pub waits: Option<Arc<ContainerWaits>>,
    /// Effective CPUs.
    pub cpuset: Option<Arc<CpusetRow>>,
    /// Bytes of memory by NUMA node: (node id, bytes).
    pub numa_memory: Vec<(u32, u64)>,
    /// The first process, as this PID namespace numbers it; `None` while none was seen.
    pub first_pid: Option<u32>,
    /// Threads.
    pub threads: Option<u64>,
    /// Threads in state R.
    pub runnable_threads: Option<u64>,
    /// Memory in use less inactive file pages, bytes.
    pub memory_working_set_bytes: Option<u64>,
    /// Memory limit, bytes; `None` when unlimited.
    pub memory_limit_bytes: Option<u64>,
    /// Memory request of the pod spec, bytes.
    pub memory_request_bytes: Option<u64>,
    /// What else the pod's spec says; `None` while the pod is unknown.
    pub spec: Option<SpecRow>,
}

/// Where a container stands in its pod's spec, and what the pod has for all of its containers (`spec.resources`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecRow {
    /// Which list it is from.
    pub kind: ContainerKind,
    /// The pod itself has a CPU request.
    pub pod_requests_cpu: bool,
    /// The pod itself has a memory limit.
    pub pod_limits_memory: bool,
}

impl ContainerRow {
    /// cgroup v2 weight; on v1, shares turned into it by the node's rule.
    #[must_use]
    pub fn v2_weight(&self) -> Option<u64> {
        Some(match self.weight? {
            CpuWeight::Weight(weight) => weight,
            CpuWeight::Shares(shares) => self.weight_rule.weight(shares),
        })
    }

    /// v1 shares; on v2 those of the pod's request where a runtime turns them into this weight, else by the node's rule.
    #[must_use]
    pub fn v1_shares(&self) -> Option<u64> {
        let weight = match self.weight? {
            CpuWeight::Weight(weight) => weight,
            CpuWeight::Shares(shares) => return Some(shares),
        };
        let is_requested = |shares: &u64| WeightRule::ALL.iter().any(|rule| rule.weight(*shares) == weight);
        Some(self.requested_shares().filter(is_requested).unwrap_or_else(|| self.weight_rule.shares(weight)))
    }

    /// Shares that the kubelet asks for; `None` while the pod is unknown.
    fn requested_shares(&self) -> Option<u64> {
        let millis = (self.request_cores.unwrap_or_default() * 1000.0).round() as u64;
        self.spec.map(|_| request_shares(millis))
    }

    /// The rule by which the container's runtime wrote the weight; `None` where it does not show.
    pub(crate) fn shown_weight_rule(&self) -> Option<WeightRule> {
        match self.weight? {
            CpuWeight::Weight(weight) => WeightRule::between(self.requested_shares()?, weight),
            CpuWeight::Shares(_) => None,
        }
    }
}

/// A cgroup's share of contended CPUs, in the unit of its kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuWeight {
    /// v2, 1 to 10000.
    Weight(u64),
    /// v1, 2 to 262144.
    Shares(u64),
}

/// One of the kubelet's cgroups.
#[derive(Debug, Clone)]
pub struct CgroupRow {
    /// Of its directory in the hierarchy with the cpu controller.
    pub inode: u64,
    /// Below that hierarchy's mount, `kubepods/burstable/pod…/…`.
    pub path: Arc<str>,
    /// Whose it is.
    pub kind: CgroupKind,
}

/// Whose a cgroup is.
#[derive(Debug, Clone)]
pub enum CgroupKind {
    /// A container's, under the name of its series.
    Container(Arc<ContainerIdentity>),
    /// A container's or a sandbox's whose name is not known yet.
    Pending,
    /// A pod's sandbox, or a container's monitor.
    Sandbox,
    /// A pod's.
    Pod,
    /// Above the pods.
    Top,
}

/// A set of CPUs, as a list and as a number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpusetRow {
    /// The kernel's list format, `0-3,8`.
    pub cpus: String,
    /// How many.
    pub count: u32,
}

/// A pod cgroup with a quota of its own.
#[derive(Debug, Clone, Default)]
pub struct PodRow {
    /// Names and labels.
    pub identity: Arc<PodIdentity>,
    /// CFS counters of the pod's own cgroup.
    pub cfs: CfsTotals,
    /// Share of throttled periods a window.
    pub windows: WindowHistogram,
    /// quota ÷ period of the pod's own cgroup, cores; `None` when it has been lifted.
    pub limit_cores: Option<f64>,
}

/// What is counted once a node.
#[derive(Debug, Clone, Default)]
pub struct NodeRow {
    /// CPUs by state (`online`, `possible`, `isolated`, …), from `/sys/devices/system/cpu`.
    pub cpus: Vec<(&'static str, u32)>,
    /// Where each online CPU sits.
    pub cpu_info: Vec<CpuPlace>,
    /// Time stolen by the hypervisor (`/proc/stat`), nanoseconds; `None` where `/proc/stat` cannot be read.
    pub steal_ns: Option<u64>,
    /// PSI `some` of `/proc/pressure/cpu`, nanoseconds.
    pub pressure_waiting_ns: Option<u64>,
    /// The kernel and its cgroups.
    pub kernel: KernelInfo,
    /// Optional features with their state.
    pub features: Vec<FeatureState>,
}

/// Where one CPU sits; ids as the kernel prints them. `None` where sysfs does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuPlace {
    /// CPU number.
    pub cpu: u32,
    /// Lowest CPU of its core's thread siblings: unique on the node, unlike `core_id`.
    pub core: Option<u32>,
    /// Id of the last-level cache.
    pub llc: Option<u32>,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// Physical package.
    pub socket: Option<u32>,
}

/// The kernel and its cgroups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelInfo {
    /// `uname -r`.
    pub release: String,
    /// `v1`, `v2` or `hybrid`.
    pub cgroup_version: &'static str,
    /// `cgroupfs`, `systemd` or `unknown`.
    pub cgroup_driver: &'static str,
    /// `task` from 6.18 on (a task is throttled at its return to user space), `cfs_rq` before.
    pub throttle_accounting: &'static str,
    /// `on`, `off` (compiled in, disabled at boot) or `absent`.
    pub psi: &'static str,
    /// `/sys/kernel/btf/vmlinux` exists.
    pub btf: bool,
    /// Rule between shares and weights: on v1 as configured, on v2 as the containers show it.
    pub weight_rule: WeightRule,
}

/// One optional feature.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureState {
    /// Name, `snake_case`.
    pub feature: &'static str,
    /// In force.
    pub enabled: bool,
    /// Why it is not in force, or empty.
    pub reason: String,
}

/// What the sampler says of itself.
#[derive(Debug, Clone, Default)]
pub struct SamplerRow {
    /// Cgroups under watch by kind: `container`, `sandbox`, `pod`, `qos`.
    pub cgroups: Vec<(&'static str, u64)>,
    /// Cgroups whose pod or container name is not known, by kind.
    pub unmapped_cgroups: Vec<(&'static str, u64)>,
    /// Failed reads since the start by reason: `vanished`, `io`, `parse`.
    pub read_errors: Vec<(&'static str, u64)>,
    /// Cgroups that are read by open/read/close because descriptors ran out.
    pub unkept_cgroups: u64,
    /// Time that reading the containers' threads has taken since the start, nanoseconds.
    pub task_scan_ns: Option<u64>,
    /// Threads that were read since the start.
    pub task_scan_threads: Option<u64>,
    /// What the agent's own process uses.
    pub process: ProcessRow,
}

/// What the agent's own process uses.
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
