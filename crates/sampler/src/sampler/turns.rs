//! What is read in turn, some cgroups a tick: slow files, threads, and settings that inotify may have missed.

use std::time::Instant;

use super::Sampler;
use crate::cgroup::{CgroupId, Kind};
use crate::files::Place;
use crate::reading::Reader;
use crate::series::Track;
use crate::slow::{self, LATE_ROUNDS};
use crate::tasks::Turn;

impl Sampler {
    /// It is the turn of a cgroup of which nothing is expected.
    pub(super) fn is_late_turn(&self, id: CgroupId) -> bool {
        let round = slow::round_ticks(self.interval()) * u64::from(LATE_ROUNDS);
        id as u64 % round == self.tree.tick % round
    }

    /// Reads the slow files of this tick's share of the containers, and of those that were never read.
    pub(super) fn read_slow_round(&mut self) {
        let round = slow::round_ticks(self.interval());
        let late = round * u64::from(LATE_ROUNDS);
        let tick = self.tree.tick;
        for (id, cgroup) in &mut self.tree.cgroups {
            let Some(series) = cgroup.series.filter(|_| matches!(cgroup.kind, Kind::Container(_))) else { continue };
            let round = if cgroup.slow_read.is_some_and(|read| cgroup.is_still_since(read)) { late } else { round };
            let due = id as u64 % round == tick % round || cgroup.slow_read.is_none();
            if !due || !cgroup.is_read() {
                continue;
            }
            cgroup.slow_read = Some(tick);
            let place = Place { hierarchy: &self.tree.hierarchy, relative: &cgroup.relative, settings: true };
            let (buffer, errors) = (&mut self.buffer, &mut self.errors);
            let mut reader = Reader { files: &cgroup.files, place, buffer, errors, vanished: false };
            self.slow.read(&mut reader);
            self.slow.apply(&mut cgroup.marks, self.containers.get_mut(series).row_mut());
        }
    }

    /// Reads threads of the containers whose turn it is, while the tick's budget lasts; one container at least.
    pub(super) fn scan_tasks(&mut self, now: Instant) {
        let turn = Turn::new(self.interval());
        let capacity = self.tree.cgroups.capacity().max(1);
        for step in 0..capacity {
            let id = (self.next_scan + step) % capacity;
            let Some(cgroup) = self.tree.cgroups.get(id) else { continue };
            let Some(series) = cgroup.series.filter(|_| cgroup.is_read()) else { continue };
            if !matches!(cgroup.kind, Kind::Container(_))
                || !self.tasks.is_due(id, now, |scanned| cgroup.is_still_since(scanned))
            {
                continue;
            }
            self.path.clear();
            self.path.push(&self.tree.hierarchy.cpu);
            self.path.push(&*cgroup.relative);
            let when = (now, self.tree.tick);
            self.tasks.scan(id, when, &self.path, self.containers.get_mut(series).row_mut());
            self.next_scan = id + 1;
            if turn.is_over() {
                return;
            }
        }
    }
}
