//! One pass as a pure function: from the mode and the state read, it computes the next mode, the
//! steps and the report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use kernel_text::{CgroupVersion, CpuSet};
use placement::{
    Current, Holding, Kubelet, Plan, Pod, PodCgroups, Step, Transition, Uid, widen_steps,
    write_steps,
};
use state_dir::WrittenCgroup;
use watchdog::errors::chain;

use super::mode::{Granted, PinnerMode};
use super::record::{Found, Record};
use crate::planned::{PlanInputs, Planned, Rules};
use crate::repairs::CausedPause;
use crate::report::PassReport;
use crate::tree::View;
use crate::{Error, Machine};

/// All inputs of a pass.
#[derive(Debug)]
pub(super) struct Inputs<'a> {
    pub(super) now: Instant,
    pub(super) rules: &'a Rules,
    pub(super) machine: &'a Machine,
    pub(super) view: &'a View,
    pub(super) record: &'a Record,
    /// Pods that have cgroups, or reservations.
    pub(super) claims: Vec<Pod>,
    /// CPUs in which containers of pods have started since the last plan.
    pub(super) reserved: BTreeMap<Uid, Holding>,
    pub(super) kubelet: Kubelet,
    /// The last plan; reused while its inputs are unchanged.
    pub(super) last: Option<&'a Planned>,
}

/// Work of a pass, to be carried out.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) planned: Planned,
    /// Cgroups that an agent without a readable checkpoint has confined.
    pub(super) adopted: Option<BTreeMap<PathBuf, WrittenCgroup>>,
    /// Cgroups that another writer has changed since they were established, by pod.
    pub(super) rewritten: Vec<Rewritten>,
    /// Pods whose pause starts in this pass.
    pub(super) stepped_back: Vec<(Uid, CausedPause)>,
    pub(super) steps: Vec<Step>,
}

/// Changed cgroups of a pod with their current CPUs.
pub(super) type Rewritten = (Uid, Vec<(PathBuf, CpuSet)>);

/// The plan of a pass with these inputs, unless its mode changes in the pass; made before the pass
/// locks the admission, which then finds it in [`Inputs::last`]. `None` if nothing can be planned.
pub(super) fn plan_ahead(mode: &PinnerMode, inputs: &Inputs<'_>) -> Option<Planned> {
    plan_from(mode, inputs, inputs.record.planned.clone(), inputs.last).ok()
}

/// One pass. `mode` already reflects the obstacles ([`PinnerMode::update`]); it changes only if the node
/// steps back.
pub(super) fn pass(mode: &mut PinnerMode, inputs: &Inputs<'_>) -> (Option<Work>, PassReport) {
    match work(mode, inputs) {
        Ok(work) => {
            let (status, pools) = (mode.status(), Some(work.planned.plan.pools.clone()));
            (Some(work), PassReport { status, pools, ..PassReport::idle(String::new()) })
        }
        Err(error) => (None, PassReport::idle(chain(&error))),
    }
}

fn work(mode: &mut PinnerMode, inputs: &Inputs<'_>) -> Result<Work, Error> {
    let (planned, adopted) = planned(mode, inputs)?;
    let rewritten = match mode {
        PinnerMode::Enforcing { granted, .. } => rewritten(granted, inputs, &planned.plan),
        _ => Vec::new(),
    };
    let stepped_back = step_back(mode, &rewritten, inputs);
    // Plan again: a paused pod gets another placement.
    let (current, last) = (planned.from.current.clone(), Some(&planned));
    let planned = plan_from(mode, inputs, current, last)?;
    let steps = steps(mode, inputs, &planned.plan)?;
    Ok(Work { planned, adopted, rewritten, stepped_back, steps })
}

