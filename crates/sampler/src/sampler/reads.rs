//! Reads cgroups' counters into their series.

use std::path::Path;
use std::time::Instant;

use super::Sampler;
use super::lookup::Awaited;
use crate::bulk::Bulk;
use crate::cgroup::{CgroupId, SampledKind};
use crate::counter::Context;
use crate::files::{CgroupDir, FileId, ReadBuffers, ReadErrors};
use crate::plan::{Clock, Occasion, ReadPlan, read_plan};
use crate::reading::{Reader, TickReading};
use crate::slow::{ExtraFiles, SlowReading};
use crate::tasks::TaskScan;

/// Buffers of the reads, and what they have reported.
pub(super) struct ReadState {
    pub(super) tasks: TaskScan,
    pub(super) slow: SlowReading,
    pub(super) bulk: Bulk,
    pub(super) buffers: ReadBuffers,
    pub(super) errors: ReadErrors,
    /// Cgroups of which a read has reported that they are gone.
    pub(super) vanished: Vec<CgroupId>,
}

impl ReadState {
    pub(super) fn new(proc_root: &Path, extra: ExtraFiles) -> Self {
        Self {
            tasks: TaskScan::new(proc_root),
            slow: SlowReading::with(extra),
            bulk: Bulk::default(),
            buffers: ReadBuffers { text: vec![0; 16 * 1024], ..ReadBuffers::default() },
            errors: ReadErrors::default(),
            vanished: Vec::new(),
        }
    }
}

impl Sampler {
    /// Reads a cgroup whose first process has ended: its counters may be about to disappear.
    pub(super) fn read_last(&mut self, id: CgroupId, now: Instant) {
        let Some(cgroup) = self.tree.cgroups.get_mut(id) else { return };
        cgroup.exit = None;
        self.read_twice(id, now);
    }

    /// Reads a cgroup that may be about to disappear, now and once more.
    pub(super) fn read_twice(&mut self, id: CgroupId, now: Instant) {
        if !self.tree.cgroups.contains(id) {
            return;
        }
        self.tree.wake(id);
        self.read_as(id, &self.plan(id, Occasion::LastRead, now), now);
        let again = Instant::now() + self.schedule.timing.last_read_delay;
        self.schedule.due.second.push((again, id));
    }

    /// Reads the cgroups whose second read is due by `now`; returns the time of the next one.
    pub(super) fn read_again(&mut self, now: Instant) -> Option<Instant> {
        for (due, id) in std::mem::take(&mut self.schedule.due.second) {
            if due > now {
                self.schedule.due.second.push((due, id));
            } else if self.tree.cgroups.contains(id) {
                self.read_as(id, &self.plan(id, Occasion::LastRead, now), now);
            }
        }
        self.schedule.due.second.iter().map(|(due, _)| *due).min()
    }

    /// Reads every cgroup that may have changed, and collects the containers whose slow files or
    /// threads are due.
    pub(super) fn read_all(&mut self, now: Instant) {
        self.schedule.due.slow.clear();
        self.schedule.due.threads.clear();
        let cgroups = self.tree.sort_by_depth();
        self.collect(cgroups);
        for at in 0..cgroups {
            let visit = self.tree.at_depth(at);
            if self.tree.rests(visit, &self.schedule.rechecks) {
                continue;
            }
            let id = visit.id;
            let plan = self.visit(id, now);
            if let Some(files) = plan.slow {
                self.schedule.due.slow.push((id, files));
            }
            if plan.threads {
                self.schedule.due.threads.push(id);
            }
            if self.tree.cgroups[id].is_usage_pending(now, &self.schedule.timing) {
                self.names.lookups.wait_for(Awaited::Pending);
            }
        }
        self.count_pod_sandboxes(now);
        self.reader.bulk.expire();
        for id in std::mem::take(&mut self.reader.vanished) {
            self.on_vanished(id, now);
        }
    }

    /// Collects the counters of all cgroups, if the kernel allows it and enough of them run.
    fn collect(&mut self, cgroups: usize) {
        let (tree, buffers) = (&self.tree, &mut self.reader.buffers);
        // A read of `cpu.stat` brings the usage of all cgroups below up to date. Without it, they are
        // read from their files.
        let flush = || {
            let all = (0..cgroups).map(|at| &tree.cgroups[tree.at_depth(at).id]);
            all.filter(|cgroup| cgroup.kind == SampledKind::Root).all(|root| {
                let dir = CgroupDir { hierarchy: &tree.hierarchy, relative: &root.relative };
                root.files.read(FileId::CpuStat, dir, buffers).is_ok()
            })
        };
        self.reader.bulk.collect(tree.hierarchy.version, tree.levels(), tree.containers(), flush);
    }

