//! The condition of the Node object, as a part of the agent.

use std::sync::Arc;

use advisor::Advisor;
use reporting::{Measured, NodeCondition};
use snapshot::{NodeSnapshot, Published};
use watchdog::errors::chain;

use crate::agent::StartContext;
use crate::exit::Failure;

/// Starts the task with `--node-condition`. Must be called inside a tokio runtime.
///
/// # Errors
/// The API server is not configured, or its CA or token cannot be read.
pub(crate) fn start(
    shared: &StartContext<'_>,
    published: &Published<NodeSnapshot>,
    advisor: &Advisor,
) -> Result<Option<NodeCondition>, Failure> {
    let StartContext { config, pods, metrics, watchdog, .. } = shared;
    if !config.options.node_condition {
        return Ok(None);
    }
    let failed = |error: &str| Failure::config(format!("--node-condition: {error}"));
    let Some(node) = config.pods.node_name.clone() else {
        return Err(failed("the name of the node is not known; set --node-name"));
    };
    let connection = pods.apiserver(&config.pods).map_err(|error| failed(&chain(&error)))?;
    let metrics = Arc::clone(metrics);
    let measured = Measured { published: published.clone(), verdicts: advisor.verdicts() };
    let started = NodeCondition::start(&connection, node, measured, metrics, watchdog);
    started.map(Some).map_err(|error| failed(&chain(&error)))
}
