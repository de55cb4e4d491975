//! The row of a container: its names, settings and counters.
//!
//! `None` has the meaning that [`crate::NodeSnapshot`]'s module gives it.

use std::sync::Arc;

use kernel_text::{Bandwidth, WeightRule, request_shares};
use kubepods::model::{ContainerKind, Owner, Resources};

use crate::gc::ContainerGc;
use crate::limit::{CpuLimit, Limit};
use crate::waits::ContainerWaits;

/// Names and labels of a container's series. Created once, when the name becomes known, and shared
/// by later snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerIdentity {
    /// `namespace="…",pod="…",container="…"`, escaped for the Prometheus text format, without
    /// braces.
    pub labels: Box<str>,
    /// Namespace; empty while the pod is unknown.
    pub namespace: String,
    /// Pod name; the pod's UID while the pod is unknown.
    pub pod: String,
    /// Container name; the container's id while the pod is unknown.
    pub container: String,
    /// The pod's UID as the kubelet reports it.
    pub uid: String,
    /// The runtime's id of the current container, without the `containerd://` prefix.
    pub container_id: String,
    /// Image reference; empty while the pod is unknown.
    pub image: String,
    /// Kubernetes QoS class: `Guaranteed`, `Burstable`, `BestEffort`.
    pub qos_class: String,
    /// Koordinator QoS class from the pod's label: `LSE`, `LSR`, `LS`, `BE`, `SYSTEM`, or empty.
    pub cpu_qos: String,
    /// Whether the pod is best effort: by its QoS class, or Burstable with a batch priority.
    pub best_effort: bool,
    /// `cgroupfs` or `systemd`, from the path.
    pub cgroup_driver: &'static str,
    /// The workload that the pod belongs to; `None` if the pod has none, or its source does not
    /// report it.
    pub workload: Option<Owner>,
    /// The chosen labels of the pod, as `label_team="…",…`, escaped like [`Self::labels`].
    pub pod_labels: Box<str>,
    /// Whether the container runtime reports CPUs of a claim (dynamic resource allocation).
    pub claims_cpus: bool,
}

/// CFS bandwidth counters of one cgroup (`cpu.stat`), accumulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CfsTotals {
    /// `nr_periods`: enforcement periods in which the group had something to run.
    pub periods: u64,
    /// `nr_throttled`: periods in which at least one CPU's share was throttled.
    pub throttled_periods: u64,
    /// `throttled_time` / `throttled_usec`: time throttled, nanoseconds summed over CPUs.
    pub throttled_ns: u64,
    /// `nr_bursts` (since 5.14).
    pub burst_periods: Option<u64>,
    /// `burst_time` / `burst_usec` (since 5.14), nanoseconds.
    pub burst_ns: Option<u64>,
}

/// Upper bounds of the throttled-window histogram: share of throttled periods in one window.
pub const WINDOW_BUCKETS: [f64; 5] = [0.0, 0.1, 0.25, 0.5, 0.9];

/// Histogram of the share of throttled periods in each window that had periods.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WindowHistogram {
    /// Windows per bucket of [`WINDOW_BUCKETS`], not cumulative; the last count is of shares above
    /// all bounds.
    pub counts: [u64; WINDOW_BUCKETS.len() + 1],
    /// Sum of the shares.
    pub sum: f64,
}

impl WindowHistogram {
    /// Counts one window with this share of throttled periods (0..=1); larger shares count as 1.
    pub fn observe(&mut self, share: f64) {
        let share = share.min(1.0);
        let bucket =
            WINDOW_BUCKETS.iter().position(|&bound| share <= bound).unwrap_or(WINDOW_BUCKETS.len());
        self.counts[bucket] += 1;
        self.sum += share;
    }

    /// Adds the windows of `other`.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }
}

/// The kernel's own values of the counters of a container's current cgroup, at the last readings.
/// Unlike the totals of [`ContainerRow`], they include what was counted before the agent started,
/// and begin again with each restart of the container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// CPU time, nanoseconds.
    pub usage_ns: Option<u64>,
    /// `nr_periods`.
    pub periods: Option<u64>,
    /// `nr_throttled`.
    pub throttled_periods: Option<u64>,
    /// `throttled_time` / `throttled_usec`, nanoseconds.
    pub throttled_ns: Option<u64>,
    /// PSI `some` of `cpu.pressure`, nanoseconds.
    pub pressure_waiting_ns: Option<u64>,
    /// PSI `full` of `cpu.pressure`, nanoseconds.
    pub pressure_stalled_ns: Option<u64>,
    /// PSI `some` of `memory.pressure`, nanoseconds; this and the others below only if they are
    /// read for the page of cAdvisor's names.
    pub memory_waiting_ns: Option<u64>,
    /// PSI `full` of `memory.pressure`, nanoseconds.
    pub memory_stalled_ns: Option<u64>,
    /// PSI `some` of `io.pressure`, nanoseconds.
    pub io_waiting_ns: Option<u64>,
    /// PSI `full` of `io.pressure`, nanoseconds.
    pub io_stalled_ns: Option<u64>,
    /// `pids.current`: threads of the cgroup and those below it.
    pub tasks: Option<u64>,
}

