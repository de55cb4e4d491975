//! Reads cgroups' counters into their series.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Sampler;
use super::lookup::Awaited;
use crate::cgroup::{CgroupId, Gains, PathQuota, SampledKind};
use crate::files::{Place, ReadErrors};
use crate::plan::{ReadPlan, Watched, read_plan};
use crate::reading::{Reader, TickReading};
use crate::series::Track;
use crate::slow::Slow;
use crate::tasks::TaskScan;
use crate::timing;

/// Delay of the second read. A process is charged for its last microseconds after its end was
/// reported; a runtime takes longer to remove the cgroup.
const LAST_MICROSECONDS: Duration = Duration::from_millis(2);

/// Buffers of the reads, and what they have reported.
pub(super) struct ReadState {
    pub(super) tasks: TaskScan,
    pub(super) slow: Slow,
    pub(super) buffer: Vec<u8>,
    pub(super) path: PathBuf,
    pub(super) errors: ReadErrors,
    /// Cgroups of which a read has reported that they are gone.
    pub(super) vanished: Vec<CgroupId>,
}

impl ReadState {
    pub(super) fn new(proc_root: &Path) -> Self {
        Self {
            tasks: TaskScan::new(proc_root),
            slow: Slow::default(),
            buffer: vec![0; 16 * 1024],
            path: PathBuf::new(),
            errors: ReadErrors::default(),
            vanished: Vec::new(),
        }
    }
}

impl Sampler {
    /// Reads a cgroup whose first process has ended: its counters may be about to disappear.
    pub(super) fn read_last(&mut self, id: CgroupId) {
        let Some(cgroup) = self.tree.cgroups.get_mut(id) else { return };
        cgroup.exit = None;
        self.read_twice(id);
    }

    /// Reads a cgroup that may be about to disappear, now and once more.
    pub(super) fn read_twice(&mut self, id: CgroupId) {
        self.tree.cgroups[id].activity.throttle_due = true;
        self.read(id);
        self.tree.cgroups[id].activity.throttle_due = true;
        self.schedule.due.again.push((Instant::now() + LAST_MICROSECONDS, id));
    }

    /// Reads the cgroups whose second read is due by `now`; returns the time of the next one.
    pub(super) fn read_again(&mut self, now: Instant) -> Option<Instant> {
        for (due, id) in std::mem::take(&mut self.schedule.due.again) {
            if due > now {
                self.schedule.due.again.push((due, id));
            } else if self.tree.cgroups.contains(id) {
                self.read(id);
            }
        }
        self.schedule.due.again.iter().map(|(due, _)| *due).min()
    }

    /// Reads every cgroup that may have changed, and collects the containers whose slow files or
    /// threads are due.
    pub(super) fn read_all(&mut self) {
        self.schedule.due.slow.clear();
        self.schedule.due.threads.clear();
        for place in 0..self.tree.sort_by_depth() {
            let id = self.tree.at_depth(place);
            let plan = self.visit(id);
            if plan.slow {
                self.schedule.due.slow.push(id);
            }
            if plan.threads {
                self.schedule.due.threads.push(id);
            }
            if self.tree.cgroups[id].awaits_usage() {
                self.names.lookups.wait_for(Awaited::News);
            }
        }
        for id in std::mem::take(&mut self.reader.vanished) {
            self.tree.on_vanished(id, &mut self.reader.errors);
        }
        self.settle();
    }

    /// Reads the cgroups that have not been read completely yet, and those above the tops.
    pub(super) fn read_new(&mut self) {
        for place in 0..self.tree.sort_by_depth() {
            let id = self.tree.at_depth(place);
            let cgroup = &self.tree.cgroups[id];
            if cgroup.kind == SampledKind::Above || cgroup.is_unread() || cgroup.awaits_usage() {
                self.visit(id);
            }
        }
    }

    /// Reads what may have changed of a cgroup; returns the plan as of after the read.
    fn visit(&mut self, id: CgroupId) -> ReadPlan {
        let plan = self.plan(id);
        if plan.counters {
            self.read_as(id, &plan);
            return self.plan(id);
        }
        self.count_container(id, &Gains::default());
        plan
    }

    /// Decides what to read of a cgroup now.
    pub(super) fn plan(&self, id: CgroupId) -> ReadPlan {
        let cgroup = &self.tree.cgroups[id];
        let parent = cgroup.parent.map(|parent| &self.tree.cgroups[parent]);
        let watched = Watched {
            files: cgroup.kind.file_set(),
            phase: timing::phase(id.slot()),
            found: cgroup.found,
            activity: &cgroup.activity,
            above: parent.map_or_else(PathQuota::default, |parent| parent.path),
            parent: parent.map(|parent| &parent.activity),
        };
        read_plan(&watched, &self.schedule.clock.at(self.tree.now, self.tree.reports_settings()))
    }

    /// Reads one cgroup's counters into its series.
    pub(super) fn read(&mut self, id: CgroupId) {
        self.read_as(id, &self.plan(id));
    }

    fn read_as(&mut self, id: CgroupId, plan: &ReadPlan) {
        let parent = self.tree.cgroups[id].parent;
        let above = parent.map_or_else(PathQuota::default, |parent| self.tree.cgroups[parent].path);
        let cgroup = &mut self.tree.cgroups[id];
        if !cgroup.is_read() {
            return;
        }
        cgroup.activity.settings_written &= !plan.settings;
        let place = Place {
            hierarchy: &self.tree.hierarchy,
            relative: &cgroup.relative,
            settings: plan.settings,
        };
        let (buffer, errors) = (&mut self.reader.buffer, &mut self.reader.errors);
        let mut reader = Reader { files: &cgroup.files, place, buffer, errors, vanished: false };
        let reading = TickReading::read(&mut reader, plan, cgroup.last_usage());
        if reader.vanished {
            cgroup.vanished = true;
            self.reader.vanished.push(id);
            return;
        }
        let gains = cgroup.take(&reading, above, self.tree.now);
        match cgroup.kind {
            SampledKind::Pod { .. } => self.count_pod(id, &gains),
            SampledKind::Container(_) => self.count_container(id, &gains),
            _ => {}
        }
    }

    pub(super) fn count_pod(&mut self, id: CgroupId, gains: &Gains) {
        if !self.tree.cgroups[id].activity.had_quota {
            return;
        }
        if self.tree.cgroups[id].series.is_none() {
            self.name_pod(id, self.tree.now);
        }
        let cgroup = &self.tree.cgroups[id];
        if let Some(series) = cgroup.series {
            let limit = cgroup.bandwidth.and_then(|bandwidth| bandwidth.limit_cores());
            self.ledger.pods.get_mut(series).gain(gains, limit);
        }
    }

    pub(super) fn count_container(&mut self, id: CgroupId, gains: &Gains) {
        let cgroup = &self.tree.cgroups[id];
        let Some(series) = cgroup.series else { return };
        let series = self.ledger.containers.get_mut(series);
        series.gain(gains, cgroup.activity.had_quota);
        let row = series.row_mut();
        row.limit_cores = cgroup.path.limit.map(|limit| limit.cores);
        row.limit_period_usec = cgroup.path.limit.map(|limit| limit.period_usec);
        row.weight = cgroup.weight;
        row.period_usec = cgroup.bandwidth.map(|bandwidth| bandwidth.period_usec);
        row.quota_usec = cgroup.bandwidth.and_then(|bandwidth| bandwidth.quota.usec());
        if !row.cgroup.as_ref().is_some_and(|path| Arc::ptr_eq(path, &cgroup.absolute)) {
            row.cgroup = Some(Arc::clone(&cgroup.absolute));
        }
    }
}
