//! What `/api/v1/advice` answers.

use analysis::{CpuAdvice, Finding, MemoryAdvice, Runtime};
use serde::{Deserialize, Serialize};

/// All containers of the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Share of throttled periods that is put up with.
    pub(crate) objective: f64,
    pub(crate) containers: Vec<ContainerReport>,
}

/// One container. What is not known is left out.
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
    /// What is not advised yet, and from when on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_enough_history: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<MemoryAdvice>,
    pub(crate) findings: Vec<Finding>,
}
