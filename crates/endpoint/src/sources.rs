//! Inputs of the endpoint: snapshots, metrics, advice, and the state of the agent.

use std::sync::Arc;

use api::{AdviceReport, SourceHealth};
use metrics::AgentMetrics;
use snapshot::{NodeSnapshot, Published};

/// Whether the pods of the node have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// They are known.
    Ready,
    /// No source of names has answered for a minute. Series have UIDs and container IDs instead.
    Unnamed {
        /// The remedy, without addresses.
        remedy: &'static str,
    },
    /// No source has answered yet.
    Waiting,
}

/// The state of the agent, as the probes and `/api/v1/node` report it. The defaults are those of a
/// program without an agent.
pub trait AgentStatus: Send + Sync {
    /// Whether the pods of the node have names.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// Parts that do not work, with the reason.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// The sources of pod names.
    fn pod_sources(&self) -> Vec<SourceHealth> {
        Vec::new()
    }

    /// Copies what other parts count to the metrics, before they are rendered.
    fn update_metrics(&self) {}
}

/// Data sources of the pages.
#[derive(Clone)]
pub struct Sources {
    /// Snapshots of the sampler.
    pub published: Published<NodeSnapshot>,
    /// Metrics of the agent itself; the endpoint counts in them.
    pub metrics: Arc<AgentMetrics>,
    /// The advice.
    pub advice: Arc<dyn Fn() -> AdviceReport + Send + Sync>,
    /// The state of the agent.
    pub status: Arc<dyn AgentStatus>,
}