/// Pauses pods, or the whole node, if another writer keeps rewriting cpusets or if writes keep
/// failing. Returns the pods whose pause starts in this pass.
fn step_back(
    mode: &mut PinnerMode,
    rewritten: &[Rewritten],
    inputs: &Inputs<'_>,
) -> Vec<(Uid, CausedPause)> {
    let PinnerMode::Enforcing { granted, .. } = mode else { return Vec::new() };
    let (view, now) = (inputs.view, inputs.now);
    for (uid, cgroups) in rewritten {
        cgroups.iter().for_each(|(path, _)| granted.repairs.rewritten(uid, path.clone(), now));
    }
    view.unreadable.keys().for_each(|uid| granted.repairs.failed(uid, now));
    let namespaces: BTreeMap<&Uid, &str> =
        inputs.claims.iter().map(|pod| (&pod.uid, &*pod.namespace)).collect();
    let namespace = |uid: &Uid| namespaces.get(uid).copied().unwrap_or_default();
    let pods = view.pods.iter().map(|pod| (&pod.uid, namespace(&pod.uid))).collect();
    let pauses = granted.repairs.judge(&pods, now);
    if let Some(pause) = pauses.node {
        mode.step_back(pause);
    }
    pauses.pods
}

fn steps(mode: &PinnerMode, inputs: &Inputs<'_>, plan: &Plan) -> Result<Vec<Step>, Error> {
    let (view, held) = (inputs.view, &inputs.record.committed.held);
    let (granted, held, placements) = match mode {
        PinnerMode::Enforcing { granted, .. } => {
            let paused = granted.repairs.paused(inputs.now);
            let is_left_alone =
                |uid: &Uid| paused.contains_key(uid) || view.unreadable.contains_key(uid);
            let enforced = plan.placements.iter().filter(|(uid, _)| !is_left_alone(uid));
            (granted, held.clone(), enforced.map(clone).collect())
        }
        PinnerMode::SteppedBack { granted, .. } => {
            // Existing pods keep their exclusive CPUs.
            let is_over = |uid: &Uid| {
                plan.placements.get(uid).is_none_or(|placement| !placement.class.is_exclusive())
            };
            let over = held.iter().filter(|(uid, _)| is_over(uid));
            (granted, over.map(clone).collect(), BTreeMap::new())
        }
        PinnerMode::Observing(_) | PinnerMode::Suspended { .. } | PinnerMode::Drained => {
            return Ok(Vec::new());
        }
    };
    let transition = Transition {
        hierarchy: &view.hierarchy,
        pods: &view.pods,
        held: &held,
        placements: &placements,
    };
    let mut steps = write_steps(&transition)?;
    for pod in view.pods.iter().filter(|pod| !placements.contains_key(&pod.uid)) {
        if let Some(placement) = plan.placements.get(&pod.uid) {
            steps.extend(widened(granted, view, pod, &placement.cpus));
        }
    }
    Ok(steps)
}

/// Adds the CPUs a paused pod may use by now, in cgroups that no other writer has changed since
/// this agent's write.
fn widened(granted: &Granted, view: &View, pod: &PodCgroups, cpus: &CpuSet) -> Vec<Step> {
    let mut widens: BTreeMap<&Path, &CpuSet> = BTreeMap::new();
    for cgroup in &pod.cgroups {
        let inode = view.seen.get(&cgroup.path).map(|(_, inode)| *inode);
        let was = granted.established.get(&cgroup.path);
        let is_as_written =
            was.is_some_and(|was| Some(was.inode) == inode && was.cpus == cgroup.effective);
        // A runtime copies the pod's CPUs.
        let parent = cgroup.parent.map(|parent| &pod.cgroups[parent]);
        let follows =
            parent.is_some_and(|parent| widens.get(&*parent.path) == Some(&&cgroup.effective));
        if is_as_written || follows {
            widens.insert(&cgroup.path, &cgroup.effective);
        }
    }
    widen_steps(&view.hierarchy, pod, cpus, |cgroup| widens.contains_key(&*cgroup.path))
}

fn clone<T: Clone>((uid, of_pod): (&Uid, &T)) -> (Uid, T) {
    (uid.clone(), of_pod.clone())
}

