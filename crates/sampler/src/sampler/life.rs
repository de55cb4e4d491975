//! Cgroups that come and go, and their series.

use std::time::Instant;

use cgroup_tree::Change;
use kernel_text::CgroupVersion;

use super::Sampler;
use super::lookup::{Awaited, ExitedUnnamed};
use crate::cgroup::{CgroupId, Naming, SampledKind};

impl Sampler {
    /// Finds the first process of containers where none was found yet: it joined before the watch,
    /// or by a fork.
    pub(super) fn watch_exits(&mut self, walked: bool) {
        if self.tree.hierarchy.version == CgroupVersion::V2 {
            return;
        }
        for at in 0..self.tree.sort_by_depth() {
            let id = self.tree.at_depth(at).id;
            if walked || !self.tree.is_settled(id) {
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

    /// Applies the changes since the last call, without a walk.
    pub(super) fn poll(&mut self, now: Instant) {
        let changes = self.tree.poll(now);
        self.apply(changes, now);
    }

    /// Applies the changes since the last call, after a walk if one is due or needed. Returns
    /// whether there was one.
    pub(super) fn reconcile(&mut self, is_due: bool, now: Instant) -> bool {
        let (walked, changes) = self.tree.reconcile(is_due, now);
        self.apply(changes, now);
        if walked {
            self.tree.plan_descriptors(&mut self.reader.errors);
        }
        walked
    }

    /// Handles a read that has reported that the cgroup is gone.
    pub(super) fn on_vanished(&mut self, id: CgroupId, now: Instant) {
        if !self.tree.cgroups.get(id).is_some_and(|cgroup| cgroup.vanished) {
            return;
        }
        let (exists, changes) = self.tree.report_vanished(id);
        self.apply(changes, now);
        if exists {
            self.tree.reopen_files(id, &mut self.reader.errors);
        }
    }

    /// Applies changes to the cgroups, their names and their series. Removals come first: a new
    /// cgroup may have the name of a removed one.
    fn apply(&mut self, changes: Vec<Change>, now: Instant) {
        for change in &changes {
            if let Change::Removed(id) = *change {
                self.on_removed(id);
            }
        }
        for change in &changes {
            match change {
                Change::Added(found) => {
                    if let Some(id) = self.tree.add(found, &mut self.reader.errors) {
                        self.on_added(id, now);
                    }
                }
                Change::SettingsWritten(id) => {
                    if let Some(cgroup) = self.tree.cgroups.get_mut(*id) {
                        cgroup.activity.settings_written = true;
                        self.tree.wake(*id);
                    }
                }
                // If it has emptied, its counters may be about to disappear.
                Change::Populated(id) => self.read_twice(*id, now),
                Change::Attached(id) => self.watch_exit(*id),
                Change::Removed(_) | Change::CpusWritten(_) => {}
            }
        }
        self.tree.reuse(changes);
    }

    fn on_removed(&mut self, id: CgroupId) {
        let Some(cgroup) = self.tree.remove(id) else { return };
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
                let Some(pod) = cgroup.parent.filter(|&parent| self.tree.is_pod(parent)) else {
                    // It may hold its series itself.
                    return self.ledger.containers.drop_pod(id);
                };
                if cgroup.naming.is_open() {
                    let found = cgroup.found;
                    let is_shown = cgroup.naming == Naming::Unmapped;
                    let gone = ExitedUnnamed { key: key.clone(), found, series, pod, is_shown };
                    self.names.keep_exited(gone, &mut self.ledger.containers);
                }
            }
            _ => {}
        }
    }

    fn on_added(&mut self, id: CgroupId, now: Instant) {
        let cgroup = &mut self.tree.cgroups[id];
        if let SampledKind::Pod { uid } = &cgroup.kind {
            self.names.source.pod_lives(uid, true);
        }
        let SampledKind::Container(key) = &cgroup.kind else { return };
        let (driver, parent, found) = (key.driver, cgroup.parent, cgroup.found);
        if let Some(pod) = parent.filter(|&parent| self.tree.is_pod(parent)) {
            self.node.probe.kernel.cgroup_driver = driver.as_str();
            let since = found.saturating_duration_since(self.tree.cgroups[pod].found);
            if since < self.schedule.timing.started_together {
                self.tree.cgroups[id].last.inherit_history();
            }
        }
        self.name(id, now);
        self.watch_exit(id);
        self.names.lookups.wait_for(Awaited::Pending);
        self.names.lookups.next = Some(now);
    }
}
