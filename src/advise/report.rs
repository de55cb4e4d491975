//! Response of `/api/v1/advice`.

use analysis::{CpuAdvice, Finding, MemoryAdvice};
use serde::{Deserialize, Serialize};
use snapshot::Runtime;

/// All containers of the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Acceptable share of throttled periods.
    pub(crate) objective: f64,
    pub(crate) containers: Vec<ContainerReport>,
}

/// Report of one container. Unknown values are omitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerReport {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runtime: Option<Runtime>,
    pub(crate) cpu: CpuAdvice,
    /// The advice that still lacks history, and when it will be available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_enough_history: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<MemoryAdvice>,
    pub(crate) findings: Vec<Finding>,
}