/// The plan and, if it is the first one after a lost checkpoint, the cgroups that are already
/// confined.
fn planned(
    mode: &PinnerMode,
    inputs: &Inputs<'_>,
) -> Result<(Planned, Option<BTreeMap<PathBuf, WrittenCgroup>>), Error> {
    let (view, record) = (inputs.view, inputs.record);
    let first = plan_from(mode, inputs, record.planned.clone(), inputs.last)?;
    if record.found == Found::Known {
        return Ok((first, None));
    }
    let adopted = adopted(view, &first.plan);
    let is_confined = record.found == Found::Damaged || !adopted.held.is_empty();
    let confined = is_confined.then(|| confined(view, &first.plan));
    Ok((plan_from(mode, inputs, adopted, Some(&first))?, confined))
}

/// Plans, or takes the plan `last` if its inputs are the same.
fn plan_from(
    mode: &PinnerMode,
    inputs: &Inputs<'_>,
    mut current: Current,
    last: Option<&Planned>,
) -> Result<Planned, Error> {
    let Inputs { claims, kubelet, view, machine, rules, reserved, .. } = inputs;
    current.withheld = withheld(mode, inputs);
    let reserved = reserved.iter().filter(|(uid, _)| !current.demoted.contains(*uid));
    current.held.extend(reserved.map(clone));
    let ceiling = view.hierarchy.ceiling.clone();
    let from = PlanInputs { claims: claims.clone(), kubelet: kubelet.clone(), ceiling, current };
    if let Some(last) = last.filter(|last| *last.from == from) {
        return Ok(last.clone());
    }
    let plan = from.plan(machine, rules).map_err(|error| Error::NoCpusets(error.to_string()))?;
    Ok(Planned { from: Arc::new(from), plan: Arc::new(plan) })
}

/// Pods for which nothing can be enforced now. While the whole node is paused: all pods without
/// exclusive CPUs.
fn withheld(mode: &PinnerMode, inputs: &Inputs<'_>) -> BTreeSet<Uid> {
    match mode {
        PinnerMode::Observing(_) | PinnerMode::Suspended { .. } | PinnerMode::Drained => {
            BTreeSet::new()
        }
        PinnerMode::Enforcing { .. } => {
            let unreadable = inputs.view.unreadable.keys().cloned();
            mode.paused(inputs.now).into_keys().chain(unreadable).collect()
        }
        PinnerMode::SteppedBack { .. } => {
            let held = &inputs.record.committed.held;
            inputs
                .claims
                .iter()
                .map(|pod| &pod.uid)
                .filter(|uid| !held.contains_key(*uid))
                .cloned()
                .collect()
        }
    }
}