    /// Reads the cgroups that are read between ticks, too: the new ones.
    pub(super) fn read_new(&mut self, now: Instant) {
        for at in 0..self.tree.sort_by_depth() {
            let id = self.tree.at_depth(at).id;
            let plan = self.plan(id, Occasion::BetweenTicks, now);
            if plan.counters {
                self.read_as(id, &plan, now);
            }
        }
    }

    /// Reads the files of a cgroup that may have changed; returns the plan after the read.
    fn visit(&mut self, id: CgroupId, now: Instant) -> ReadPlan {
        let collected = self.reader.bulk.reliable(self.tree.hierarchy.version);
        let timing = &self.schedule.timing;
        self.tree.keep_files(id, collected, now, timing, &mut self.reader.errors);
        let before = self.tree.cgroups[id].path;
        let mut plan = self.plan(id, Occasion::Tick, now);
        if plan.counters {
            self.read_as(id, &plan, now);
            plan = self.plan(id, Occasion::Tick, now);
        } else {
            self.ledger.count_unread(&self.tree.cgroups[id]);
        }
        self.tree.note_visit(id, before, &plan, now, &self.schedule.timing);
        // Of several cgroups of a container the last one visited is shown: each tick visits all.
        let series = self.tree.cgroups[id].series.filter(|_| !self.tree.is_pod(id));
        if series.is_some_and(|series| self.ledger.containers.is_shared(series)) {
            self.tree.wake(id);
        }
        plan
    }

    /// Decides what to read of a cgroup now.
    fn plan(&self, id: CgroupId, occasion: Occasion, now: Instant) -> ReadPlan {
        let clock = Clock {
            now,
            version: self.tree.hierarchy.version,
            sees_settings: self.tree.reports_settings(),
            rechecks: self.schedule.rechecks,
        };
        read_plan(&self.tree.watched(id), occasion, &clock, &self.schedule.timing)
    }

    /// Reads what the plan selects of one cgroup into its series.
    fn read_as(&mut self, id: CgroupId, plan: &ReadPlan, now: Instant) {
        let above = self.tree.above(id);
        let cgroup = &mut self.tree.cgroups[id];
        if !cgroup.is_read() {
            return;
        }
        cgroup.activity.settings_written &= !plan.settings;
        let (buffers, errors) = (&mut self.reader.buffers, &mut self.reader.errors);
        let bulk = &mut self.reader.bulk;
        let collected = bulk.stat(cgroup.inode);
        let acct_inode =
            bulk.has_acct_usages().then(|| cgroup.acct_inode(&self.tree.hierarchy)).flatten();
        let collected_usage_ns = acct_inode.and_then(|inode| bulk.acct_usage_ns(inode));
        let dir = CgroupDir { hierarchy: &self.tree.hierarchy, relative: &cgroup.relative };
        let mut reader = Reader {
            files: &cgroup.files,
            dir,
            buffers,
            errors,
            collected,
            collected_usage_ns,
            vanished: false,
        };
        let reading = TickReading::read(&mut reader, plan, cgroup.last_usage());
        let has_vanished = reader.vanished;
        let (stat, usage) = (reading.stat.read(), reading.acct_usage_ns.read());
        let is_container = cgroup.kind.container().is_some();
        self.reader.bulk.count_needed(is_container, stat.is_some(), usage.is_some());
        if has_vanished {
            cgroup.vanished = true;
            self.reader.vanished.push(id);
            return;
        }
        let mut context = Context {
            now,
            cpus: self.node.probe.max_cpus(),
            created_after: cgroup.seen_created.then_some(self.schedule.started),
            implausible: &mut self.reader.errors.implausible,
        };
        let deltas = cgroup.take(&reading, above, &mut context);
        match cgroup.kind {
            SampledKind::Pod { .. } if cgroup.activity.had_quota => {
                if cgroup.series.is_none() {
                    self.name_pod(id, now);
                }
                self.ledger.count_pod(&self.tree.cgroups[id], &deltas);
            }
            SampledKind::Container(_) => self.ledger.count_container(cgroup, &deltas),
            _ => {}
        }
        self.tree.count_pod_sandbox(id, &deltas);
    }
}
