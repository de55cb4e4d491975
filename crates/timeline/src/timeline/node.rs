//! The state of the node in each frame.

use std::sync::Arc;

use api::{Bounds, Colocation, Contention, CpuFrame, NodeFrame, Trace};
use snapshot::{CpuPlace, NodeSnapshot, NodeWaits, PressureScope, TraceMode};

use super::{State, WATCHED_FOR};
use crate::history::position;

/// The node in one frame, without its name and the load of its CPUs. Frames share what seldom
/// changes.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeValues {
    pressure: Option<f64>,
    contention: Contention,
    steal: Option<f64>,
    trace: Arc<Trace>,
    colocation: Arc<Colocation>,
    cpus: Arc<Vec<CpuFrame>>,
}

/// Counters of the node at the end of the latest frame.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pressure_ns: Option<u64>,
    steal_ns: Option<u64>,
}

impl State {
    pub(super) fn set_colocation(&mut self, colocation: Colocation) {
        self.colocation = shared(&self.colocation, colocation);
    }

    pub(super) fn add_node(&mut self, snapshot: &NodeSnapshot, seconds: f64) {
        let node = &snapshot.node;
        let now = Totals { pressure_ns: node.pressure_waiting_ns, steal_ns: node.steal_ns };
        let before = std::mem::replace(&mut self.totals, now);
        let rate = |before: Option<u64>, now: Option<u64>| {
            Some(now?.saturating_sub(before?) as f64 / 1e9 / seconds).filter(|_| seconds > 0.0)
        };
        let is_watched = self.watched_at.is_some_and(|at| at.elapsed() < WATCHED_FOR);
        let load = if is_watched { self.load.read() } else { Vec::new() };
        if !is_watched {
            self.load.pause();
        }
        self.cpus = cpus(&node.cpu_info, &load);
        let previous = &self.nodes[position(self.frame - 1)];
        self.nodes[position(self.frame)] = NodeValues {
            pressure: rate(before.pressure_ns, now.pressure_ns).map(|share| share.min(1.0)),
            contention: contention(&snapshot.waits),
            steal: rate(before.steal_ns, now.steal_ns),
            trace: shared(&previous.trace, trace(&snapshot.waits)),
            colocation: Arc::clone(&self.colocation),
            cpus: shared(&previous.cpus, without_load(&self.cpus)),
        };
    }

    /// Adds the node of a recorded frame.
    pub(super) fn add_recorded_node(&mut self, node: &NodeFrame) {
        self.node.clone_from(&node.name);
        self.cpus.clone_from(&node.cpus);
        self.set_colocation(node.colocation.clone());
        let previous = &self.nodes[position(self.frame - 1)];
        self.nodes[position(self.frame)] = NodeValues {
            pressure: node.pressure,
            contention: node.contention,
            steal: node.steal,
            trace: shared(&previous.trace, node.trace.clone()),
            colocation: Arc::clone(&self.colocation),
            cpus: shared(&previous.cpus, without_load(&node.cpus)),
        };
    }

    /// The node in a frame, without the load of its CPUs.
    pub(super) fn past_node(&self, number: u64) -> NodeFrame {
        let values = &self.nodes[position(number)];
        NodeFrame {
            name: self.node.clone(),
            trace: (*values.trace).clone(),
            pressure: values.pressure,
            contention: values.contention,
            steal: values.steal,
            colocation: (*values.colocation).clone(),
            cpus: (*values.cpus).clone(),
        }
    }
}

/// The known value if it is the same.
fn shared<T: PartialEq>(known: &Arc<T>, now: T) -> Arc<T> {
    if **known == now { Arc::clone(known) } else { Arc::new(now) }
}

fn without_load(cpus: &[CpuFrame]) -> Vec<CpuFrame> {
    cpus.iter().map(|cpu| CpuFrame { busy: None, ..cpu.clone() }).collect()
}

/// Shares of the trace's last interval: its polls and the frames have the same length but do not
/// begin at the same time, so differences of the counters would alternate.
fn contention(waits: &NodeWaits) -> Contention {
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

fn trace(waits: &NodeWaits) -> Trace {
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
fn cpus(places: &[CpuPlace], load: &[f64]) -> Vec<CpuFrame> {
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
