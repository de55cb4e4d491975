//! Naming: assignment of cgroups to series as pods become known and change.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use snapshot::ContainerIdentity;

use super::Sampler;
use super::lookup::{Awaited, ExitedUnnamed, Lookups, NameLookup};
use crate::cgroup::{
    CgroupId, ContainerKey, LastCounters, Naming, SampledCgroup, SampledKind, is_busy,
};
use crate::naming::{self, Circumstances, KnownContainer, Name, Surroundings};
use crate::plan::Activity;
use crate::series::{ContainerSeries, SeriesId, SeriesTable, Track};
use crate::timing::Timing;
use crate::tree::SampledTree;

/// Time for which the name of an exited container is requested.
const ASKED_FOR: Duration = Duration::from_secs(120);

/// Maximum number of unnamed exited containers per pod with a series of their own; older ones are
/// merged into one series of the pod.
const MAX_EXITED: usize = 8;

/// Kernel data about an unnamed cgroup, from the tree and `/proc`.
struct InTree<'a> {
    tree: &'a SampledTree,
    proc_root: &'a Path,
    id: CgroupId,
}

impl InTree<'_> {
    fn directory(&self) -> PathBuf {
        self.tree.hierarchy.cpu.join(&*self.tree.cgroups[self.id].relative)
    }

    /// The other containers of the pod, wherever their cgroups are.
    fn siblings(&self) -> impl Iterator<Item = (&ContainerKey, &SampledCgroup)> {
        let uid = self.tree.cgroups[self.id].kind.container().map(|key| &key.uid);
        let others =
            self.tree.cgroups.iter().filter(|&(id, cgroup)| id != self.id && !cgroup.vanished);
        others.filter_map(move |(_, cgroup)| {
            let key = cgroup.kind.container()?;
            (Some(&key.uid) == uid).then_some((key, cgroup))
        })
    }
}

impl Surroundings for InTree<'_> {
    fn runs_pause(&self) -> bool {
        cgroupfs::runs_only(&self.directory(), self.proc_root, "pause")
    }

    fn is_populated(&self) -> bool {
        let directory = self.directory();
        cgroupfs::has_processes(&directory)
            || cgroupfs::subdirectories(&directory).is_ok_and(|found| !found.is_empty())
    }

    fn lives(&self, container_id: &str) -> bool {
        self.siblings().any(|(key, _)| *key.id == *container_id)
    }

    fn has_sandbox(&self) -> bool {
        self.siblings().any(|(key, cgroup)| {
            let is_sandbox = matches!(cgroup.naming, Naming::Sandbox | Naming::BusySandbox);
            is_sandbox && key.has_container_id()
        })
    }
}

impl NameLookup {
    /// The exported labels of a pod, escaped.
    fn pod_labels(&self, uid: &str) -> Box<str> {
        naming::pod_labels(&self.index, uid, &self.exported)
    }

    /// Records that the name of a container is pending, and when its next lookup is due.
    fn plan_lookup(&mut self, cgroup: &SampledCgroup, may_answer: bool, timing: &Timing) {
        if !matches!(cgroup.kind, SampledKind::Container(_)) {
            return;
        }
        match cgroup.naming {
            Naming::Pending if !cgroup.lookup.is_exhausted(timing) => {
                self.lookups.wait_for(Awaited::Pending);
            }
            Naming::Pending | Naming::Unmapped if may_answer => {
                self.lookups.wait_for(Awaited::Names);
            }
            Naming::Pending | Naming::Unmapped => {}
            Naming::Named | Naming::Sandbox | Naming::BusySandbox => return,
        }
        self.lookups.plan(cgroup.lookup.due());
    }

    /// Names containers that exited before the kubelet listed them: their counts still belong to
    /// their pod.
    fn name_exited(
        &mut self,
        containers: &mut SeriesTable<ContainerSeries>,
        now: Instant,
        may_answer: bool,
        timing: &Timing,
    ) -> bool {
        let mut has_shown = false;
        let Self { exited, source, index, exported, .. } = self;
        exited.retain_mut(|gone| {
            if let Some(mut known) = naming::listed(index, &gone.key) {
                known.identity.pod_labels = naming::pod_labels(index, &gone.key.uid, exported);
                let series = containers.rename(gone.series, known.identity, gone.pod, true);
                containers.detach(series);
                source.withdraw(&gone.key.id);
                has_shown = true;
                return false;
            }
            let age = now.saturating_duration_since(gone.found);
            if age < ASKED_FOR {
                source.ask(&gone.key.uid, &gone.key.id);
            }
            if !gone.is_shown && naming::is_shown_unnamed(index, &gone.key, age, may_answer, timing)
            {
                let identity = naming::unmapped(index, &gone.key);
                gone.series = containers.rename(gone.series, identity, gone.pod, true);
                containers.detach(gone.series);
                containers.show_provisionally(gone.series);
                gone.is_shown = true;
                has_shown = true;
            }
            true
        });
        has_shown
    }