/// One container, over all its restarts while the agent runs. The counters begin at zero when the
/// agent starts.
#[derive(Debug, Clone, Default)]
pub struct ContainerRow {
    /// Names and labels.
    pub identity: Arc<ContainerIdentity>,
    /// Whether a cgroup of this container exists. If false, the counters do not change and the
    /// gauges are `None`.
    pub live: bool,
    /// CPU time, nanoseconds. It is exact; user and system time are rounded down to the kernel's
    /// units.
    pub usage_ns: Option<u64>,
    /// CPU time in user mode, nanoseconds; the resolution is 10 ms on v1 and 1 µs on v2.
    pub user_ns: Option<u64>,
    /// CPU time in kernel mode, nanoseconds, with the same resolution.
    pub system_ns: Option<u64>,
    /// CFS counters of the container's own cgroup; `None` if it never had a quota.
    pub cfs: Option<CfsTotals>,
    /// Time throttled by ancestors' quotas, nanoseconds summed over CPUs; `None` if no ancestor
    /// ever had one.
    pub throttled_ancestor_ns: Option<u64>,
    /// Time throttled by quotas of cgroups below the container, nanoseconds summed over CPUs; `None`
    /// if none ever had one.
    pub throttled_child_ns: Option<u64>,
    /// Share of throttled periods per window; `None` if the container's own cgroup never had a
    /// quota.
    pub windows: Option<WindowHistogram>,
    /// Lowest CPU limit of the container and its ancestors; the container's own if two are equally
    /// low.
    pub cpu_limit: Limit<CpuLimit>,
    /// CPU request of the pod spec, cores.
    pub request_cores: Option<f64>,
    /// Weight on contended CPUs, in the kernel's unit.
    pub weight: Option<CpuWeight>,
    /// The node's conversion rule between v1 shares and v2 weight.
    pub weight_rule: WeightRule,
    /// Quota of the container's own cgroup, and its CFS period; `None` until they were read.
    pub bandwidth: Option<Bandwidth>,
    /// Path of the cgroup that fed it last, below the mount: `kubepods/burstable/pod…/…`.
    pub cgroup: Option<Arc<str>>,
    /// The kernel's own counters of that cgroup.
    pub kernel: KernelCounters,
    /// PSI `some` of `cpu.pressure`, nanoseconds.
    pub pressure_waiting_ns: Option<u64>,
    /// PSI `full` of `cpu.pressure`, nanoseconds.
    pub pressure_stalled_ns: Option<u64>,
    /// Run-queue delay that certainly was contention, nanoseconds: lower bound.
    pub contention_lower_ns: Option<u64>,
    /// Run-queue delay that may have been contention, nanoseconds: upper bound.
    pub contention_upper_ns: Option<u64>,
    /// Run-queue delay of all threads since the agent's start, including throttling, nanoseconds.
    /// Waits of older threads count from their container's first scan.
    pub run_delay_ns: Option<u64>,
    /// Causes of its threads' waits, by the trace; `None` before its first wait, and if nothing is
    /// traced ([`NodeWaits::trace`]).
    pub waits: Option<Arc<ContainerWaits>>,
    /// Garbage collection of its program; `None` unless it was read.
    pub gc: Option<Arc<ContainerGc>>,
    /// Effective cpuset.
    pub cpuset: Option<Arc<CpusetRow>>,
    /// Bytes of memory by NUMA node: (node id, bytes).
    pub numa_memory: Vec<(u32, u64)>,
    /// Pid of the first process in the agent's PID namespace; `None` while none was found.
    pub first_pid: Option<u32>,
    /// Its threads at the latest scan.
    pub threads: Threads,
    /// Number of threads in state R; `None` if no thread was read.
    pub runnable_threads: Option<u64>,
    /// Memory in use minus inactive file pages, bytes.
    pub memory_working_set_bytes: Option<u64>,
    /// Anonymous and shared memory, bytes: what stays in use when the page cache is dropped.
    pub memory_live_bytes: Option<u64>,
    /// Memory limit, bytes.
    pub memory_limit_bytes: Limit<u64>,
    /// Memory request of the pod spec, bytes.
    pub memory_request_bytes: Option<u64>,
    /// Further properties of the pod's spec; `None` while the pod is unknown.
    pub spec: Option<SpecRow>,
}

