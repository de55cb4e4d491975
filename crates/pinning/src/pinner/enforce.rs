//! Carries a pass out on the kernel: log the intent, write and read back, commit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cgroupfs::{node, subdirectories};
use placement::{Cgroup, Class, Hierarchy, Plan, PodCgroups, Reason, Step, Uid, Version};
use pods::PodIndex;

use super::decide::Work;
use super::inputs::{decision, names};
use super::mode::{Established, Granted, Mode, Why};
use super::{Pinner, chain};
use crate::carry_out::carry_out;
use crate::checkpoint::{Checkpoint, Held, Pin, Rejection, Touched, class_name};
use crate::claims::has_ended;
use crate::decision::{Decision, Verdict};
use crate::drain::Scope;
use crate::owner::CpuManagerState;
use crate::report::{Operation, Report, Standing, Trace};
use crate::state_dir::DrainWish;
use crate::tree::View;
use crate::{Error, Result, drain};

/// A younger cgroup's cpuset may still be written by the runtime that made it.
const SETTLED: Duration = Duration::from_secs(5);

impl Pinner {
    /// Brings the work of a pass about. What fails counts in the mode that follows.
    pub(super) fn carry_out(
        &mut self,
        view: &View,
        work: &Work,
        pods: &PodIndex,
        report: &mut Report,
        trace: &mut dyn FnMut(Trace<'_>),
    ) {
        self.report_rewritten(work, pods, report);
        if !matches!(self.mode, Mode::Enforcing { .. }) {
            return;
        }
        match self.transition(view, work, pods, report, trace) {
            Ok(()) => {}
            // Normal: the next pass sees what there is by then.
            Err(Error::Overtaken(path)) => {
                tracing::debug!(path = %path.display(), "a container came while its pod's cpuset was written");
            }
            Err(error @ Error::State { .. }) => report.standing = Standing::Observing(chain(&error)),
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(error, "failed to apply a cpuset; will retry");
                self.count_failure(error);
                report.standing = self.mode.standing();
            }
        }
    }

    fn count_failure(&mut self, error: String) {
        if let Mode::Enforcing { granted, .. } = &mut self.mode
            && granted.repairs.failed(Instant::now())
        {
            self.mode = Mode::SteppedBack { why: Why::Failing(error) };
        }
    }

