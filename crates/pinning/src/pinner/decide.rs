//! One pass as a function: the mode and what was read go in; the next mode, the steps and the report come out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use kernel_text::CpuSet;
use placement::{Current, Holding, Kubelet, Node, Plan, Pod, Step, Transition, Uid, Version, plan, write_steps};

use super::mode::{Granted, Mode, Why};
use super::record::{Found, Record};
use super::{PinnerConfig, chain};
use crate::checkpoint::Touched;
use crate::report::Report;
use crate::tree::View;
use crate::{Error, Machine};

/// What a pass depends on. Nothing else is looked at.
#[derive(Debug)]
pub(super) struct Inputs<'a> {
    pub(super) now: Instant,
    pub(super) config: &'a PinnerConfig,
    pub(super) machine: &'a Machine,
    pub(super) view: &'a View,
    pub(super) record: &'a Record,
    /// The pods that have cgroups.
    pub(super) claims: Vec<Pod>,
    pub(super) kubelet: Kubelet,
    /// The last plan, which stands while nothing that it depends on has changed.
    pub(super) last: Option<&'a Planned>,
}

/// All that a plan depends on, but for the machine: while it is the same, so is the plan.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlanInputs {
    claims: Vec<Pod>,
    kubelet: Kubelet,
    ceiling: CpuSet,
    current: Current,
}

/// A plan and what it was made from.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    from: PlanInputs,
    pub(super) plan: Plan,
}

/// What a pass is to carry out.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) planned: Planned,
    /// Cgroups that an agent without a readable checkpoint has confined.
    pub(super) adopted: Option<BTreeMap<PathBuf, Touched>>,
    /// Cgroups that another writer has changed since they were established, by pod.
    pub(super) rewritten: Vec<(Uid, Vec<(PathBuf, CpuSet)>)>,
    pub(super) steps: Vec<Step>,
}

/// One pass. `mode` already faces what is in the way ([`Mode::facing`]).
pub(super) fn pass(mode: Mode, inputs: &Inputs<'_>) -> (Mode, Option<Work>, Report) {
    let (planned, adopted) = match planned(inputs) {
        Ok(planned) => planned,
        Err(error) => return (mode, None, Report::idle(chain(&error))),
    };
    let rewritten = match &mode {
        Mode::Enforcing { granted, .. } => rewritten(granted, inputs.view, &planned.plan),
        Mode::Observing { .. } | Mode::SteppedBack { .. } => Vec::new(),
    };
    let mode = yielding(mode, &rewritten, inputs.now);
    let steps = match &mode {
        Mode::Enforcing { .. } => steps(inputs, &planned.plan),
        Mode::Observing { .. } | Mode::SteppedBack { .. } => Ok(Vec::new()),
    };
    let mut report = Report::idle(String::new());
    report.standing = mode.standing();
    report.pools = Some(planned.plan.pools.clone());
    match steps {
        Ok(steps) => (mode, Some(Work { planned, adopted, rewritten, steps }), report),
        Err(error) => (mode, None, Report { pools: report.pools, ..Report::idle(chain(&error)) }),
    }
}

/// Another writer that does not give up makes this one step back.
fn yielding(mode: Mode, rewritten: &[(Uid, Vec<(PathBuf, CpuSet)>)], now: Instant) -> Mode {
    let Mode::Enforcing { lock, mut granted } = mode else { return mode };
    let cgroups = rewritten.iter().flat_map(|(_, cgroups)| cgroups).map(|(path, _)| path.clone()).collect();
    if granted.repairs.repaired(cgroups, now) {
        return Mode::SteppedBack { why: Why::Rewritten };
    }
    Mode::Enforcing { lock, granted }
}

fn steps(inputs: &Inputs<'_>, plan: &Plan) -> Result<Vec<Step>, Error> {
    let Inputs { view, record, .. } = inputs;
    let (hierarchy, held) = (&view.hierarchy, &record.committed.held);
    Ok(write_steps(&Transition { hierarchy, pods: &view.pods, held, placements: &plan.placements })?)
}

