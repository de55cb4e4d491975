//! Carries out the work of a pass on the kernel: store the intent, write and read back, commit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use api::{Pin, Rejection};
use kernel_text::{CgroupVersion, CpuSet};
use kubepods::PodIndex;
use placement::{
    Class, CpusetCgroup, CpusetHierarchy, Current, Holding, Plan, PodCgroups, Reason, Step, Uid,
};
use state_dir::{PinningCheckpoint, WrittenCgroup};
use watchdog::errors::chain;

use super::Pinner;
use super::decide::Work;
use super::inputs::{decision, names};
use super::mode::{Established, Granted, PinnerMode};
use crate::carry_out::carry_out;
use crate::claims::has_ended;
use crate::decision::PodOutcome;
use crate::grants::{class_name, to_held};
use crate::report::{Operation, PassReport, PinningStatus, Trace};
use crate::tree::View;
use crate::{Result, nested};

/// Maximum number of passes that a grant waits for another pod to leave its CPUs.
const GRANT_WAITS: usize = 5;

impl Pinner {
    /// Applies the work of a pass. A failure counts against its pod in the next pass.
    pub(super) fn carry_out(
        &mut self,
        view: &View,
        work: &Work,
        pods: &PodIndex,
        report: &mut PassReport,
        trace: &mut dyn FnMut(Trace<'_>),
    ) {
        self.report_rewritten(work, pods, report);
        report_stepped_back(work, pods, report);
        if self.mode.granted().is_none() {
            return;
        }
        match self.transition(view, work, pods, report, trace) {
            Ok(failed) => {
                let now = Instant::now();
                if let Some(granted) = self.mode.granted_mut() {
                    failed.iter().for_each(|uid| granted.repairs.failed(uid, now));
                }
            }
            Err(error) => report.status = PinningStatus::Observing(chain(&error)),
        }
    }

    /// Carries out the steps between two checkpoints. Returns the pods for which a step failed.
    fn transition(
        &mut self,
        view: &View,
        work: &Work,
        pods: &PodIndex,
        report: &mut PassReport,
        trace: &mut dyn FnMut(Trace<'_>),
    ) -> Result<BTreeSet<Uid>> {
        let (plan, steps) = (&work.planned.plan, &work.steps);
        let outcome = plan.outcome();
        let best_effort = best_effort(plan);
        let rejections = rejections(plan, pods);
        let is_saved = self.record.is_saved(&outcome, &best_effort, &rejections);
        self.record.planned = outcome.clone();
        let mut failed = BTreeSet::new();
        if !steps.is_empty() || !is_saved {
            let grants =
                steps.iter().any(|step| matches!(step, Step::Grant { .. } | Step::Release { .. }));
            let checkpoint = &mut self.record.checkpoint;
            checkpoint.best_effort = best_effort;
            checkpoint.rejections = rejections;
            checkpoint.intent = grants.then(|| to_held(&outcome));
            let needs_no_record = self.needs_no_record(steps);
            self.record_originals(view, steps);
            match self.save(report) {
                Err(error) if !needs_no_record => return Err(error),
                // A full disk must not keep pods off CPUs that have become free.
                Err(_) | Ok(()) => trace(Trace::Intent(steps)),
            }
            let carried = self.carry(view, plan, steps, report, trace);
            self.record.committed = Current { held: carried.held, ..outcome };
            self.record.checkpoint.committed = to_held(&self.record.committed);
            self.record.checkpoint.intent = None;
            self.note_pins(plan, pods, report);
            self.save(report)?;
            trace(Trace::Committed);
            failed = carried.failed.into_keys().collect();
        }
        let paused = self.mode.paused(Instant::now());
        if let PinnerMode::Enforcing { granted, .. } = &mut self.mode {
            let is_enforced = |uid: &Uid| {
                !failed.contains(uid)
                    && !paused.contains_key(uid)
                    && !view.unreadable.contains_key(uid)
            };
            granted.establish(view, plan, &self.record.checkpoint.written, is_enforced);
        }
        Ok(failed)
    }

    /// Carries out the steps. After a failed step the further steps of that pod are skipped. Steps
    /// of other pods continue, unless they need the CPUs that this pod should have left.
    fn carry(
        &mut self,
        view: &View,
        plan: &Plan,
        steps: &[Step],
        report: &mut PassReport,
        trace: &mut dyn FnMut(Trace<'_>),
    ) -> Carried {
        let version = self.tree.version();
        let mut carried =
            Carried { held: self.record.committed.held.clone(), failed: BTreeMap::new() };
        for step in steps {
            if carried.must_wait(step, view, plan, version) && !self.has_waited_long(step) {
                continue;
            }
            match carry_out(step, version, &mut self.record.checkpoint.narrowed) {
                // A removed cgroup has no processes left, neither to move away nor to grant CPUs
                // to.
                Err(_) if !cgroup_of(step).exists() => continue,
                Err(error) => {
                    report.operations.add(Operation::of(step), false);
                    let (path, error) = (cgroup_of(step).display(), chain(&error));
                    tracing::warn!(%path, error, "failed to apply a cpuset; will retry");
                    carried.failed.insert(uid_of(step).clone(), error);
                }
                Ok(()) => {
                    report.operations.add(Operation::of(step), true);
                    carried.note(step);
                    self.note(view, step);
                    trace(Trace::Done(step));
                }
            }
        }
        carried
    }

    /// Whether a grant has waited long enough for another pod to leave its CPUs. It is then made
    /// nevertheless, and the overlap is counted.
    fn has_waited_long(&mut self, step: &Step) -> bool {
        let (Step::Grant { uid, .. }, Some(granted)) = (step, self.mode.granted_mut()) else {
            return false;
        };
        let waited = granted.waits.entry(uid.clone()).or_default();
        *waited += 1;
        *waited > GRANT_WAITS
    }

    /// Records the result of a step.
    fn note(&mut self, view: &View, step: &Step) {
        let written = &self.record.checkpoint.written;
        let Some(granted) = self.mode.granted_mut() else { return };
        match step {
            Step::Write { path, effective, .. } => {
                if let (Some((_, inode)), Some(was)) = (view.seen.get(path), written.get(path)) {
                    let (inode, cpus, original) = (*inode, effective.clone(), was.original.clone());
                    granted.established.insert(path.clone(), Established { inode, cpus, original });
                }
            }
            Step::Grant { uid, .. } => drop(granted.waits.remove(uid)),
            Step::Verify { .. } | Step::Release { .. } => {}
        }
    }

    fn save(&mut self, report: &mut PassReport) -> Result<()> {
        self.record.save(&self.config.node, self.tree.mount(), &mut report.operations)
    }

    /// Whether no new checkpoint is needed: the steps grant nothing, and all cgroups they write are
    /// recorded on disk.
    fn needs_no_record(&self, steps: &[Step]) -> bool {
        steps.iter().all(|step| match step {
            Step::Write { path, .. } => self.record.has_saved(path),
            Step::Grant { .. } => false,
            Step::Verify { .. } | Step::Release { .. } => true,
        })
    }

    /// Records the original CPUs of the cgroups about to be written, and the nested cpusets that
    /// will be narrowed.
    fn record_originals(&mut self, view: &View, steps: &[Step]) {
        let Some(granted) = self.mode.granted() else { return };
        let PinningCheckpoint { written, narrowed, .. } = &mut self.record.checkpoint;
        written
            .retain(|path, was| view.seen.get(path).is_some_and(|(_, inode)| *inode == was.inode));
        narrowed.retain(|path, was| cgroupfs::inode(path).is_ok_and(|inode| inode == was.inode));
        if view.hierarchy.version == CgroupVersion::V1 {
            for (path, cpus) in steps.iter().filter_map(write) {
                nested::foresee(path, cpus, narrowed);
            }
        }
        let to_write: BTreeSet<&Path> =
            steps.iter().filter_map(write).map(|(path, _)| path).collect();
        for pod in &view.pods {
            for cgroup in pod.cgroups.iter().filter(|cgroup| to_write.contains(&*cgroup.path)) {
                let Some((_, inode)) = view.seen.get(&cgroup.path) else { continue };
                if !written.contains_key(&cgroup.path) {
                    let original = granted.original(view, pod, cgroup, written);
                    written.insert(cgroup.path.clone(), WrittenCgroup { inode: *inode, original });
                }
            }
        }
    }

    fn note_pins(&mut self, plan: &Plan, pods: &PodIndex, report: &mut PassReport) {
        let mut pins = self.pins(plan, pods);
        pins.retain(|uid, _| self.record.committed.held.contains_key(uid.as_str()));
        let before = std::mem::replace(&mut self.record.checkpoint.pins, pins);
        for (uid, pin) in &self.record.checkpoint.pins {
            if before.get(uid).is_none_or(|old| old.cpus != pin.cpus) {
                let Pin { namespace, pod, cpu_qos, bind_policy, cpus, .. } = pin.clone();
                tracing::info!(namespace, pod, cpu_qos, cpus, "assigned exclusive CPUs");
                report.decisions.push(decision(
                    uid,
                    pods,
                    PodOutcome::Pinned { cpu_qos, bind_policy, cpus },
                ));
            }
        }
        let lives_on = |uid: &str| pods.pod(uid).is_some_and(|pod| !has_ended(pod));
        let gone = before
            .keys()
            .filter(|uid| !self.record.checkpoint.pins.contains_key(*uid) && lives_on(uid));
        report.decisions.extend(gone.map(|uid| decision(uid, pods, PodOutcome::Released)));
    }

    /// The pods that should have exclusive CPUs, by UID.
    pub(super) fn pins(&self, plan: &Plan, pods: &PodIndex) -> BTreeMap<String, Pin> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let own = plan.placements.iter().filter(|(_, placement)| placement.class.is_exclusive());
        own.map(|(uid, placement)| {
            let (namespace, pod) = names(uid, pods);
            let cpus = placement.cpus.to_string();
            let old = self.record.checkpoint.pins.get(&**uid).filter(|old| old.cpus == cpus);
            let since = old.map_or(now, |old| old.since);
            let bind_policy =
                placement.spec.map(|spec| spec.bind.policy.to_string()).unwrap_or_default();
            let cpu_qos = class_name(placement.class).to_owned();
            (uid.to_string(), Pin { namespace, pod, cpu_qos, bind_policy, cpus, since })
        })
        .collect()
    }

    /// Logs and counts the changes of another writer.
    fn report_rewritten(&self, work: &Work, pods: &PodIndex, report: &mut PassReport) {
        let is_repaired = |uid: &Uid| work.stepped_back.iter().all(|(left, _)| left != uid);
        if !matches!(self.mode, PinnerMode::Enforcing { .. }) {
            return;
        }
        for (uid, cgroups) in work.rewritten.iter().filter(|(uid, _)| is_repaired(uid)) {
            for (path, found) in cgroups {
                let meant = work
                    .planned
                    .plan
                    .placements
                    .get(uid)
                    .map(|placement| placement.cpus.to_string());
                let path = path.display();
                tracing::warn!(%path, %found, meant, "another program changed a cpuset; restored it");
                report.operations.add(Operation::Repair, true);
            }
            report.decisions.push(decision(uid, pods, PodOutcome::Repaired(cgroups.len())));
        }
    }
}

impl Granted {
    /// Records the cgroups of these pods as matching the plan.
    fn establish(
        &mut self,
        view: &View,
        plan: &Plan,
        written: &BTreeMap<PathBuf, WrittenCgroup>,
        is_enforced: impl Fn(&Uid) -> bool,
    ) {
        self.ceiling = view.hierarchy.ceiling.clone();
        self.established
            .retain(|path, was| view.seen.get(path).is_some_and(|(_, now)| *now == was.inode));
        self.waits.retain(|uid, _| plan.placements.contains_key(uid));
        for pod in view.pods.iter().filter(|pod| is_enforced(&pod.uid)) {
            let Some(placement) = plan.placements.get(&pod.uid) else { continue };
            for cgroup in pod.cgroups.iter().filter(|cgroup| cgroup.ours) {
                if let Some((_, inode)) = view.seen.get(&cgroup.path) {
                    let original = self.original(view, pod, cgroup, written);
                    let cpus = placement.cpus.clone();
                    self.established
                        .insert(cgroup.path.clone(), Established { inode: *inode, cpus, original });
                }
            }
        }
    }

    /// Original CPUs of a cgroup, before the first write here. A cgroup that already had its CPUs
    /// may have been rewritten by another writer meanwhile: then the first value seen counts.
    fn original(
        &self,
        view: &View,
        pod: &PodCgroups,
        cgroup: &CpusetCgroup,
        written: &BTreeMap<PathBuf, WrittenCgroup>,
    ) -> String {
        let inode = view.seen.get(&cgroup.path).map(|(_, inode)| *inode);
        if let Some(known) =
            self.established.get(&cgroup.path).filter(|known| Some(known.inode) == inode)
        {
            return known.original.clone();
        }
        let inherited = inherited(&view.hierarchy, pod, cgroup).and_then(|from| written.get(from));
        inherited.map_or_else(|| cgroup.configured.to_string(), |from| from.original.clone())
    }
}

fn rejections(plan: &Plan, pods: &PodIndex) -> BTreeMap<String, Rejection> {
    let of = |(uid, reason): (&Uid, &Reason)| {
        let (namespace, pod) = names(uid, pods);
        (uid.to_string(), Rejection { namespace, pod, reason: reason.to_string() })
    };
    plan.rejections.iter().map(of).collect()
}

/// Result of carrying out the steps.
struct Carried {
    /// Committed grants.
    held: BTreeMap<Uid, Holding>,
    /// Pods for which a step failed, with the error.
    failed: BTreeMap<Uid, String>,
}

impl Carried {
    fn note(&mut self, step: &Step) {
        match step {
            Step::Release { uid, cpus } => {
                if let Some(held) = self.held.get_mut(uid) {
                    held.cpus = held.cpus.difference(cpus);
                    if held.cpus.is_empty() {
                        self.held.remove(uid);
                    }
                }
            }
            Step::Grant { uid, holding } => drop(self.held.insert(uid.clone(), holding.clone())),
            Step::Write { .. } | Step::Verify { .. } => {}
        }
    }

    /// Whether a step depends on a failed one.
    fn must_wait(&self, step: &Step, view: &View, plan: &Plan, version: CgroupVersion) -> bool {
        if self.failed.is_empty() {
            return false;
        }
        self.failed.contains_key(uid_of(step))
            || match step {
                Step::Write { uid, path, effective, .. } => {
                    self.enters_held(uid, path, effective, plan, version)
                }
                Step::Grant { uid, holding } => self.is_occupied(uid, holding, view, plan, version),
                Step::Verify { .. } | Step::Release { .. } => false,
            }
    }

    /// Whether a pod would move onto CPUs still held by a pod that could not leave them.
    fn enters_held(
        &self,
        uid: &Uid,
        path: &Path,
        cpus: &CpuSet,
        plan: &Plan,
        version: CgroupVersion,
    ) -> bool {
        let Some(class) = plan.placements.get(uid).map(|placement| placement.class) else {
            return false;
        };
        let new = cpus.difference(&effective(path, version));
        let others = self
            .held
            .iter()
            .filter(|(other, held)| *other != uid && !class.may_share_with(held.class));
        others.into_iter().any(|(_, held)| !held.cpus.is_disjoint(&new))
    }

    /// Whether a pod with a failed step still occupies these CPUs.
    fn is_occupied(
        &self,
        uid: &Uid,
        own: &Holding,
        view: &View,
        plan: &Plan,
        version: CgroupVersion,
    ) -> bool {
        let may_stay = |other: &Uid| {
            plan.placements.get(other).is_some_and(|p| p.class.may_share_with(own.class))
        };
        let failed = |pod: &&PodCgroups| {
            pod.uid != *uid && self.failed.contains_key(&pod.uid) && !may_stay(&pod.uid)
        };
        let cgroups = view.pods.iter().filter(failed).flat_map(|pod| &pod.cgroups);
        cgroups.into_iter().any(|cgroup| !effective(&cgroup.path, version).is_disjoint(&own.cpus))
    }
}

fn effective(path: &Path, version: CgroupVersion) -> CpuSet {
    // A removed cgroup has no processes.
    let read = cgroupfs::cpuset::read(path, version).ok().flatten();
    read.map(|cpuset| cpuset.effective).unwrap_or_default()
}

/// Reports the pods that are paused from now on.
fn report_stepped_back(work: &Work, pods: &PodIndex, report: &mut PassReport) {
    for (uid, pause) in &work.stepped_back {
        let (cause, minutes) = (pause.cause, pause.pause.minutes());
        let decision = decision(uid, pods, PodOutcome::SteppedBack { cause, minutes });
        let (namespace, pod) = (&decision.namespace, &decision.pod);
        tracing::warn!(namespace, pod, %cause, minutes, "paused exclusive CPUs of a pod");
        report.decisions.push(decision);
    }
}

fn best_effort(plan: &Plan) -> BTreeSet<String> {
    let pods = plan.placements.iter().filter(|(_, placement)| placement.class == Class::BestEffort);
    pods.map(|(uid, _)| uid.to_string()).collect()
}

/// The cgroup from which an unwritten cgroup got its CPUs: on v1 the runtime copies the parent's.
fn inherited<'a>(
    hierarchy: &CpusetHierarchy,
    pod: &'a PodCgroups,
    cgroup: &CpusetCgroup,
) -> Option<&'a Path> {
    let parent = &pod.cgroups[cgroup.parent?];
    let copied = hierarchy.version == CgroupVersion::V1 && parent.configured == cgroup.configured;
    copied.then_some(&*parent.path)
}

fn cgroup_of(step: &Step) -> &Path {
    match step {
        Step::Write { path, .. } | Step::Verify { path, .. } => path,
        Step::Release { .. } | Step::Grant { .. } => Path::new(""),
    }
}

fn uid_of(step: &Step) -> &Uid {
    match step {
        Step::Write { uid, .. }
        | Step::Verify { uid, .. }
        | Step::Release { uid, .. }
        | Step::Grant { uid, .. } => uid,
    }
}

/// The cgroup that a step writes, with the CPUs.
fn write(step: &Step) -> Option<(&Path, &CpuSet)> {
    match step {
        Step::Write { path, cpus, .. } => Some((path, cpus)),
        Step::Verify { .. } | Step::Release { .. } | Step::Grant { .. } => None,
    }
}
