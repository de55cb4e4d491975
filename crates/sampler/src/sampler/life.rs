//! Cgroups that come and go, and their series.

use std::time::Instant;

use kernel_text::CgroupVersion;

use super::Sampler;
use super::lookup::{Awaited, ExitedUnnamed};
use crate::cgroup::{Cgroup, CgroupId, Naming, SampledKind};

impl Sampler {
    /// Finds the first process of containers where none was found yet: it joined before the watch,
    /// or by a fork.
    pub(super) fn watch_exits(&mut self, walked: bool) {
        if self.tree.hierarchy.version == CgroupVersion::V2 {
            return;
        }
        for slot in 0..self.tree.cgroups.capacity() {
            let Some(id) = self.tree.cgroups.id_at(slot) else { continue };
            if walked || !self.tree.cgroups[id].is_complete(&self.schedule.timing) {
                self.watch_exit(id);
            }
        }
    }

    /// Waits for the end of a container's first process. On v1 nothing else reports a container's
    /// end while its counters are still readable; on v2 `cgroup.events` does.
    pub(super) fn watch_exit(&mut self, id: CgroupId) {
        let Some(cgroup) = self.tree.cgroups.get_mut(id) else { return };
        let is_wanted = self.tree.hierarchy.version == CgroupVersion::V1
            && cgroup.exit.is_none()
            && cgroup.is_read();
        if is_wanted && matches!(cgroup.kind, SampledKind::Container(_)) {
            let pid = cgroupfs::first_pid(&self.tree.hierarchy.cpu.join(&*cgroup.relative));
            cgroup.exit = pid.and_then(|pid| self.wake.on_exit(id, pid).ok());
        }
    }

    /// Updates the series for cgroups that were added or removed.
    pub(super) fn apply_changes(&mut self) {
        for (id, cgroup) in std::mem::take(&mut self.tree.removed) {
            self.forget(id, &cgroup);
        }
        for id in std::mem::take(&mut self.tree.added) {
            self.on_added(id);
        }
    }

    pub(super) fn forget(&mut self, id: CgroupId, cgroup: &Cgroup) {
        match (&cgroup.kind, cgroup.series) {
            (SampledKind::Pod { uid }, series) => {
                self.names.source.pod_lives(uid, false);
                if let Some(series) = series {
                    self.ledger.pods.detach(series);
                }
                self.ledger.pods.drop_pod(id);
                self.names.exited.retain(|gone| gone.pod != id);
                self.ledger.containers.drop_pod(id);
            }
            (SampledKind::Container(key), Some(series)) => {
                self.reader.tasks.forget(id);
                self.ledger.containers.detach(series);
                if cgroup.naming != Naming::Named {
                    let (found, pod) = (cgroup.found, cgroup.parent.unwrap_or(id));
                    let is_shown = cgroup.naming == Naming::Unmapped;
                    self.keep_exited(ExitedUnnamed {
                        key: key.clone(),
                        found,
                        series,
                        pod,
                        is_shown,
                    });
                }
            }
            _ => {}
        }
    }

    pub(super) fn on_added(&mut self, id: CgroupId) {
        let cgroup = &mut self.tree.cgroups[id];
        if let SampledKind::Pod { uid } = &cgroup.kind {
            self.names.source.pod_lives(uid, true);
        }
        let SampledKind::Container(key) = &cgroup.kind else { return };
        self.node.probe.kernel.cgroup_driver = key.driver.as_str();
        let (parent, found) = (cgroup.parent, cgroup.found);
        let since = |start: Instant| found.saturating_duration_since(start);
        let together = self.schedule.timing.started_together;
        if parent.is_some_and(|parent| since(self.tree.cgroups[parent].found) < together) {
            self.tree.cgroups[id].last.inherit_history();
        }
        self.name(id, self.tree.now);
        self.watch_exit(id);
        self.names.lookups.wait_for(Awaited::Pending);
        self.names.lookups.next = Some(self.tree.now);
    }
}
