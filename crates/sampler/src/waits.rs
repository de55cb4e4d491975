//! Who made whom wait: found by whoever polls the trace, published with the next snapshot.
//!
//! Nothing here knows how waits are traced; the sampler only joins them to its series, so that they live as long.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
pub use sched_trace::{Histogram, LATENCY_BOUNDS_NS, Losses, Mode, STALL_BOUNDS_NS, SmtShares};

use crate::snapshot::{ContainerRow, FeatureState, PodIdentity};

/// What a container's threads waited for since they were first seen: counters, thread-nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContainerWaits {
    /// A quota of its own or of a cgroup above it was used up.
    pub throttled_ns: u64,
    /// Another pod ran.
    pub neighbor_ns: u64,
    /// Its own pod ran.
    pub self_ns: u64,
    /// A host service or the kernel ran, or the CPU was still waking up.
    pub system_ns: u64,
    /// Seen by the kernel, and not why.
    pub unattributed_ns: u64,
    /// Waits less throttled time, by length; bounds: [`LATENCY_BOUNDS_NS`].
    pub latency: Histogram,
    /// Throttles of its run queues, by length; bounds: [`STALL_BOUNDS_NS`].
    pub stalls: Histogram,
    /// Time on a CPU by what the core's other thread ran; `None` where no core has two that are known.
    pub smt: Option<SmtShares>,
}

/// What one aggressor made one pod wait.
#[derive(Debug, Clone, Default)]
pub struct InterferenceRow {
    /// Who waited.
    pub victim: Arc<PodIdentity>,
    /// Who ran: a pod's namespace; `system` for everything outside the pods, `other` for all other pods.
    pub aggressor_namespace: Arc<str>,
    /// The pod; empty for `system` and `other`.
    pub aggressor_pod: Arc<str>,
    /// A counter, thread-nanoseconds.
    pub wait_ns: u64,
}

/// What the trace says of itself.
#[derive(Debug, Clone, Copy)]
pub struct TraceRow {
    /// All the time, in bursts, or not now.
    pub mode: Mode,
    /// CPU time that it took, nanoseconds.
    pub run_ns: u64,
    /// Context switches that it saw.
    pub switches: u64,
    /// What it lost.
    pub losses: Losses,
}

/// Everything that the trace has found until its last poll.
#[derive(Debug, Clone, Default)]
pub struct NodeWaits {
    /// By the labels of the container's series.
    pub containers: HashMap<Box<str>, Arc<ContainerWaits>>,
    /// By victim and aggressor.
    pub interference: Vec<InterferenceRow>,
    /// `None` where nothing is traced.
    pub trace: Option<TraceRow>,
    /// Whether waits are traced, and why not; `None` before that is known.
    pub feature: Option<FeatureState>,
}

impl NodeWaits {
    /// Puts each container's waits into its row.
    pub(crate) fn join(&self, rows: &mut [ContainerRow]) {
        for row in rows {
            row.waits = self.containers.get(&row.identity.labels).cloned();
        }
    }
}

/// Where the waits are put, and found by the sampler's next tick. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct WaitsSlot(Arc<ArcSwap<NodeWaits>>);

impl WaitsSlot {
    /// Replaces what was put there before.
    pub fn put(&self, waits: NodeWaits) {
        self.0.store(Arc::new(waits));
    }

    /// What was put there last.
    #[must_use]
    pub fn latest(&self) -> Arc<NodeWaits> {
        self.0.load_full()
    }
}
