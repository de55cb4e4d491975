//! Detected runtime and advice of each container: the rows stay until the next ones are set.

use std::sync::{Arc, Mutex, PoisonError};

use snapshot::ContainerIdentity;

/// Advice rows of a page; empty until the first are set.
#[derive(Debug, Default)]
pub struct AdviceMetrics {
    rows: Mutex<Arc<[AdviceRow]>>,
}

/// Advice for one container. A `None` value has no series.
#[derive(Debug, Clone)]
pub struct AdviceRow {
    /// Names and labels of the container.
    pub identity: Arc<ContainerIdentity>,
    /// Language of its runtime.
    pub runtime: Option<&'static str>,
    /// Version of the runtime.
    pub version: Option<Box<str>>,
    /// Number of threads that the runtime runs in parallel.
    pub parallelism: Option<u32>,
    /// Acceptable share of throttled periods, as the label value.
    pub objective: Arc<str>,
    /// Advised limit, cores.
    pub limit_cores: Option<f64>,
    /// Value of the label: `exact` if the limit suffices, `lower` if it is a lower bound.
    pub limit_bound: &'static str,
    /// Advised `cpu.max.burst`, seconds.
    pub burst_seconds: Option<f64>,
    /// Advised soft memory limit, bytes.
    pub memory_soft_limit_bytes: Option<u64>,
}

impl AdviceMetrics {
    /// Sets the rows of all containers, in the page's order.
    pub fn set(&self, rows: Vec<AdviceRow>) {
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = rows.into();
    }

    pub(crate) fn rows(&self) -> Arc<[AdviceRow]> {
        Arc::clone(&self.rows.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
