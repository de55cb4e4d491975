//! Reads spread over ticks, some containers per tick: slow files and threads.

use std::time::Instant;

use super::Sampler;
use crate::cgroup::{CgroupId, Kind};
use crate::files::Place;
use crate::reading::Reader;
use crate::series::{SeriesId, Track};
use crate::tasks::Turn;

/// Reads that are due for some cgroups only.
#[derive(Debug, Default)]
pub(super) struct DueReads {
    /// Containers whose slow files are due in this tick.
    pub(super) slow: Vec<CgroupId>,
    /// Containers whose threads are due in this tick, in the order of their ids.
    pub(super) threads: Vec<CgroupId>,
    /// Slot at which the scan of threads continues.
    next_scan: usize,
    /// Cgroups to read once more, with the time to do so.
    pub(super) again: Vec<(Instant, CgroupId)>,
}

impl Sampler {
    /// Reads the slow files of this tick's share of the containers, and of those never read before.
    pub(super) fn read_slow_round(&mut self) {
        for at in 0..self.due.slow.len() {
            let id = self.due.slow[at];
            let Some(series) = self.series_to_read(id) else { continue };
            let cgroup = &mut self.tree.cgroups[id];
            cgroup.activity.slow_read = Some(self.tree.now);
            let place = Place {
                hierarchy: &self.tree.hierarchy,
                relative: &cgroup.relative,
                settings: true,
            };
            let (buffer, errors) = (&mut self.buffer, &mut self.errors);
            let mut reader =
                Reader { files: &cgroup.files, place, buffer, errors, vanished: false };
            self.slow.read(&mut reader);
            self.slow.apply(&mut cgroup.marks, self.containers.get_mut(series).row_mut());
        }
    }

    /// Reads the threads of containers that are due, within the tick's budget; at least one
    /// container.
    pub(super) fn scan_tasks(&mut self) {
        let turn = Turn::new(self.interval());
        let first = self.due.threads.partition_point(|&id| id.slot() < self.due.next_scan);
        self.due.threads.rotate_left(first);
        for at in 0..self.due.threads.len() {
            let id = self.due.threads[at];
            let Some(series) = self.series_to_read(id) else { continue };
            let cgroup = &mut self.tree.cgroups[id];
            cgroup.activity.threads_read = Some(self.tree.now);
            self.path.clear();
            self.path.push(&self.tree.hierarchy.cpu);
            self.path.push(&*cgroup.relative);
            let throttled = cgroup.marks.throttled_time;
            let row = self.containers.get_mut(series).row_mut();
            if let Err(error) = self.tasks.scan(id, &self.path, throttled, row) {
                self.errors.count(&error);
            }
            self.due.next_scan = id.slot() + 1;
            if turn.is_over() {
                return;
            }
        }
    }

    /// The series of a container whose counters are read.
    fn series_to_read(&self, id: CgroupId) -> Option<SeriesId> {
        let cgroup = self.tree.cgroups.get(id)?;
        cgroup.series.filter(|_| matches!(cgroup.kind, Kind::Container(_)) && cgroup.is_read())
    }
}