/// Cgroups that were as planned after the last pass and differ now, which only another writer
/// explains.
fn rewritten(granted: &Granted, inputs: &Inputs<'_>, plan: &Plan) -> Vec<Rewritten> {
    let (view, left_alone) = (inputs.view, granted.repairs.paused(inputs.now));
    if view.hierarchy.ceiling != granted.ceiling {
        return Vec::new();
    }
    let mut rewritten = Vec::new();
    for pod in view.pods.iter().filter(|pod| !left_alone.contains_key(&pod.uid)) {
        let Some(placement) = plan.placements.get(&pod.uid) else { continue };
        let ours =
            pod.cgroups.iter().filter(|cgroup| cgroup.ours && cgroup.effective != placement.cpus);
        let is_rewritten = |path: &PathBuf| {
            granted.established.get(path).is_some_and(|was| {
                was.cpus == placement.cpus
                    && view.seen.get(path).is_some_and(|(_, now)| *now == was.inode)
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

/// Without a checkpoint: pods that should get exclusive CPUs and already run on that number of CPUs
/// keep them.
fn adopted(view: &View, plan: &Plan) -> Current {
    let holding = |(uid, placement): (&Uid, &placement::Placement)| {
        let pod = view.pods.iter().find(|pod| pod.uid == *uid)?;
        let cpus = pod.cgroups.first().map(|cgroup| cgroup.effective.clone())?;
        let fits = cpus.len() == placement.cpus.len() && cpus != view.hierarchy.ceiling;
        (placement.class.is_exclusive() && fits)
            .then(|| (uid.clone(), Holding { class: placement.class, cpus }))
    };
    Current { held: plan.placements.iter().filter_map(holding).collect(), ..Current::default() }
}

/// Cgroups confined by an agent whose checkpoint is lost. Their original CPUs are lost too. All
/// CPUs are assumed, the kubelet's default while its CPU manager grants none.
fn confined(view: &View, plan: &Plan) -> BTreeMap<PathBuf, WrittenCgroup> {
    let before = match view.hierarchy.version {
        CgroupVersion::V1 => view.hierarchy.ceiling.to_string(),
        CgroupVersion::V2 => String::new(),
    };
    let ours = view
        .pods
        .iter()
        .filter(|pod| plan.placements.contains_key(&pod.uid))
        .flat_map(|pod| &pod.cgroups);
    ours.filter(|cgroup| cgroup.ours && cgroup.effective != view.hierarchy.ceiling)
        .filter_map(|cgroup| {
            let (_, inode) = view.seen.get(&cgroup.path)?;
            Some((cgroup.path.clone(), WrittenCgroup { inode: *inode, original: before.clone() }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use placement::{Grid, Numbering, QOS_CLASS_LABEL};

    use super::*;
    use crate::pinner::mode::Why;
    use state_dir::PinningCheckpoint;

    fn machine() -> Machine {
        let grid = Grid {
            sockets: 1,
            nodes_per_socket: 1,
            cores_per_node: 4,
            threads_per_core: 1,
            numbering: Numbering::Sequential,
        };
        let topology = grid.topology();
        let (possible, none) = (topology.online().clone(), CpuSet::new());
        Machine { topology, possible, isolated: none.clone(), nohz_full: none }
    }

    fn view(machine: &Machine) -> View {
        let ceiling = machine.possible.clone();
        View {
            hierarchy: placement::CpusetHierarchy {
                version: CgroupVersion::V2,
                full: ceiling.clone(),
                ceiling,
            },
            pods: Vec::new(),
            seen: BTreeMap::new(),
            confined: None,
            unreadable: BTreeMap::new(),
            other_root: None,
        }
    }

    fn claim(uid: &str) -> Pod {
        Pod {
            uid: uid.into(),
            labels: [(QOS_CLASS_LABEL.to_owned(), "LSE".to_owned())].into(),
            request_millis: Some(1000),
            limit_millis: Some(1000),
            ..Pod::default()
        }
    }

    #[test]
    fn a_pass_plans_again_only_if_its_inputs_have_changed() {
        let (machine, rules) = (machine(), Rules::default());
        let view = view(&machine);
        let record = Record::of(PinningCheckpoint::default(), Found::Known);
        let now = Instant::now();
        let inputs = |claims: &[Pod], last| Inputs {
            now,
            rules: &rules,
            machine: &machine,
            view: &view,
            record: &record,
            claims: claims.to_vec(),
            reserved: BTreeMap::new(),
            kubelet: Kubelet::default(),
            last,
        };
        let mode = || PinnerMode::Observing(Why::Configured);
        let plan =
            |claims: &[Pod], last| pass(&mut mode(), &inputs(claims, last)).0.unwrap().planned.plan;
        let pods = [claim("first"), claim("started")];
        let ahead = plan_ahead(&mode(), &inputs(&pods[..1], None)).unwrap();
        assert!(Arc::ptr_eq(&plan(&pods[..1], Some(&ahead)), &ahead.plan));
        let again = plan(&pods, Some(&ahead));
        assert!(!Arc::ptr_eq(&again, &ahead.plan));
        assert!(again.placements["started"].class.is_exclusive());
    }
}
