//! Restores: processes that the kernel moved out of a cpuset, and all written cpusets at a drain.

use std::path::Path;

use api::Pin;
use kubepods::PodIndex;
use state_dir::{DrainRequest, PinningCheckpoint};
use watchdog::errors::chain;

use super::Pinner;
use crate::decision::{Decision, PodOutcome};
use crate::drain::Scope;
use crate::owner::CpuManagerState;
use crate::report::{Operation, PassReport};
use crate::tree::View;
use crate::{drain, stranded};

impl Pinner {
    /// Moves processes back into cpusets that had lost their last CPU. Skips cgroups that the
    /// runtime may still be setting up. Does nothing while the agent only observes.
    pub(super) fn bring_back(&mut self, view: &View, report: &mut PassReport) {
        let containers = view
            .pods
            .iter()
            .flat_map(|pod| &pod.cgroups)
            .filter(|cgroup| cgroup.ours && cgroup.parent.is_some());
        if containers.clone().any(|cgroup| cgroup.effective.is_empty()) {
            self.strays.after_loss();
        }
        if self.mode.granted().is_none() || !self.strays.take() {
            return;
        }
        let settled_after = self.config.settled_after;
        let is_settled = |path: &Path| {
            view.seen.get(path).is_some_and(|(since, _)| since.elapsed() > settled_after)
        };
        for cgroup in containers.filter(|cgroup| is_settled(&cgroup.path)) {
            let moved = stranded::bring_back(&self.config.node.hierarchy, &cgroup.path);
            if moved > 0 {
                let path = cgroup.path.display();
                tracing::warn!(%path, moved, "moved processes back into a cpuset after it had lost its last CPU");
                (0..moved).for_each(|_| report.operations.add(Operation::BringBack, true));
            }
        }
    }

    /// Restores all written cgroups, as requested by `cpuwarden drain`.
    pub(super) fn drain(&mut self, view: &View, pods: &PodIndex, report: &mut PassReport) {
        let kubelets = CpuManagerState::read(&self.config.node.cpu_manager_state)
            .map(|state| state.exclusive());
        let mut kubelets = kubelets.unwrap_or_default();
        kubelets.pods.extend(self.holders(pods));
        let checkpoint = &self.record.checkpoint;
        let drained = drain::give_back(&self.tree, view, checkpoint, Scope::Written, &kubelets);
        for _ in 0..drained.written {
            report.operations.add(Operation::Drain, true);
        }
        for error in &drained.errors {
            tracing::error!(error, "failed to widen a cpuset");
            report.operations.add(Operation::Drain, false);
        }
        report.decisions.extend(std::mem::take(&mut self.record.checkpoint.pins).into_iter().map(
            |(uid, pin)| {
                let Pin { namespace, pod, .. } = pin;
                Decision { uid, namespace, pod, outcome: PodOutcome::Released }
            },
        ));
        if drained.errors.is_empty()
            && let Err(error) = PinningCheckpoint::remove(&self.config.node.state_dir)
        {
            tracing::error!(error = chain(&error), "failed to delete the checkpoint");
        }
        let request = DrainRequest::of(&self.config.node.state_dir);
        if let Err(error) = request.answer(&drained) {
            // The state directory may be full.
            tracing::warn!(error = chain(&error), "failed to report the drained cpusets");
        }
        self.record.clear();
    }
}
