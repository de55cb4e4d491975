//! Reads spread over ticks, some containers per tick: slow files and threads.

use std::path::Path;
use std::time::Instant;

use super::Sampler;
use crate::counter::Context;
use crate::files::{CgroupDir, ReadBuffers};
use crate::nested;
use crate::plan::SlowRead;
use crate::reading::Reader;
use crate::series::{Track, add};
use crate::tasks::ScanBudget;

impl Sampler {
    /// Reads the slow files of this tick's share of the containers, and of those never read before.
    pub(super) fn read_slow(&mut self, now: Instant) {
        for at in 0..self.schedule.due.slow.len() {
            let (id, files) = self.schedule.due.slow[at];
            let Some(series) = self.tree.series_to_read(id) else { continue };
            let cgroup = &mut self.tree.cgroups[id];
            let has_children = cgroup.nested.is_some();
            let last = cgroup.activity.note_slow(files, has_children, now);
            let dir = CgroupDir { hierarchy: &self.tree.hierarchy, relative: &cgroup.relative };
            let (buffers, errors) = (&mut self.reader.buffers, &mut self.reader.errors);
            let mut reader = Reader {
                files: &cgroup.files,
                dir,
                buffers,
                errors,
                collected: None,
                collected_usage_ns: None,
                vanished: false,
            };
            self.reader.slow.read(&mut reader, files);
            let mut context = Context {
                now,
                cpus: self.node.probe.max_cpus(),
                created_after: cgroup.seen_created.then_some(self.schedule.started),
                implausible: &mut self.reader.errors.implausible,
            };
            let row = self.ledger.containers.get_mut(series).row_mut();
            self.reader.slow.apply(&mut cgroup.last, row, &mut context);
            row.kernel = cgroup.kernel_counters();
            if !has_children && files < SlowRead::Memory {
                continue;
            }
            let ReadBuffers { text, path } = &mut self.reader.buffers;
            path.clear();
            path.extend([&*self.tree.hierarchy.cpu, Path::new(&*cgroup.relative)]);
            let throttled_ns = nested::read(&mut cgroup.nested, path, last, text, &mut context);
            add(&mut row.throttled_child_ns, throttled_ns);
        }
    }

    /// Reads the threads of containers that are due, within the tick's budget; at least one
    /// container.
    pub(super) fn scan_tasks(&mut self, now: Instant) {
        let budget = ScanBudget::new(self.interval());
        let tick = now.saturating_duration_since(self.schedule.started);
        let first = self
            .schedule
            .due
            .threads
            .partition_point(|&id| id.slot() < self.schedule.due.next_scan);
        self.schedule.due.threads.rotate_left(first);
        for at in 0..self.schedule.due.threads.len() {
            let id = self.schedule.due.threads[at];
            let Some(series) = self.tree.series_to_read(id) else { continue };
            let cgroup = &mut self.tree.cgroups[id];
            cgroup.activity.threads_read = Some(now);
            let path = &mut self.reader.buffers.path;
            path.clear();
            path.extend([&*self.tree.hierarchy.cpu, Path::new(&*cgroup.relative)]);
            let throttled = cgroup.last.throttled_time;
            let row = self.ledger.containers.get_mut(series).row_mut();
            let scanned = self.reader.tasks.scan(id, path, tick, throttled, row);
            if let Err(error) = scanned {
                self.reader.errors.count(&error);
            }
            self.schedule.due.next_scan = id.slot() + 1;
            if budget.is_spent() {
                return;
            }
        }
    }
}
