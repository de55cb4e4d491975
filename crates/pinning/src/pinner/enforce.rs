//! A transition on the kernel: log the intent, carry the steps out, commit; and repair what others undo.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cgroupfs::{node, subdirectories};
use placement::{Cgroup, Class, Hierarchy, Plan, PodCgroups, Step, Transition, Version, write_steps};
use pods::PodIndex;

use super::inputs::{decision, names};
use super::{Pinner, chain};
use crate::carry_out::carry_out;
use crate::checkpoint::{Checkpoint, Held, Pin, Touched, class_name};
use crate::claims::has_ended;
use crate::decision::{Decision, Verdict};
use crate::report::{Operation, Report, Standing, Trace};
use crate::tree::View;
use crate::{Error, Result, drain};

/// A younger cgroup's cpuset may still be written by the runtime that made it.
const SETTLED: Duration = Duration::from_secs(5);

impl Pinner {
    /// Brings the plan about.
    pub(super) fn enforce(
        &mut self,
        view: &View,
        plan: &Plan,
        pods: &PodIndex,
        report: &mut Report,
        trace: &mut dyn FnMut(Trace<'_>),
    ) -> Standing {
        let repaired = self.repaired(view, plan, pods, report);
        if self.repairs.repaired(repaired, Instant::now()) {
            return self.step_back("somebody else keeps rewriting cpusets that were written here".to_owned());
        }
        match self.transition(view, plan, pods, report, trace) {
            Ok(()) => Standing::Enforcing,
            // Normal: the next pass sees what there is by then.
            Err(Error::Overtaken(path)) => {
                tracing::debug!(path = %path.display(), "a container came while its pod's cpuset was written");
                Standing::Enforcing
            }
            Err(error @ (Error::State { .. } | Error::Steps(_))) => Standing::Observing(chain(&error)),
            Err(error) => {
                let told = chain(&error);
                tracing::warn!(error = told, "a cpuset could not be brought about; it is tried again");
                if self.repairs.failed(Instant::now()) {
                    return self.step_back(format!("cpusets cannot be brought about: {told}"));
                }
                Standing::Enforcing
            }
        }
    }

    fn transition(
        &mut self,
        view: &View,
        plan: &Plan,
        pods: &PodIndex,
        report: &mut Report,
        trace: &mut dyn FnMut(Trace<'_>),
    ) -> Result<()> {
        let outcome = plan.outcome();
        let (hierarchy, held) = (&view.hierarchy, &self.committed.held);
        let steps = write_steps(&Transition { hierarchy, pods: &view.pods, held, placements: &plan.placements })?;
        let best_effort = best_effort(plan);
        if !steps.is_empty() || outcome != self.committed || best_effort != self.checkpoint.best_effort {
            self.checkpoint.best_effort = best_effort;
            self.planned = outcome.clone();
            self.checkpoint.intent = Some(Held::from(&outcome));
            self.touch(view, &steps);
            self.save(report)?;
            trace(Trace::Intent(&steps));
            for step in &steps {
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
            self.checkpoint.committed = Held::from(&outcome);
            self.checkpoint.intent = None;
            self.committed = outcome;
            self.save(report)?;
            trace(Trace::Committed);
        }
        self.establish(view, plan);
        Ok(())
    }

    fn save(&mut self, report: &mut Report) -> Result<()> {
        self.checkpoint.boot_id = node::boot_id(&self.config.proc_root);
        let written = self.checkpoint.write(&self.config.state_dir);
        report.operations.add(Operation::Checkpoint, written.is_ok());
        written
    }

    /// Remembers what the cgroups that are about to be written read now.
    fn touch(&mut self, view: &View, steps: &[Step]) {
        let touched = &mut self.checkpoint.touched;
        touched.retain(|path, was| view.seen.get(path).is_some_and(|(_, inode)| *inode == was.inode));
        for pod in &view.pods {
            for cgroup in pod.cgroups.iter().filter(|cgroup| steps.iter().any(|step| writes(step, &cgroup.path))) {
                let Some((_, inode)) = view.seen.get(&cgroup.path) else { continue };
                if !touched.contains_key(&cgroup.path) {
                    let inherited = inherited(&view.hierarchy, pod, cgroup).and_then(|from| touched.get(from));
                    let before = inherited.map_or_else(|| cgroup.configured.to_string(), |from| from.before.clone());
                    touched.insert(cgroup.path.clone(), Touched { inode: *inode, before });
                }
            }
        }
    }

    fn note_pins(&mut self, plan: &Plan, pods: &PodIndex, report: &mut Report) {
        let pins = self.pins(plan, pods);
        let before = std::mem::replace(&mut self.checkpoint.pins, pins);
        for (uid, pin) in &self.checkpoint.pins {
            if before.get(uid).is_none_or(|old| old.cpus != pin.cpus) {
                let Pin { namespace, pod, cpu_qos, bind_policy, cpus, .. } = pin.clone();
                tracing::info!(namespace, pod, cpu_qos, cpus, "has CPUs of its own");
                report.decisions.push(decision(uid, pods, Verdict::Pinned { cpu_qos, bind_policy, cpus }));
            }
        }
        let lives_on = |uid: &str| pods.pod(uid).is_some_and(|pod| !has_ended(pod));
        let gone = before.keys().filter(|uid| !self.checkpoint.pins.contains_key(*uid) && lives_on(uid));
        report.decisions.extend(gone.map(|uid| decision(uid, pods, Verdict::Released)));
    }

    /// The pods that are to have CPUs of their own, by UID.
    pub(super) fn pins(&self, plan: &Plan, pods: &PodIndex) -> BTreeMap<String, Pin> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let own = plan.placements.iter().filter(|(_, placement)| placement.class.is_exclusive());
        own.map(|(uid, placement)| {
            let (namespace, pod) = names(uid, pods);
            let cpus = placement.cpus.to_string();
            let old = self.checkpoint.pins.get(&**uid).filter(|old| old.cpus == cpus);
            let since = old.map_or(now, |old| old.since);
            let bind_policy = placement.spec.map(|spec| spec.bind.policy.to_string()).unwrap_or_default();
            let cpu_qos = class_name(placement.class).to_owned();
            (uid.to_string(), Pin { namespace, pod, cpu_qos, bind_policy, cpus, since })
        })
        .collect()
    }

    /// Cgroups that were as planned after the last pass and are not now, with nothing but another writer to explain it.
    fn repaired(&self, view: &View, plan: &Plan, pods: &PodIndex, report: &mut Report) -> Vec<PathBuf> {
        let mut repaired = Vec::new();
        if view.hierarchy.ceiling != self.ceiling {
            return repaired;
        }
        for pod in &view.pods {
            let Some(placement) = plan.placements.get(&pod.uid) else { continue };
            let before = repaired.len();
            for cgroup in pod.cgroups.iter().filter(|cgroup| cgroup.ours && cgroup.effective != placement.cpus) {
                let Some((inode, was)) = self.established.get(&cgroup.path) else { continue };
                let same = view.seen.get(&cgroup.path).is_some_and(|(_, now)| now == inode);
                if same && *was == placement.cpus {
                    let (path, found) = (cgroup.path.display(), &cgroup.effective);
                    tracing::warn!(%path, %found, meant = %was, "somebody else rewrote a cpuset; it is written again");
                    report.operations.add(Operation::Repair, true);
                    repaired.push(cgroup.path.clone());
                }
            }
            if repaired.len() > before {
                report.decisions.push(decision(&pod.uid, pods, Verdict::Repaired(repaired.len() - before)));
            }
        }
        repaired
    }

    /// Everything is as planned now.
    fn establish(&mut self, view: &View, plan: &Plan) {
        self.ceiling = view.hierarchy.ceiling.clone();
        self.established.clear();
        for pod in &view.pods {
            let Some(placement) = plan.placements.get(&pod.uid) else { continue };
            for cgroup in pod.cgroups.iter().filter(|cgroup| cgroup.ours) {
                if let Some((_, inode)) = view.seen.get(&cgroup.path) {
                    self.established.insert(cgroup.path.clone(), (*inode, placement.cpus.clone()));
                }
            }
        }
    }

    /// Takes everything back, as `cpuwarden drain` wished.
    pub(super) fn drain(&mut self, view: &View, report: &mut Report) {
        let drained = drain::give_back(view, Some(&self.checkpoint), self.tree.version());
        for _ in 0..drained.written {
            report.operations.add(Operation::Drain, true);
        }
        for error in &drained.errors {
            tracing::error!(error, "not given back");
            report.operations.add(Operation::Drain, false);
        }
        report.decisions.extend(std::mem::take(&mut self.checkpoint.pins).into_iter().map(|(uid, pin)| {
            let Pin { namespace, pod, .. } = pin;
            Decision { uid, namespace, pod, verdict: Verdict::Released }
        }));
        if drained.errors.is_empty()
            && let Err(error) = Checkpoint::remove(&self.config.state_dir)
        {
            tracing::error!(error = chain(&error), "the checkpoint stays");
        }
        self.checkpoint = Checkpoint::default();
        self.committed = placement::Current::default();
        self.established.clear();
    }
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

fn writes(step: &Step, cgroup: &Path) -> bool {
    matches!(step, Step::Write { path, .. } if path == cgroup)
}