/// The plan and, with the first one after a lost checkpoint, what is confined already.
fn planned(inputs: &Inputs<'_>) -> Result<(Planned, Option<BTreeMap<PathBuf, Touched>>), Error> {
    let (view, record) = (inputs.view, inputs.record);
    let first = plan_from(inputs, record.planned.clone())?;
    if record.found == Found::Known {
        return Ok((first, None));
    }
    let adopted = adopted(view, &first.plan);
    let is_confined = record.found == Found::Damaged || !adopted.held.is_empty();
    let confined = is_confined.then(|| confined(view, &first.plan));
    Ok((plan_from(inputs, adopted)?, confined))
}

fn plan_from(inputs: &Inputs<'_>, current: Current) -> Result<Planned, Error> {
    let Inputs { claims, kubelet, view, machine, config, .. } = inputs;
    let ceiling = view.hierarchy.ceiling.clone();
    let from = PlanInputs { claims: claims.clone(), kubelet: kubelet.clone(), ceiling, current };
    if let Some(last) = inputs.last.filter(|last| last.from == from) {
        return Ok(last.clone());
    }
    // The scheduler balances nobody onto or off an isolated CPU: threads that are sent there pile up on one.
    let reserved = config.reserved.union(&machine.isolated);
    let node = Node {
        topology: &machine.topology,
        allowed: &from.ceiling,
        reserved: &reserved,
        kubelet: &from.kubelet,
        settings: &config.settings,
    };
    let plan = plan(&node, &from.claims, &config.profiles, &from.current)
        .map_err(|error| Error::NoCpusets(error.to_string()))?;
    Ok(Planned { from, plan })
}

/// Cgroups that were as planned after the last pass and are not now, with nothing but another writer to explain it.
fn rewritten(granted: &Granted, view: &View, plan: &Plan) -> Vec<(Uid, Vec<(PathBuf, CpuSet)>)> {
    if view.hierarchy.ceiling != granted.ceiling {
        return Vec::new();
    }
    let mut rewritten = Vec::new();
    for pod in &view.pods {
        let Some(placement) = plan.placements.get(&pod.uid) else { continue };
        let ours = pod.cgroups.iter().filter(|cgroup| cgroup.ours && cgroup.effective != placement.cpus);
        let is_rewritten = |path: &PathBuf| {
            granted.established.get(path).is_some_and(|was| {
                was.cpus == placement.cpus && view.seen.get(path).is_some_and(|(_, now)| *now == was.inode)
            })
        };
        let cgroups: Vec<_> = ours
            .filter(|cgroup| is_rewritten(&cgroup.path))
            .map(|cgroup| (cgroup.path.clone(), cgroup.effective.clone()))
            .collect();
        if !cgroups.is_empty() {
            rewritten.push((pod.uid.clone(), cgroups));
        }
    }
    rewritten
}

/// Without a checkpoint: pods that are to have CPUs of their own, and run on as many already, keep those.
fn adopted(view: &View, plan: &Plan) -> Current {
    let holding = |(uid, placement): (&Uid, &placement::Placement)| {
        let pod = view.pods.iter().find(|pod| pod.uid == *uid)?;
        let cpus = pod.cgroups.first().map(|cgroup| cgroup.effective.clone())?;
        let fits = cpus.len() == placement.cpus.len() && cpus != view.hierarchy.ceiling;
        (placement.class.is_exclusive() && fits).then(|| (uid.clone(), Holding { class: placement.class, cpus }))
    };
    Current { held: plan.placements.iter().filter_map(holding).collect(), ..Current::default() }
}

/// What an agent whose checkpoint is lost has confined. What these cgroups read before is lost too: all CPUs, as the
/// kubelet leaves them where its CPU manager places nobody.
fn confined(view: &View, plan: &Plan) -> BTreeMap<PathBuf, Touched> {
    let before = match view.hierarchy.version {
        Version::V1 => view.hierarchy.ceiling.to_string(),
        Version::V2 => String::new(),
    };
    let ours = view.pods.iter().filter(|pod| plan.placements.contains_key(&pod.uid)).flat_map(|pod| &pod.cgroups);
    ours.filter(|cgroup| cgroup.ours && cgroup.effective != view.hierarchy.ceiling)
        .filter_map(|cgroup| {
            let (_, inode) = view.seen.get(&cgroup.path)?;
            Some((cgroup.path.clone(), Touched { inode: *inode, before: before.clone() }))
        })
        .collect()
}