    /// Keeps the counts of an unnamed exited container until it is listed.
    pub(super) fn keep_exited(
        &mut self,
        gone: ExitedUnnamed,
        containers: &mut SeriesTable<ContainerSeries>,
    ) {
        let pod = gone.pod;
        self.exited.push(gone);
        let of_pod = |gone: &&ExitedUnnamed| gone.pod == pod;
        if self.exited.iter().filter(of_pod).count() <= MAX_EXITED {
            return;
        }
        let Some(oldest) = self.exited.iter().position(|gone| gone.pod == pod) else {
            return;
        };
        let oldest = self.exited.remove(oldest);
        let identity = naming::exited_unnamed(&self.index, &oldest.key);
        let series = containers.rename(oldest.series, identity, pod, true);
        containers.detach(series);
        self.source.withdraw(&oldest.key.id);
    }
}

impl Sampler {
    /// Shows cgroups that were named, or got their usage, since the last tick, without waiting for
    /// the next one.
    pub(super) fn publish_new(&mut self, now: Instant) {
        if self.names.lookups.awaited == Awaited::Nothing {
            return;
        }
        let has_names = self.names.source.index().generation() != self.names.index.generation();
        let is_due = self.names.lookups.next.is_some_and(|due| due <= now);
        let is_pending = self.names.lookups.awaited == Awaited::Pending
            && self.tree.is_usage_pending(now, &self.schedule.timing);
        if !has_names && !is_due && !is_pending {
            return;
        }
        let has_shown = self.rename(now);
        if has_names || has_shown || is_pending {
            self.read_new(now);
            self.publish(now);
        }
        if self.tree.is_usage_pending(now, &self.schedule.timing) {
            self.names.lookups.wait_for(Awaited::Pending);
        }
    }

    /// Names the unnamed cgroups, and refreshes the others if the pods changed. Returns whether a
    /// series appeared or was renamed.
    pub(super) fn rename(&mut self, now: Instant) -> bool {
        let index = self.names.source.index();
        let changed = index.generation() != self.names.index.generation();
        self.names.index = index;
        let may_answer = self.names.source.may_answer();
        let may_answer_changed =
            may_answer != std::mem::replace(&mut self.names.may_answer, may_answer);
        let (containers, timing) = (&mut self.ledger.containers, &self.schedule.timing);
        containers.drop_renamed(now);
        self.ledger.pods.drop_renamed(now);
        let mut has_shown = self.names.name_exited(containers, now, may_answer, timing);
        self.names.lookups = Lookups::default();
        for at in 0..self.tree.sort_by_depth() {
            let id = self.tree.at_depth(at).id;
            if !changed && !may_answer_changed && self.tree.is_settled(id) {
                continue;
            }
            let cgroup = &self.tree.cgroups[id];
            let is_open = changed || cgroup.is_to_be_named(now, may_answer, &self.schedule.timing);
            match (&cgroup.kind, cgroup.naming) {
                (SampledKind::Container(_), Naming::Pending | Naming::Unmapped) if is_open => {
                    has_shown |= self.name(id, now);
                }
                (SampledKind::Container(_), Naming::Named) if changed => self.refresh(id),
                (SampledKind::Container(_), Naming::Sandbox | Naming::BusySandbox) if changed => {
                    has_shown |= self.name_listed(id);
                }
                (SampledKind::Pod { .. }, Naming::Pending | Naming::Unmapped)
                    if is_open && cgroup.series.is_some() =>
                {
                    self.name_pod(id, now);
                }
                _ => {}
            }
            let timing = &self.schedule.timing;
            let is_complete = self.tree.cgroups[id].is_complete(timing);
            if !is_complete {
                self.tree.open_files(id, &mut self.reader.errors);
            }
            let cgroup = &self.tree.cgroups[id];
            self.names.plan_lookup(cgroup, may_answer, timing);
            let is_settled =
                (is_complete || !cgroup.is_read()) && !cgroup.may_be_named(may_answer, timing);
            self.tree.settle(id, is_settled);
        }
        has_shown
    }