    fn transition(
        &mut self,
        view: &View,
        work: &Work,
        pods: &PodIndex,
        report: &mut Report,
        trace: &mut dyn FnMut(Trace<'_>),
    ) -> Result<()> {
        let (plan, steps) = (&work.planned.plan, &work.steps);
        let outcome = plan.outcome();
        let best_effort = best_effort(plan);
        let rejections = rejections(plan, pods);
        let is_recorded = outcome == self.record.committed
            && best_effort == self.record.checkpoint.best_effort
            && rejections == self.record.checkpoint.rejections;
        if !steps.is_empty() || !is_recorded {
            self.record.checkpoint.best_effort = best_effort;
            self.record.checkpoint.rejections = rejections;
            self.record.planned = outcome.clone();
            self.record.checkpoint.intent = Some(Held::from(&outcome));
            self.touch(view, steps);
            self.save(report)?;
            trace(Trace::Intent(steps));
            for step in steps {
                match carry_out(step, self.tree.version()) {
                    // In what is gone there is nobody to keep off, and nobody to grant to.
                    Err(_) if !cgroup_of(step).exists() => continue,
                    Err(error) if error.is_busy() && is_overtaken(view, step) => {
                        return Err(Error::Overtaken(cgroup_of(step).to_owned()));
                    }
                    done => {
                        report.operations.add(Operation::of(step), done.is_ok());
                        done?;
                    }
                }
                trace(Trace::Done(step));
            }
            self.note_pins(plan, pods, report);
            self.record.checkpoint.committed = Held::from(&outcome);
            self.record.checkpoint.intent = None;
            self.record.committed = outcome;
            self.save(report)?;
            trace(Trace::Committed);
        }
        if let Mode::Enforcing { granted, .. } = &mut self.mode {
            granted.establish(view, plan, &self.record.checkpoint.touched);
        }
        Ok(())
    }

    fn save(&mut self, report: &mut Report) -> Result<()> {
        self.record.checkpoint.boot_id = node::boot_id(&self.config.proc_root);
        let written = self.record.checkpoint.write(&self.config.state_dir, self.tree.mount());
        report.operations.add(Operation::Checkpoint, written.is_ok());
        written
    }

    /// Remembers what the cgroups that are about to be written read now.
    fn touch(&mut self, view: &View, steps: &[Step]) {
        let no_grants = Granted::default();
        let granted = if let Mode::Enforcing { granted, .. } = &self.mode { granted } else { &no_grants };
        let touched = &mut self.record.checkpoint.touched;
        touched.retain(|path, was| view.seen.get(path).is_some_and(|(_, inode)| *inode == was.inode));
        let written: BTreeSet<&Path> = steps.iter().filter_map(written).collect();
        for pod in &view.pods {
            for cgroup in pod.cgroups.iter().filter(|cgroup| written.contains(&*cgroup.path)) {
                let Some((_, inode)) = view.seen.get(&cgroup.path) else { continue };
                if !touched.contains_key(&cgroup.path) {
                    let before = granted.original(view, pod, cgroup, touched);
                    touched.insert(cgroup.path.clone(), Touched { inode: *inode, before });
                }
            }
        }
    }

    fn note_pins(&mut self, plan: &Plan, pods: &PodIndex, report: &mut Report) {
        let pins = self.pins(plan, pods);
        let before = std::mem::replace(&mut self.record.checkpoint.pins, pins);
        for (uid, pin) in &self.record.checkpoint.pins {
            if before.get(uid).is_none_or(|old| old.cpus != pin.cpus) {
                let Pin { namespace, pod, cpu_qos, bind_policy, cpus, .. } = pin.clone();
                tracing::info!(namespace, pod, cpu_qos, cpus, "has CPUs of its own");
                report.decisions.push(decision(uid, pods, Verdict::Pinned { cpu_qos, bind_policy, cpus }));
            }
        }
        let lives_on = |uid: &str| pods.pod(uid).is_some_and(|pod| !has_ended(pod));
        let gone = before.keys().filter(|uid| !self.record.checkpoint.pins.contains_key(*uid) && lives_on(uid));
        report.decisions.extend(gone.map(|uid| decision(uid, pods, Verdict::Released)));
    }

    /// The pods that are to have CPUs of their own, by UID.
    pub(super) fn pins(&self, plan: &Plan, pods: &PodIndex) -> BTreeMap<String, Pin> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let own = plan.placements.iter().filter(|(_, placement)| placement.class.is_exclusive());
        own.map(|(uid, placement)| {
            let (namespace, pod) = names(uid, pods);
            let cpus = placement.cpus.to_string();
            let old = self.record.checkpoint.pins.get(&**uid).filter(|old| old.cpus == cpus);
            let since = old.map_or(now, |old| old.since);
            let bind_policy = placement.spec.map(|spec| spec.bind.policy.to_string()).unwrap_or_default();
            let cpu_qos = class_name(placement.class).to_owned();
            (uid.to_string(), Pin { namespace, pod, cpu_qos, bind_policy, cpus, since })
        })
        .collect()
    }

    /// Logs and counts what another writer has changed.
    fn report_rewritten(&self, work: &Work, pods: &PodIndex, report: &mut Report) {
        for (uid, cgroups) in &work.rewritten {
            for (path, found) in cgroups {
                let meant = work.planned.plan.placements.get(uid).map(|placement| placement.cpus.to_string());
                let path = path.display();
                tracing::warn!(%path, %found, meant, "somebody else rewrote a cpuset; it is written again");
                report.operations.add(Operation::Repair, true);
            }
            report.decisions.push(decision(uid, pods, Verdict::Repaired(cgroups.len())));
        }
    }

