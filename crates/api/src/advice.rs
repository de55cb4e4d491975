//! Response of `/api/v1/advice`.

use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::runtime::Runtime;

/// Acceptable share of throttled periods.
pub const OBJECTIVE: f64 = 0.01;

/// All containers of the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdviceReport {
    /// Acceptable share of throttled periods.
    pub objective: f64,
    /// Reports of the live containers, in the order of the snapshot.
    pub containers: Vec<ContainerReport>,
}

impl Default for AdviceReport {
    /// The report of a node without containers.
    fn default() -> Self {
        Self { objective: OBJECTIVE, containers: Vec::new() }
    }
}

/// Report of one container. Unknown values are omitted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerReport {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// The workload that the pod belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Lowest CPU limit over the container and its ancestors, cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_cores: Option<f64>,
    /// CPU request, cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_cores: Option<f64>,
    /// Runtime of the first process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    /// Advice on CPU limit and request.
    pub cpu: CpuAdvice,
    /// The advice that still lacks history, and when it will be available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_enough_history: Option<String>,
    /// Advice on memory for the heap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryAdvice>,
    /// Environment variables that the agent injected at the start of the container, or would inject
    /// at the next one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected: Vec<Injected>,
    /// The change of the pod's QoS class by all patches of the pod, such as
    /// `BestEffort to Burstable`; omitted if they keep the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_change: Option<String>,
    /// Findings with their figures and changes.
    pub findings: Vec<Finding>,
}

/// A workload: the controller of pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// `Deployment`, `StatefulSet`, `DaemonSet`, `Job`, …
    pub kind: String,
    /// Name of the workload, in the pod's namespace.
    pub name: String,
}

/// An advised limit with its evidence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitAdvice {
    /// Limit, cores.
    pub cores: f64,
    /// Share of throttled periods that the replay found at this limit.
    pub throttled_share: f64,
    /// Upper bound of this share: some windows were throttled, or their arrival times are unknown.
    pub throttled_share_at_most: f64,
    /// Whether more than the objective may be throttled at this limit, by
    /// `throttled_share_at_most`: it may be too low.
    pub is_lower_bound: bool,
}

impl LimitAdvice {
    /// Value of the metric's label `bound`.
    #[must_use]
    pub fn bound(&self) -> &'static str {
        if self.is_lower_bound { "lower" } else { "exact" }
    }
}

/// CPU advice for one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuAdvice {
    /// Number of windows behind the limit and the burst, at most the last six hours.
    pub windows: usize,
    /// Seconds behind the request, at most the last day.
    pub watched_seconds: u64,
    /// The smallest limit that meets the objective; `None` with too little history, or if no
    /// candidate suffices.
    pub limit: Option<LimitAdvice>,
    /// The smallest `cpu.max.burst` at the current limit, seconds; `None` if no burst is needed, or
    /// if none prevents the throttling.
    pub burst_seconds: Option<f64>,
    /// 95th percentile of use, cores.
    pub request_cores: Option<f64>,
    /// Use that no window exceeded, cores.
    pub most_cores: Option<f64>,
}

/// Advice for GOGC of a Go service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Gogc {
    /// Memory is free and CPU is short: GOGC=200 trades memory for fewer collections.
    Raise,
    /// Keep the current value.
    Keep,
}

/// Memory advice; sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryAdvice {
    /// Limit minus working set.
    pub headroom_bytes: u64,
    /// Value for GOMEMLIMIT; `None` if 1.25 × the live set exceeds 90 % of the limit: raise the
    /// limit first.
    pub soft_limit_bytes: Option<u64>,
    /// Advice for GOGC.
    pub gogc: Gogc,
}

/// Status of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InjectionStatus {
    /// Would be injected at the next start of the container.
    Observed,
    /// Injected at the start of the container.
    Injected,
    /// Injected, but the limits have changed since, and give another value now.
    Stale,
}

impl InjectionStatus {
    /// Value of the label `status`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Injected => "injected",
            Self::Stale => "stale",
        }
    }
}

/// A variable of a running container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Injected {
    /// Name of the variable.
    pub name: String,
    /// Its value in the container, or the one that it would have.
    pub value: String,
    /// Status of the value.
    pub status: InjectionStatus,
    /// For a stale value: the value under the current limits; absent if they give none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
}