    /// Looks up the name of a container's cgroup. Returns whether a series appeared or was renamed.
    pub(super) fn name(&mut self, id: CgroupId, now: Instant) -> bool {
        self.tree.cgroups[id].lookup.record(now, &self.schedule.timing);
        let cgroup = &self.tree.cgroups[id];
        let SampledKind::Container(key) = &cgroup.kind else { return false };
        let listed_at = self.names.source.listed_at();
        let circumstances = Circumstances {
            age: now.saturating_duration_since(cgroup.found),
            age_at_list: listed_at.and_then(|listed| listed.checked_duration_since(cgroup.found)),
            limits: self.ledger.limits(cgroup),
            may_answer: self.names.source.may_answer(),
        };
        let surroundings = InTree { tree: &self.tree, proc_root: &self.names.proc_root, id };
        let (index, timing) = (&self.names.index, &self.schedule.timing);
        match naming::name(index, key, circumstances, &surroundings, timing) {
            Name::Known(known) => self.name_known(id, &known),
            Name::Sandbox => self.name_sandbox(id, now),
            Name::Unmapped(identity) => {
                self.names.source.ask(&key.uid, &key.id);
                let labels = cgroup
                    .series
                    .map(|series| &self.ledger.containers.get(series).row().identity.labels);
                let is_new = cgroup.naming != Naming::Unmapped || labels != Some(&identity.labels);
                if is_new {
                    self.assign(id, *identity, true, Naming::Unmapped);
                }
                return is_new;
            }
            Name::Pending => {
                self.names.source.ask(&key.uid, &key.id);
                if cgroup.series.is_none() {
                    let identity = naming::unmapped(&self.names.index, key);
                    self.assign(id, identity, false, Naming::Pending);
                }
                return false;
            }
        }
        true
    }

    fn name_known(&mut self, id: CgroupId, known: &KnownContainer) {
        let mut identity = known.identity.clone();
        if let SampledKind::Container(key) = &self.tree.cgroups[id].kind {
            self.names.source.withdraw(&key.id);
            identity.pod_labels = self.names.pod_labels(&key.uid);
        }
        let series = self.assign(id, identity, true, Naming::Named);
        self.ledger.describe(series, known);
    }

    /// Updates the spec data of the container. Its name does not change.
    fn refresh(&mut self, id: CgroupId) {
        let cgroup = &self.tree.cgroups[id];
        let (SampledKind::Container(key), Some(series)) = (&cgroup.kind, cgroup.series) else {
            return;
        };
        let identity = &self.ledger.containers.get(series).row().identity;
        if let Some(mut known) = naming::refreshed(&self.names.index, key, identity) {
            known.identity.pod_labels = self.names.pod_labels(&key.uid);
            self.ledger.containers.describe(series, known.identity.clone(), true);
            self.ledger.describe(series, &known);
        }
    }

    /// Names a cgroup that was classified as a sandbox but is listed as a container: a container
    /// may run a program called pause. Its counters are read from zero.
    fn name_listed(&mut self, id: CgroupId) -> bool {
        let SampledKind::Container(key) = &self.tree.cgroups[id].kind else { return false };
        let Some(known) = naming::listed(&self.names.index, key) else { return false };
        self.name_known(id, &known);
        self.tree.open_files(id, &mut self.reader.errors);
        true
    }

    fn name_sandbox(&mut self, id: CgroupId, now: Instant) {
        let cgroup = &self.tree.cgroups[id];
        let series = cgroup.series.map(|series| self.ledger.containers.get(series).row());
        let grown_ns = series.and_then(|row| row.usage_ns).unwrap_or(0);
        let is_idle = cgroup.activity.is_idle(now, &self.schedule.timing);
        let age = now.saturating_duration_since(cgroup.found);
        if !is_idle && is_busy(grown_ns, age) && self.show_busy_sandbox(id) {
            return;
        }
        self.tree.disturb(id);
        let cgroup = &mut self.tree.cgroups[id];
        cgroup.naming = Naming::Sandbox;
        cgroup.last = LastCounters::default();
        cgroup.activity = Activity::new();
        if let SampledKind::Container(key) = &cgroup.kind {
            self.names.source.withdraw(&key.id);
        }
        if let Some(series) = cgroup.series.take() {
            self.ledger.containers.discard(series);
        }
        self.reader.tasks.forget(id);
        self.tree.close_files(id);
    }

    /// Shows the sandboxes that have used CPU since the last walk.
    pub(super) fn show_busy_sandboxes(&mut self, now: Instant) {
        for slot in 0..self.tree.cgroups.capacity() {
            let Some(id) = self.tree.cgroups.id_at(slot) else { continue };
            let cgroup = &self.tree.cgroups[id];
            if cgroup.naming != Naming::Sandbox || cgroup.kind.container().is_none() {
                continue;
            }
            let last = cgroup.sandbox_usage;
            let usage = self.tree.read_usage(id, &mut self.reader.buffers);
            if let Some(((read, before), usage)) = last.zip(usage) {
                let time = now.saturating_duration_since(read);
                if is_busy(usage.saturating_sub(before), time) {
                    self.show_busy_sandbox(id);
                }
            }
            self.tree.cgroups[id].sandbox_usage = usage.map(|usage| (now, usage));
        }
    }