    /// Takes everything back, as `cpuwarden drain` wished.
    pub(super) fn drain(&mut self, view: &View, pods: &PodIndex, report: &mut Report) {
        let kubelets = CpuManagerState::read(&self.config.cpu_manager_state).map(|state| state.exclusive());
        let mut kubelets = kubelets.unwrap_or_default();
        kubelets.pods.extend(self.holders(pods));
        let checkpoint = &self.record.checkpoint;
        let drained = drain::give_back(&self.tree, view, checkpoint, Scope::Touched, &kubelets);
        for _ in 0..drained.written {
            report.operations.add(Operation::Drain, true);
        }
        for error in &drained.errors {
            tracing::error!(error, "not given back");
            report.operations.add(Operation::Drain, false);
        }
        report.decisions.extend(std::mem::take(&mut self.record.checkpoint.pins).into_iter().map(|(uid, pin)| {
            let Pin { namespace, pod, .. } = pin;
            Decision { uid, namespace, pod, verdict: Verdict::Released }
        }));
        if drained.errors.is_empty()
            && let Err(error) = Checkpoint::remove(&self.config.state_dir)
        {
            tracing::error!(error = chain(&error), "the checkpoint stays");
        }
        DrainWish::of(&self.config.state_dir).answer(&drained);
        self.record.clear();
    }
}

impl Granted {
    /// Everything is as planned now.
    fn establish(&mut self, view: &View, plan: &Plan, touched: &BTreeMap<PathBuf, Touched>) {
        self.ceiling = view.hierarchy.ceiling.clone();
        let mut established = BTreeMap::new();
        for pod in &view.pods {
            let Some(placement) = plan.placements.get(&pod.uid) else { continue };
            for cgroup in pod.cgroups.iter().filter(|cgroup| cgroup.ours) {
                if let Some((_, inode)) = view.seen.get(&cgroup.path) {
                    let original = self.original(view, pod, cgroup, touched);
                    let cpus = placement.cpus.clone();
                    established.insert(cgroup.path.clone(), Established { inode: *inode, cpus, original });
                }
            }
        }
        self.established = established;
    }

    /// What a cgroup read before it was first written here. One that has had its CPUs without a write may have been
    /// rewritten by somebody else meanwhile: then what it read at first.
    fn original(&self, view: &View, pod: &PodCgroups, cgroup: &Cgroup, touched: &BTreeMap<PathBuf, Touched>) -> String {
        let inode = view.seen.get(&cgroup.path).map(|(_, inode)| *inode);
        if let Some(known) = self.established.get(&cgroup.path).filter(|known| Some(known.inode) == inode) {
            return known.original.clone();
        }
        let inherited = inherited(&view.hierarchy, pod, cgroup).and_then(|from| touched.get(from));
        inherited.map_or_else(|| cgroup.configured.to_string(), |from| from.before.clone())
    }
}

fn rejections(plan: &Plan, pods: &PodIndex) -> BTreeMap<String, Rejection> {
    let of = |(uid, reason): (&Uid, &Reason)| {
        let (namespace, pod) = names(uid, pods);
        (uid.to_string(), Rejection { namespace, pod, reason: reason.to_string() })
    };
    plan.refusals.iter().map(of).collect()
}

fn best_effort(plan: &Plan) -> BTreeSet<String> {
    let pods = plan.placements.iter().filter(|(_, placement)| placement.class == Class::BestEffort);
    pods.map(|(uid, _)| uid.to_string()).collect()
}

/// Where a cgroup that has never been written has its CPUs from: a v1 runtime copies those of the parent.
fn inherited<'a>(hierarchy: &Hierarchy, pod: &'a PodCgroups, cgroup: &Cgroup) -> Option<&'a Path> {
    let parent = &pod.cgroups[cgroup.parent?];
    let copied = hierarchy.version == Version::V1 && parent.configured == cgroup.configured;
    copied.then_some(&*parent.path)
}

/// Has a runtime come between the look and the write? v1 refuses to shrink a cpuset below those of its children (EBUSY),
/// and a new one has all CPUs that its parent had at that moment.
fn is_overtaken(view: &View, step: &Step) -> bool {
    let parent = cgroup_of(step);
    let is_young = |name: String| match view.seen.get(&parent.join(name)) {
        Some((since, _)) => since.elapsed() < SETTLED,
        None => true,
    };
    subdirectories(parent).is_ok_and(|children| children.into_iter().any(|child| is_young(child.name)))
}

fn cgroup_of(step: &Step) -> &Path {
    match step {
        Step::Write { path, .. } | Step::Verify { path, .. } => path,
        Step::Release { .. } | Step::Grant { .. } => Path::new(""),
    }
}

fn written(step: &Step) -> Option<&Path> {
    match step {
        Step::Write { path, .. } => Some(path),
        Step::Verify { .. } | Step::Release { .. } | Step::Grant { .. } => None,
    }
}
