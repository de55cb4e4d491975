//! Counters of cgroups, read into their series.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Sampler, YOUNG_TICKS};
use crate::cgroup::{Cgroup, CgroupId, Gains, Kind, PathQuota};
use crate::files::Place;
use crate::reading::{Hot, Reader, Weight};
use crate::series::Track;

/// A process is charged for its last microseconds after its end was told; a runtime takes longer to remove the cgroup.
const LAST_MICROSECONDS: Duration = Duration::from_millis(2);

impl Sampler {
    /// The first process of a cgroup has ended: its counters may be about to go.
    pub(super) fn read_last(&mut self, id: CgroupId) {
        let Some(cgroup) = self.tree.cgroups.get_mut(id) else { return };
        cgroup.exit = None;
        self.read_twice(id);
    }

    /// Reads a cgroup that may be about to go, now and once more.
    pub(super) fn read_twice(&mut self, id: CgroupId) {
        self.tree.cgroups[id].local_is_due = true;
        self.read(id);
        self.tree.cgroups[id].local_is_due = true;
        self.again.push((Instant::now() + LAST_MICROSECONDS, id));
    }

    /// Reads once more what is due by `now`; gives when the next is.
    pub(super) fn read_again(&mut self, now: Instant) -> Option<Instant> {
        for (due, id) in std::mem::take(&mut self.again) {
            if due > now {
                self.again.push((due, id));
            } else if self.tree.cgroups.contains(id) {
                self.read(id);
            }
        }
        self.again.iter().map(|(due, _)| *due).min()
    }

    /// Reads every cgroup in which something may have changed.
    pub(super) fn read_all(&mut self) {
        self.read_ranks(|_| true);
        let vanished = self.tree.cgroups.iter().filter(|(_, cgroup)| cgroup.vanished).map(|(id, _)| id);
        let vanished: Vec<CgroupId> = vanished.collect();
        for id in vanished {
            if self.tree.cgroups.contains(id) {
                self.tree.remove(id);
            }
        }
        self.settle();
    }

    /// Reads those that `wanted` selects, ancestors before descendants.
    pub(super) fn read_ranks(&mut self, wanted: impl Fn(&Cgroup) -> bool) {
        for rank in 0..=Kind::LAST_RANK {
            for id in 0..self.tree.cgroups.capacity() {
                let is_next = |cgroup: &Cgroup| cgroup.kind.rank() == rank && wanted(cgroup);
                if !self.tree.cgroups.get(id).is_some_and(is_next) {
                    continue;
                }
                match self.is_settled(id) {
                    true => self.count_container(id, &Gains::default()),
                    false => self.read(id),
                }
            }
        }
    }

    /// A container that need not be read: its pod's usage holds its own, and stands.
    fn is_settled(&self, id: CgroupId) -> bool {
        let cgroup = &self.tree.cgroups[id];
        let Some(pod) = cgroup.parent.filter(|_| matches!(cgroup.kind, Kind::Container(_))) else { return false };
        let (pod, tick) = (&self.tree.cgroups[pod], self.tree.tick);
        let may_be = self.tree.tells_settings() && !self.is_late_turn(id);
        may_be && pod.is_quiet(tick) && cgroup.is_settled(pod.path, tick)
    }

    /// Reads one cgroup's counters into its series.
    pub(super) fn read(&mut self, id: CgroupId) {
        let (is_turn, tells_settings) = (self.is_late_turn(id), self.tree.tells_settings());
        let above = self.tree.cgroups[id].parent.map_or(PathQuota::default(), |parent| self.tree.cgroups[parent].path);
        let cgroup = &mut self.tree.cgroups[id];
        if !cgroup.is_read() {
            return;
        }
        let is_young = self.tree.tick < cgroup.born + YOUNG_TICKS;
        let settings = std::mem::take(&mut cgroup.settings_changed) || is_young || is_turn || !tells_settings;
        let place = Place { hierarchy: &self.tree.hierarchy, relative: &cgroup.relative, settings };
        let (buffer, errors) = (&mut self.buffer, &mut self.errors);
        let mut reader = Reader { files: &cgroup.files, place, buffer, errors, vanished: false };
        let hot = Hot::read(&mut reader, cgroup.wanted(above, self.tree.hierarchy.version, self.tree.tick));
        if reader.vanished {
            cgroup.vanished = true;
            return;
        }
        let gains = cgroup.take(&hot, above, self.tree.tick);
        match cgroup.kind {
            Kind::Pod { .. } => self.count_pod(id, &gains),
            Kind::Container(_) => self.count_container(id, &gains),
            _ => {}
        }
    }

    pub(super) fn count_pod(&mut self, id: CgroupId, gains: &Gains) {
        if !self.tree.cgroups[id].had_quota {
            return;
        }
        if self.tree.cgroups[id].series.is_none() {
            self.name_pod(id, self.tree.now);
        }
        let cgroup = &self.tree.cgroups[id];
        if let Some(series) = cgroup.series {
            let limit = cgroup.bandwidth.and_then(|bandwidth| bandwidth.limit_cores());
            self.pods.get_mut(series).gain(gains, limit);
        }
    }

    pub(super) fn count_container(&mut self, id: CgroupId, gains: &Gains) {
        let cgroup = &self.tree.cgroups[id];
        let Some(series) = cgroup.series else { return };
        let series = self.containers.get_mut(series);
        series.gain(gains, cgroup.had_quota);
        let row = series.row_mut();
        row.limit_cores = cgroup.path.limit.map(|limit| limit.cores);
        row.limit_period_usec = cgroup.path.limit.map(|limit| limit.period_usec);
        row.weight = cgroup.weight.map(|weight| weight.weight() as f64);
        row.shares = cgroup.weight.map(Weight::shares);
        row.period_usec = cgroup.bandwidth.map(|bandwidth| bandwidth.period_usec);
        row.quota_usec = cgroup.bandwidth.and_then(|bandwidth| bandwidth.quota.usec());
        if !row.cgroup.as_ref().is_some_and(|path| Arc::ptr_eq(path, &cgroup.absolute)) {
            row.cgroup = Some(Arc::clone(&cgroup.absolute));
        }
    }
}
