//! Best-effort pods that yield: how far, and the values that this needs.

use std::time::Instant;

use crate::rules::{
    Controller, ControllerSettings, Harm, HarmMeter, Signal, Step, Target, Transition, keep_cpus,
};
use cgroupfs::{Hierarchy, node};
use kernel_text::CpuSet;
use placement::Topology;
use snapshot::NodeSnapshot;
use state_dir::Setting;

use crate::budget::{Usage, budget};
use crate::config::ActorConfig;
use crate::inputs::Inputs;
use crate::mode::Mode;
use crate::pods::{BestEffort, may_have_quota, request_cores};
use crate::setting::is_available;
use crate::shares::Shares;
use crate::want::Want;
use crate::writer::{RequiredValues, Writes};

/// Whether the kernel has `cpu.idle` (Linux 5.15).
#[must_use]
pub fn has_idle(hierarchy: &Hierarchy) -> bool {
    is_available(Setting::Idle, hierarchy)
}

/// Result of one pass for best-effort pods.
#[derive(Debug)]
pub struct BestEffortReport {
    /// Whether steps are written.
    pub mode: Mode,
    /// The target in force.
    pub target: Target,
    /// The change of the target, if any.
    pub transition: Option<Transition>,
    /// Whether waits are traced; if not, the target follows the utilization rule.
    pub traced: bool,
    /// Worst harm in this pass; `None` without a new measurement.
    pub harm: Option<Harm>,
    /// Budget of the utilization rule, cores, also while the target follows the waits; `None`
    /// without a new sample of the CPUs' use.
    pub budget_cores: Option<f64>,
    /// Number of best-effort pods.
    pub pods: usize,
    /// UIDs of the pods that are restricted.
    pub restricted: Vec<Box<str>>,
    /// The writes.
    pub writes: Writes,
}

/// The decisions about best-effort pods.
#[derive(Debug)]
pub(crate) struct Yielding {
    controller: Controller,
    harm: HarmMeter,
    /// Time zero of the controller.
    start: Instant,
    topology: Option<Topology>,
    shares: Shares,
}

impl Yielding {
    pub(crate) fn new(config: &ActorConfig, now: Instant) -> Self {
        let can_idle = config.settings.can_idle;
        let can_move = config.settings.can_move && config.hierarchy.cpuset.is_some();
        let settings = ControllerSettings { can_idle, can_move, ..config.settings };
        Self {
            controller: Controller::new(settings),
            harm: HarmMeter::default(),
            start: now,
            topology: None,
            shares: Shares::default(),
        }
    }

    /// Decides, and returns the values that the decision needs: none unless they are written.
    #[expect(clippy::too_many_arguments, reason = "each is measured once per pass")]
    pub(crate) fn pass(
        &mut self,
        config: &ActorConfig,
        now: Instant,
        inputs: &Inputs,
        best_effort: &BestEffort,
        cpus: &CpuSet,
        usage: &Usage,
        mode: Mode,
    ) -> (BestEffortReport, RequiredValues) {
        let pool = cpus.difference(&inputs.exclusive);
        let is_best_effort = |namespace: &str, pod: &str| best_effort.contains(namespace, pod);
        let request = |namespace: &str, pod: &str| request_cores(&inputs.pods, namespace, pod);
        let budget_cores = usage.node.as_ref().map(budget);
        // Without pods that could be restricted, the whole node is theirs.
        let allowed = match best_effort.cgroups.is_empty() {
            true => usage.node.map(|node| node.capacity),
            false => budget_cores,
        };
        let (signal, harm) =
            signal(&mut self.harm, &inputs.snapshot, is_best_effort, request, allowed);
        self.shares.note(now, best_effort.cgroups.keys(), &usage.best_effort);
        let since = now.saturating_duration_since(self.start);
        let transition = self.controller.tick(since, signal, pool.len());
        let wanted = match mode {
            Mode::Enforcing => self.wanted(config, best_effort, cpus, &pool, &inputs.exclusive),
            Mode::Observing(_) => RequiredValues::new(),
        };
        let is_restricted =
            mode == Mode::Enforcing && self.controller.target().step() != Step::None;
        let report = BestEffortReport {
            restricted: if is_restricted { best_effort.uids.clone() } else { Vec::new() },
            mode,
            target: self.controller.target(),
            transition,
            traced: is_traced(&inputs.snapshot),
            harm,
            budget_cores,
            pods: best_effort.cgroups.len(),
            writes: Writes::default(),
        };
        (report, wanted)
    }