/// Result of the latest scan of a container's threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Threads {
    /// Not scanned yet, or the container is gone.
    #[default]
    NotScanned,
    /// No process is visible: the container is empty, or the agent is in another PID namespace.
    NoneVisible,
    /// More threads than a scan reads.
    TooMany,
    /// Number of threads.
    Counted(u64),
}

impl Threads {
    /// The number of threads, if it is known.
    #[must_use]
    pub fn counted(self) -> Option<u64> {
        match self {
            Self::Counted(threads) => Some(threads),
            Self::NotScanned | Self::NoneVisible | Self::TooMany => None,
        }
    }
}

/// Position of a container in its pod's spec, and resources there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecRow {
    /// The list of the spec that contains it.
    pub kind: ContainerKind,
    /// Resources of the container.
    pub resources: Resources,
    /// Resources of the pod itself (`spec.resources`).
    pub pod: Resources,
    /// Whether limits in the kernel may differ from the spec's, because a resize is not complete.
    pub is_resizing: bool,
    /// Number of containers of the pod, without ephemeral ones.
    pub containers: u32,
    /// Those of `containers` whose CPU and memory limits equal their requests.
    pub guaranteed: u32,
    /// Those of `containers` with a memory limit.
    pub memory_limits: u32,
    /// Whether the pod itself has a CPU request.
    pub pod_requests_cpu: bool,
    /// Whether the pod itself has a memory limit.
    pub pod_limits_memory: bool,
}

impl ContainerRow {
    /// CFS period of the container's own cgroup, microseconds.
    #[must_use]
    pub fn period_usec(&self) -> Option<u64> {
        self.bandwidth.map(|bandwidth| bandwidth.period_usec)
    }

    /// Limit of the container's own cgroup, cores; `None` if unlimited or not read.
    #[must_use]
    pub fn own_limit_cores(&self) -> Option<f64> {
        self.bandwidth.and_then(|bandwidth| bandwidth.limit_cores())
    }

    /// cgroup v2 weight; on v1, converted from the shares by the node's rule.
    #[must_use]
    pub fn v2_weight(&self) -> Option<u64> {
        Some(match self.weight? {
            CpuWeight::Weight(weight) => weight,
            CpuWeight::Shares(shares) => self.weight_rule.weight(shares),
        })
    }

    /// v1 shares. On v2: the shares of the pod's request if a runtime converts them to this weight,
    /// otherwise by the node's rule.
    #[must_use]
    pub fn v1_shares(&self) -> Option<u64> {
        let weight = match self.weight? {
            CpuWeight::Weight(weight) => weight,
            CpuWeight::Shares(shares) => return Some(shares),
        };
        let is_requested =
            |shares: &u64| WeightRule::ALL.iter().any(|rule| rule.weight(*shares) == weight);
        Some(
            self.requested_shares()
                .filter(is_requested)
                .unwrap_or_else(|| self.weight_rule.shares(weight)),
        )
    }

    /// Shares that the kubelet requests; `None` while the pod is unknown.
    fn requested_shares(&self) -> Option<u64> {
        let millis = (self.request_cores.unwrap_or_default() * 1000.0).round() as u64;
        self.spec.map(|_| request_shares(millis))
    }

    /// The rule by which the container's runtime wrote the weight; `None` if it cannot be
    /// determined.
    #[must_use]
    pub fn shown_weight_rule(&self) -> Option<WeightRule> {
        match self.weight? {
            CpuWeight::Weight(weight) => WeightRule::between(self.requested_shares()?, weight),
            CpuWeight::Shares(_) => None,
        }
    }
}

/// A cgroup's weight on contended CPUs, in the unit of its cgroup version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuWeight {
    /// v2, 1 to 10000.
    Weight(u64),
    /// v1, 2 to 262144.
    Shares(u64),
}

/// A set of CPUs: its list and its size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpusetRow {
    /// The kernel's list format, `0-3,8`.
    pub cpus: String,
    /// Number of CPUs.
    pub count: u32,
}
