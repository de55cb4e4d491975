//! What was found of each container's runtime, and what it is advised: rows that stay until the next are set.

use std::sync::{Arc, Mutex, PoisonError};

use sampler::snapshot::ContainerIdentity;

/// The rows that a page shows. None before the first are set.
#[derive(Debug, Default)]
pub struct AdviceMetrics {
    rows: Mutex<Arc<[AdviceRow]>>,
}

/// One container. What is `None` has no series.
#[derive(Debug, Clone)]
pub struct AdviceRow {
    /// Whose row it is.
    pub identity: Arc<ContainerIdentity>,
    /// The language of its runtime.
    pub runtime: Option<&'static str>,
    /// Version of the runtime.
    pub version: Option<Box<str>>,
    /// Threads that the runtime will run at once.
    pub parallelism: Option<u32>,
    /// Share of throttled periods that the advice puts up with, as the label has it.
    pub objective: Arc<str>,
    /// Cores.
    pub limit_cores: Option<f64>,
    /// Whether that is what suffices (`exact`) or the least that may (`lower`), as the label has it.
    pub limit_bound: &'static str,
    /// Seconds of `cpu.max.burst`.
    pub burst_seconds: Option<f64>,
    /// Bytes.
    pub memory_soft_limit_bytes: Option<u64>,
}

impl AdviceMetrics {
    /// All containers, in the order of the page.
    pub fn set(&self, rows: Vec<AdviceRow>) {
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = rows.into();
    }

    pub(crate) fn rows(&self) -> Arc<[AdviceRow]> {
        Arc::clone(&self.rows.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
