//! The state of the node in one frame.

use std::sync::Arc;

use api::{Bounds, Colocation, Contention, CpuFrame, Trace, Verdict};
use snapshot::{CpuPlace, NodeWaits, PressureScope, TraceMode};

/// The node in one frame, without its name and the load of its CPUs. Frames share what seldom
/// changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeValues {
    pub(crate) pressure: Option<f64>,
    pub(crate) contention: Contention,
    pub(crate) steal: Option<f64>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) colocation: Arc<Colocation>,
    pub(crate) verdicts: Arc<Vec<Verdict>>,
    pub(crate) cpus: Arc<Vec<CpuFrame>>,
}

/// Counters of the node at the end of the latest frame.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) pressure_ns: Option<u64>,
    pub(crate) steal_ns: Option<u64>,
}

/// The known value if it is the same.
pub(crate) fn shared<T: PartialEq>(known: &Arc<T>, now: T) -> Arc<T> {
    if **known == now { Arc::clone(known) } else { Arc::new(now) }
}

pub(crate) fn without_load(cpus: &[CpuFrame]) -> Vec<CpuFrame> {
    cpus.iter().map(|cpu| CpuFrame { busy: None, ..cpu.clone() }).collect()
}

/// Shares of the trace's last interval: its polls and the frames have the same length but do not
/// begin at the same time, so differences of the counters would alternate.
pub(crate) fn contention(waits: &NodeWaits) -> Contention {
    let mut contention = Contention::default();
    for row in &waits.pressure {
        let bounds = match row.scope {
            PressureScope::Node => &mut contention.node,
            PressureScope::Guaranteed => &mut contention.guaranteed,
            PressureScope::Burstable => &mut contention.burstable,
            PressureScope::BestEffort => &mut contention.best_effort,
        };
        *bounds = Some(Bounds { lower: row.lower, upper: row.upper });
    }
    contention
}

pub(crate) fn trace(waits: &NodeWaits) -> Trace {
    let mode = match waits.trace.map(|trace| trace.mode) {
        None => "off",
        Some(TraceMode::Continuous) => "continuous",
        Some(TraceMode::Bursts { .. }) => "bursts",
        Some(TraceMode::Detached) => "detached",
    };
    let reason = waits.feature.as_ref().map(|feature| feature.reason.clone());
    Trace { mode: mode.to_owned(), reason: reason.unwrap_or_default() }
}

/// The online CPUs with their load, if it was read for all of them.
pub(crate) fn cpus(places: &[CpuPlace], load: &[f64]) -> Vec<CpuFrame> {
    let is_complete = places.len() == load.len();
    let cpu = |(at, place): (usize, &CpuPlace)| CpuFrame {
        cpu: place.cpu,
        core: place.core,
        llc: place.llc,
        numa_node: place.numa_node,
        socket: place.socket,
        busy: load.get(at).copied().filter(|_| is_complete),
    };
    places.iter().enumerate().map(cpu).collect()
}