    /// Shows a sandbox as part of its pod. Returns whether it did.
    fn show_busy_sandbox(&mut self, id: CgroupId) -> bool {
        let Some(key) = self.tree.cgroups[id].kind.container() else { return false };
        // Its usage contains that of a container below it, which has a series of its own.
        if self.tree.cgroups.iter().any(|(_, cgroup)| cgroup.parent == Some(id)) {
            return false;
        }
        let Some(identity) = naming::sandbox(&self.names.index, key) else { return false };
        self.names.source.withdraw(&key.id);
        self.assign(id, identity, true, Naming::BusySandbox);
        self.tree.open_files(id, &mut self.reader.errors);
        true
    }

    /// The cgroup that holds a container's series: its pod's, wherever its own is. The series is
    /// removed with it.
    fn holder(&self, id: CgroupId) -> CgroupId {
        let cgroup = &self.tree.cgroups[id];
        let above = cgroup.parent.filter(|&parent| self.tree.is_pod(parent));
        let of_pod = || {
            let uid = &cgroup.kind.container()?.uid;
            let is_its =
                |kind: &SampledKind| matches!(kind, SampledKind::Pod { uid: pod } if pod == uid);
            self.tree.cgroups.iter().find(|(_, one)| is_its(&one.kind)).map(|(pod, _)| pod)
        };
        above.or_else(of_pod).unwrap_or(id)
    }

    /// Assigns a cgroup to the series of `identity`.
    fn assign(
        &mut self,
        id: CgroupId,
        identity: ContainerIdentity,
        visible: bool,
        naming: Naming,
    ) -> SeriesId {
        let pod = self.holder(id);
        self.tree.disturb(id);
        let cgroup = &mut self.tree.cgroups[id];
        cgroup.naming = naming;
        let series = match cgroup.series {
            Some(series) => self.ledger.containers.rename(series, identity, pod, visible),
            None => self.ledger.containers.attach(identity, pod, visible),
        };
        if naming == Naming::Unmapped {
            self.ledger.containers.show_provisionally(series);
        }
        if cgroup.series.replace(series) != Some(series) {
            // The gauges are not transferred.
            (cgroup.activity.slow_read, cgroup.activity.threads_read) = (None, None);
        }
        if self.ledger.containers.is_shared(series) {
            let all = self.tree.cgroups.iter().filter(|(_, cgroup)| {
                cgroup.kind.container().is_some() && cgroup.series == Some(series)
            });
            let all: Vec<CgroupId> = all.map(|(id, _)| id).collect();
            all.into_iter().for_each(|id| self.tree.wake(id));
        }
        // A cgroup with the same id takes over the counts that its predecessor left unnamed.
        self.names.exited.retain(|gone| gone.series != series);
        series
    }

    /// Compares the list of pods with the cgroups. Containers without one are searched for outside
    /// of the kubepods roots at the next tick.
    pub(super) fn seek_missing(&mut self, now: Instant) {
        let cgroups = self.tree.cgroups.iter();
        let cgroups =
            cgroups.filter_map(|(_, cgroup)| Some((cgroup.kind.container()?, cgroup.naming)));
        let list = (&*self.names.index, self.names.source.listed_at());
        if let Some(sought) = self.missing.check(now, list, &cgroups, &self.schedule.timing) {
            self.tree.seek(sought);
        }
    }

    /// Names a pod's own series, if the pod has one.
    pub(super) fn name_pod(&mut self, id: CgroupId, now: Instant) {
        let may_answer = self.names.source.may_answer();
        let cgroup = &mut self.tree.cgroups[id];
        let before = (cgroup.naming, cgroup.series);
        let SampledKind::Pod { uid } = &cgroup.kind else { return };
        cgroup.lookup.record(now, &self.schedule.timing);
        let age = now.saturating_duration_since(cgroup.found);
        let (identity, naming) =
            naming::pod(&self.names.index, uid, age, may_answer, &self.schedule.timing);
        cgroup.naming = naming;
        let visible = naming != Naming::Pending;
        let series = match cgroup.series {
            Some(series) => self.ledger.pods.rename(series, identity, id, visible),
            None => self.ledger.pods.attach(identity, id, visible),
        };
        cgroup.series = Some(series);
        if naming == Naming::Unmapped {
            self.ledger.pods.show_provisionally(series);
        }
        if before != (naming, Some(series)) {
            self.tree.disturb(id);
        }
    }
}
