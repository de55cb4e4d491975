//! Time in which pods were slowed, by the verdicts: the rows stay until the next ones are set.

use std::sync::{Arc, Mutex, PoisonError};

use snapshot::PodIdentity;

/// Rows of the slowed pods of a page.
#[derive(Debug, Default)]
pub struct SlowedMetrics {
    rows: Mutex<Arc<[SlowedRow]>>,
}

/// Counters of one pod.
#[derive(Debug, Clone)]
pub struct SlowedRow {
    /// Names and labels of the pod.
    pub pod: Arc<PodIdentity>,
    /// Counters by reason.
    pub reasons: Vec<SlowedBecause>,
    /// Wall time by what slowed it.
    pub by: Vec<SlowedBy>,
}

/// Counters of one reason.
#[derive(Debug, Clone, Copy, Default)]
pub struct SlowedBecause {
    /// The reason, as the label value.
    pub reason: &'static str,
    /// Wall time, nanoseconds.
    pub slowed_ns: u64,
    /// Lost time, core-nanoseconds.
    pub lost_ns: u64,
}

/// Counter of one cause.
#[derive(Debug, Clone, Default)]
pub struct SlowedBy {
    /// Namespace of the workload; `system` for the host, `several` if no workload alone is the
    /// cause.
    pub namespace: Box<str>,
    /// Name of the workload; empty for `system` and `several`.
    pub workload: Box<str>,
    /// Whether the workload used more than its CPU request.
    pub beyond_request: bool,
    /// Wall time, nanoseconds.
    pub slowed_ns: u64,
}

impl SlowedMetrics {
    /// Sets the rows of all pods, in the page's order.
    pub fn set(&self, rows: Vec<SlowedRow>) {
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = rows.into();
    }

    pub(crate) fn rows(&self) -> Arc<[SlowedRow]> {
        Arc::clone(&self.rows.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