    /// The values that the target requires, by cgroup and setting.
    fn wanted(
        &mut self,
        config: &ActorConfig,
        best_effort: &BestEffort,
        online: &CpuSet,
        pool: &CpuSet,
        exclusive: &CpuSet,
    ) -> RequiredValues {
        let Target { idle, cpus, quota_cores } = self.controller.target();
        let kept = cpus.and_then(|cpus| {
            let topology = self.topology(config, online)?;
            Some(keep_cpus(topology, pool, exclusive, &config.reserved, cpus))
        });
        let shares = self.shares.divide(quota_cores);
        let mut wanted = RequiredValues::new();
        for (pod, containers) in &best_effort.cgroups {
            if idle && !best_effort.resized.contains(pod) {
                wanted.insert((pod.clone(), Setting::Idle), Want::Idle);
            }
            if let Some(&cores) = shares.get(pod.as_path())
                && may_have_quota(pod, config.hierarchy.version)
            {
                wanted.insert((pod.clone(), Setting::Quota), Want::Quota(cores));
            }
            if let Some(kept) = &kept {
                let (kept, online) = (kept.clone(), online.clone());
                let want = Want::Cpus { kept, online, floor: self.controller.floor_cpus() };
                let keys = containers.iter().map(|path| (path.clone(), Setting::Cpus));
                wanted.extend(keys.map(|key| (key, want.clone())));
            }
        }
        wanted
    }

    fn topology(&mut self, config: &ActorConfig, online: &CpuSet) -> Option<&Topology> {
        if self.topology.as_ref().is_none_or(|known| known.online() != online) {
            let cpu = |place: &kernel_text::CpuPlace| placement::Cpu {
                id: place.cpu,
                core: place.core.unwrap_or(place.cpu),
                l3: place.llc.or(place.cluster),
                die: place.die,
                node: place.numa_node.unwrap_or_default(),
                socket: place.socket.unwrap_or_default(),
                kind: None,
            };
            let places = node::cpu_places(&config.sys_root, online);
            self.topology = Topology::ranked(places.iter().map(cpu).collect()).ok();
        }
        self.topology.as_ref()
    }
}

/// The signal of this tick, and the harm if it was measured. Without a trace the signal is the
/// utilization rule, which allows best-effort pods this many cores, but not before it is known
/// whether waits are traced.
fn signal(
    meter: &mut HarmMeter,
    snapshot: &NodeSnapshot,
    is_best_effort: impl Fn(&str, &str) -> bool,
    request_cores: impl Fn(&str, &str) -> f64,
    allowed_cores: Option<f64>,
) -> (Signal, Option<Harm>) {
    match meter.read(snapshot, is_best_effort, request_cores) {
        Some(harms) => (Signal::Waits(harms.clone()), Some(harms.worst)),
        None if is_traced(snapshot) || snapshot.waits.feature.is_none() => (Signal::Missing, None),
        None => (allowed_cores.map_or(Signal::Missing, Signal::Utilization), None),
    }
}

fn is_traced(snapshot: &NodeSnapshot) -> bool {
    let trace = snapshot.waits.trace.as_ref();
    trace.is_some_and(|trace| trace.mode != snapshot::TraceMode::Detached)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use snapshot::{FeatureState, NodeWaits};

    use super::*;

    #[test]
    fn the_utilization_rule_applies_only_once_it_is_known_that_nothing_is_traced() {
        let mut harm = HarmMeter::default();
        let mut signal = |feature: Option<FeatureState>| {
            let waits = Arc::new(NodeWaits { feature, ..NodeWaits::default() });
            let snapshot = NodeSnapshot { waits, ..NodeSnapshot::default() };
            signal(&mut harm, &snapshot, |_, _| false, |_, _| 1.0, Some(0.5)).0
        };
        assert_eq!(signal(None), Signal::Missing, "the trace may be loading");
        let off = FeatureState { feature: "sched_trace", enabled: false, reason: "off".into() };
        assert_eq!(signal(Some(off)), Signal::Utilization(0.5));
    }
}
