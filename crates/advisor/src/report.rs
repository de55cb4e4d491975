//! Response of `/api/v1/advice`.

use analysis::injection::Injected;
use analysis::{CpuAdvice, Finding, MemoryAdvice};
use serde::{Deserialize, Serialize};
use snapshot::{Runtime, Workload};

/// All containers of the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdviceReport {
    /// Acceptable share of throttled periods.
    pub objective: f64,
    /// Reports of the live containers, in the order of the snapshot.
    pub containers: Vec<ContainerReport>,
}

/// Report of one container. Unknown values are omitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Findings with their figures and changes.
    pub findings: Vec<Finding>,
}
