//! Publication of the plans, from which new containers get their CPUs, and the record of what those
//! containers had before.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use api::Pin;
use kernel_text::CgroupVersion;
use placement::{Plan, PodCgroups, Uid};
use state_dir::WrittenCgroup;

use super::decide::Work;
use super::mode::PinnerMode;
use super::{Pinner, PinnerConfig, chain};
use crate::admission::{Admission, AdmissionState, InEffect};
use crate::report::{PassReport, PinningStatus};
use crate::status_file;
use crate::tree::View;

impl Pinner {
    /// Descriptor that becomes readable when CPUs were reserved for a new container.
    pub(crate) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.config.admission.as_ref().map(Admission::wake_fd)
    }

    /// Whether CPUs were reserved for a new container since the last call.
    pub(crate) fn take_wake(&self) -> bool {
        self.config.admission.as_ref().is_some_and(Admission::take_wake)
    }

    /// Whether a pass should wait for the runtime's report of what runs.
    pub(crate) fn awaits_report(&self) -> bool {
        self.config.admission.as_ref().is_some_and(Admission::awaits_report)
    }

    /// Publishes a plan that is about to be carried out.
    pub(super) fn publish(
        &mut self,
        state: &mut AdmissionState,
        view: &View,
        work: &Work,
        now: Instant,
    ) {
        let placements = &work.planned.plan.placements;
        let confined = view.pods.iter().filter_map(|pod| {
            let before = &pod.cgroups.first()?.effective;
            Some((pod.uid.clone(), before.intersection(&placements.get(&pod.uid)?.cpus)))
        });
        let effect = InEffect {
            machine: Arc::clone(&self.machine),
            rules: Arc::clone(&self.rules),
            planned: work.planned.clone(),
            version: view.hierarchy.version,
            held: self.record.committed.held.clone(),
            confined: confined.collect(),
        };
        let seen: BTreeSet<&Uid> = view.pods.iter().map(|pod| &pod.uid).collect();
        state.publish(effect, &seen, now);
        self.note_placed(view, state.placed());
    }

    /// Publishes the results of the writes.
    pub(super) fn publish_results(&self, view: &View, plan: &Plan) {
        let (Some(admission), PinnerMode::Enforcing { granted, .. }) =
            (&self.config.admission, &self.mode)
        else {
            return;
        };
        let pods: BTreeMap<&Uid, &PodCgroups> =
            view.pods.iter().map(|pod| (&pod.uid, pod)).collect();
        let confined = |uid: &Uid| {
            let (cgroup, placement) = (pods.get(uid)?.cgroups.first()?, plan.placements.get(uid)?);
            let established = granted.established.get(&cgroup.path)?;
            (established.cpus == placement.cpus).then(|| placement.cpus.clone())
        };
        admission.lock().apply_results(&self.record.committed.held, confined);
    }

    /// Ends the placement of containers before a drain, which restores all that were placed.
    pub(super) fn close_admission(&mut self, view: &View) {
        let Some(admission) = self.config.admission.clone() else { return };
        let mut state = admission.lock();
        state.suspend();
        self.note_placed(view, state.placed());
    }

    /// Publishes that pinning is not in effect, if it is not.
    pub(super) fn publish_status(&self, status: &PinningStatus) {
        if let (Some(admission), PinningStatus::Observing(_)) = (&self.config.admission, status) {
            admission.lock().suspend();
        }
    }

    /// Writes the status and the plan for other processes, if they have changed.
    pub(super) fn write_status(&mut self, report: &PassReport) {
        let of = |pin: &Pin| format!("{}/{} {} {}", pin.namespace, pin.pod, pin.cpu_qos, pin.cpus);
        let planned: Vec<String> = report.pins.iter().map(of).collect();
        let (status, node) = (&report.status, &self.config.node);
        if self.last.status.as_ref().is_some_and(|last| (&last.0, &last.1) == (status, &planned)) {
            return;
        }
        if let Err(error) = status_file::write(status, &planned, &node.state_dir, &node.proc_root) {
            tracing::debug!(error = chain(&error), "failed to write the status of pinning");
        }
        self.last.status = Some((status.clone(), planned));
    }

    /// Deletes the status: no agent runs from now on.
    pub(crate) fn remove_status(config: &PinnerConfig) {
        if let Err(error) = status_file::remove(&config.node.state_dir) {
            tracing::debug!(error = chain(&error), "failed to delete the status of pinning");
        }
    }

    /// Records the CPUs that containers placed at their creation would have had, for a drain.
    fn note_placed(&mut self, view: &View, placed: &BTreeSet<String>) {
        for pod in &view.pods {
            for cgroup in pod.cgroups.iter().filter(|one| one.ours && one.parent.is_some()) {
                let is_placed = id(&cgroup.path).is_some_and(|id| placed.contains(id));
                let written = &mut self.record.checkpoint.written;
                if !is_placed || written.contains_key(&cgroup.path) {
                    continue;
                }
                let Some((_, inode)) = view.seen.get(&cgroup.path) else { continue };
                let above = pod.cgroups.first().filter(|above| above.path != cgroup.path);
                let original = match view.hierarchy.version {
                    CgroupVersion::V2 => String::new(),
                    // The runtime would have copied the pod's.
                    CgroupVersion::V1 => above.map_or_else(
                        || view.hierarchy.ceiling.to_string(),
                        |above| match written.get(&above.path) {
                            Some(written) => written.original.clone(),
                            None => above.configured.to_string(),
                        },
                    ),
                };
                written.insert(cgroup.path.clone(), WrittenCgroup { inode: *inode, original });
                self.record.make_due();
            }
        }
    }
}

/// The container's id in the name of its cgroup: `cri-containerd-<id>.scope` or `<id>`.
pub(super) fn id(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(".scope").unwrap_or(name).rsplit('-').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_in_the_name_of_the_cgroup() {
        let id = |name: &str| id(Path::new(name)).map(str::to_owned);
        for name in ["/k/podu/0abc", "/k/podu/cri-containerd-0abc.scope", "/k/podu/crio-0abc.scope"]
        {
            assert_eq!(id(name).as_deref(), Some("0abc"), "{name}");
        }
    }
}
