//! Waits and their causes: found by the code that polls the trace, published with the next snapshot.
//!
//! The sampler only joins waits to its series, so that they have the same lifetime; it does not trace.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
pub use sched_trace::{Histogram, LATENCY_BOUNDS_NS, Losses, Mode, STALL_BOUNDS_NS, SmtShares};

use crate::snapshot::{ContainerRow, FeatureState, PodIdentity};

/// Causes of a container's waits since its threads were first seen: counters, thread-nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContainerWaits {
    /// The quota of the container or of a cgroup above it was used up.
    pub throttled_ns: u64,
    /// Another pod was running.
    pub neighbor_ns: u64,
    /// The same pod was running.
    pub self_ns: u64,
    /// A host service or the kernel was running, or the CPU was still waking up.
    pub system_ns: u64,
    /// Reported by the kernel, but without a known cause.
    pub unattributed_ns: u64,
    /// Waits minus throttled time, by length; bounds: [`LATENCY_BOUNDS_NS`].
    pub latency: Histogram,
    /// Throttles of its run queues, by length; bounds: [`STALL_BOUNDS_NS`].
    pub stalls: Histogram,
    /// Time on a CPU, by what ran on the core's other thread; `None` if no core has two known threads.
    pub smt: Option<SmtShares>,
}

/// Time that one pod waited because of one aggressor.
#[derive(Debug, Clone, Default)]
pub struct InterferenceRow {
    /// The pod that waited.
    pub victim: Arc<PodIdentity>,
    /// Namespace of the pod that was running; `system` for everything outside the pods, `other` for all other pods.
    pub aggressor_namespace: Arc<str>,
    /// Name of that pod; empty for `system` and `other`.
    pub aggressor_pod: Arc<str>,
    /// Counter, thread-nanoseconds.
    pub wait_ns: u64,
}

/// The trace's own metrics.
#[derive(Debug, Clone, Copy)]
pub struct TraceRow {
    /// Mode of the trace: continuous, in bursts, or off.
    pub mode: Mode,
    /// CPU time of the trace, nanoseconds.
    pub run_ns: u64,
    /// Number of context switches traced.
    pub switches: u64,
    /// Waits and histories that the trace lost.
    pub losses: Losses,
}

/// All findings of the trace up to its last poll.
#[derive(Debug, Clone, Default)]
pub struct NodeWaits {
    /// Waits by the labels of the container's series.
    pub containers: HashMap<Box<str>, Arc<ContainerWaits>>,
    /// Waits by victim and aggressor.
    pub interference: Vec<InterferenceRow>,
    /// `None` if nothing is traced.
    pub trace: Option<TraceRow>,
    /// Whether waits are traced, and the reason if not; `None` before that is known.
    pub feature: Option<FeatureState>,
}

impl NodeWaits {
    /// Stores each container's waits in its row.
    pub(crate) fn join(&self, rows: &mut [ContainerRow]) {
        for row in rows {
            row.waits = self.containers.get(&row.identity.labels).cloned();
        }
    }
}

/// Slot through which the waits reach the sampler's next tick. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct WaitsSlot(Arc<ArcSwap<NodeWaits>>);

impl WaitsSlot {
    /// Replaces the previous content.
    pub fn put(&self, waits: NodeWaits) {
        self.0.store(Arc::new(waits));
    }

    /// Returns the latest content.
    #[must_use]
    pub fn latest(&self) -> Arc<NodeWaits> {
        self.0.load_full()
    }
}
