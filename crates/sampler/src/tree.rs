//! The sampler's view of the kubepods tree: each cgroup with its files and last counters.
//!
//! This module opens and closes files, but reads no counter.

use std::io;
use std::iter;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroup_tree::{
    CgroupId, Change, Interests, KubepodsTree, Slots, Sought, Subscription, depth_key,
};
use cgroupfs::{Hierarchy, KeptFile};
use kernel_text::{CgroupVersion, CpuStat, parse_u64};

use crate::budget::{DescriptorBudget, ReadClass};
use crate::bulk::Collected;
use crate::cgroup::{Naming, PathQuota, SampledCgroup, SampledKind};
use crate::files::{self, FileSet, Keeping, ReadBuffers, ReadErrors};
use crate::plan::{ReadPlan, Watched, is_asleep, kept_files};
use crate::publish::Publication;
use crate::series::SeriesId;
use crate::timing::{self, Rechecks, Timing};

/// All cgroups that are read.
pub(crate) struct SampledTree {
    pub(crate) hierarchy: Hierarchy,
    subscription: Subscription,
    /// Buffer of the changes to apply.
    changes: Vec<Change>,
    /// Whether inotify reports every write to a setting.
    reports_settings: bool,
    pub(crate) cgroups: Slots<SampledCgroup>,
    /// The pods with a sandbox in their own cgroup.
    pub(crate) pod_sandboxes: Vec<CgroupId>,
    /// All cgroups, ancestors before descendants.
    by_depth: Vec<Visit>,
    /// By slot: whether a tick can pass a cgroup by.
    rest: Vec<Rest>,
    /// Whether a cgroup came, went, or got another name or other files since the last publication.
    changed: bool,
    /// Publication by which that happened last.
    published_change: u64,
    /// Whether a cgroup was added or removed since `by_depth` was built.
    stale_depths: bool,
    /// Number of levels of the cgroups below the mounts, as of `by_depth`.
    levels: Levels,
    /// Number of containers, as of `by_depth`.
    containers: usize,
    /// Whether the mounts show the kernel's roots, not parts of its hierarchies.
    shows_roots: bool,
    budget: DescriptorBudget,
    /// Files of a cgroup that runs that stay open.
    most: Keeping,
}

/// A cgroup in the order of the reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) id: CgroupId,
    parent: Option<CgroupId>,
}

/// Conditions under which a tick skips a cgroup. They are stored apart from the cgroup, so that a
/// skipped one is not read from memory: a thousand cgroups do not fit into the CPU's cache.
#[derive(Debug, Clone, Copy, Default)]
struct Rest {
    /// Its name is final, and all its files have been found.
    is_settled: bool,
    /// It is a sandbox, of which nothing is read.
    is_unread: bool,
    /// Whether nothing has run below this pod lately, and no quota that holds for it has throttled
    /// or changed since its last visit.
    is_still: bool,
    /// Whether there is nothing to read of this container while its pod is still, except at its
    /// rechecks.
    is_asleep: bool,
}

/// Numbers of levels below the mounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    /// Of all cgroups.
    pub(crate) all: u32,
    /// Of the pods and what is above them.
    pub(crate) pods: u32,
}

/// Maximum number of open files with the slow files of all containers, 8 MiB of kernel memory. Above
/// it, the slow files are opened for each read.
const WITH_SLOW: u64 = 1_800;
/// Inode of the kernel's root cgroup.
const ROOT_INODE: u64 = 1;

impl SampledTree {
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(
        hierarchy: Hierarchy,
        tree: &Arc<KubepodsTree>,
        budget: DescriptorBudget,
    ) -> io::Result<Self> {
        let mut mounts = iter::once(&hierarchy.cpu).chain(&hierarchy.cpuacct);
        let shows_roots =
            mounts.all(|mount| cgroupfs::inode(mount).is_ok_and(|inode| inode == ROOT_INODE));
        Ok(Self {
            hierarchy,
            subscription: tree.subscribe(Interests::COUNTERS)?,
            changes: Vec::new(),
            reports_settings: false,
            cgroups: Slots::default(),
            pod_sandboxes: Vec::new(),
            by_depth: Vec::new(),
            rest: Vec::new(),
            changed: true,
            published_change: 0,
            stale_depths: false,
            levels: Levels::default(),
            containers: 0,
            shows_roots,
            budget,
            most: Keeping { settings: false, ..Keeping::ALL },
        })
    }

    /// The tree, shared with its other subscribers.
    pub(crate) fn shared(&self) -> &Arc<KubepodsTree> {
        self.subscription.tree()
    }

    /// Whether inotify reports every write to a setting.
    pub(crate) fn reports_settings(&self) -> bool {
        self.reports_settings
    }

    /// The reason why inotify is missing or incomplete.
    pub(crate) fn watch_error(&self) -> Option<String> {
        self.shared().watch_error()
    }

    /// Takes the changes since the last call, without a walk.
    pub(crate) fn poll(&mut self, now: Instant) -> Vec<Change> {
        self.take_changes(|subscription, changes| subscription.poll(now, changes)).1
    }

    /// Takes the changes since the last call, after a walk if one is due or needed. Returns also
    /// whether there was one.
    pub(crate) fn reconcile(&mut self, is_due: bool, now: Instant) -> (bool, Vec<Change>) {
        let max_age = if is_due { Duration::ZERO } else { Duration::MAX };
        self.take_changes(|subscription, changes| subscription.reconcile(now, max_age, changes))
    }

    /// Takes the changes since the last call, after a read has reported that this cgroup is gone.
    /// Returns also whether it still exists.
    pub(crate) fn report_vanished(&mut self, id: CgroupId) -> (bool, Vec<Change>) {
        self.take_changes(|subscription, changes| subscription.report_vanished(id, changes))
    }

    fn take_changes<T>(
        &mut self,
        take: impl FnOnce(&mut Subscription, &mut Vec<Change>) -> T,
    ) -> (T, Vec<Change>) {
        let mut changes = std::mem::take(&mut self.changes);
        let result = take(&mut self.subscription, &mut changes);
        self.reports_settings = self.shared().is_watched();
        (result, changes)
    }

    /// Keeps the buffer of the changes that were taken.
    pub(crate) fn reuse(&mut self, mut changes: Vec<Change>) {
        changes.clear();
        self.changes = changes;
    }

    /// Adds a cgroup and opens its files; returns `None` if the sampler does not read it.
    pub(crate) fn add(
        &mut self,
        found: &cgroup_tree::TreeCgroup,
        errors: &mut ReadErrors,
    ) -> Option<CgroupId> {
        let kind = SampledKind::of(&found.role).filter(|_| found.is_this_kubelets)?;
        self.cgroups.insert(found.id, SampledCgroup::new(found, kind, self.most));
        self.stale_depths = true;
        self.disturb(found.id);
        self.open_files(found.id, errors);
        Some(found.id)
    }

    /// Removes a cgroup and closes its files.
    pub(crate) fn remove(&mut self, id: CgroupId) -> Option<SampledCgroup> {
        let mut cgroup = self.cgroups.remove(id)?;
        self.stale_depths = true;
        self.disturb(id);
        cgroup.close_files(&mut self.budget);
        Some(cgroup)
    }

    /// Opens again the files of a cgroup that exists although a file has vanished: a controller was
    /// disabled.
    pub(crate) fn reopen_files(&mut self, id: CgroupId, errors: &mut ReadErrors) {
        let Some(cgroup) = self.cgroups.get_mut(id) else { return };
        cgroup.close_files(&mut self.budget);
        cgroup.vanished = false;
        self.disturb(id);
        self.open_files(id, errors);
    }

    /// Decides which files stay open, for the current number of cgroups, and opens them.
    pub(crate) fn plan_descriptors(&mut self, errors: &mut ReadErrors) {
        let version = self.hierarchy.version;
        let of_set = |set| {
            self.cgroups.iter().filter(|(_, cgroup)| cgroup.kind.file_set() == set).count() as u64
        };
        let sets =
            [FileSet::Bandwidth, FileSet::Pod, FileSet::Container].map(|set| (set, of_set(set)));
        let of = |(set, cgroups), class| cgroups * files::count(version, set, class);
        let files = |class| -> u64 { sets.iter().map(|&set| of(set, class)).sum() };
        let few = [ReadClass::Counter, ReadClass::Running, ReadClass::Slow].map(files);
        self.changed = true;
        self.most.settings = !self.reports_settings;
        self.most.slow = few.iter().sum::<u64>() <= WITH_SLOW;
        let (most, above) = (self.most, sets[0]);
        let fewer = self.budget.plan(|class| match most.includes(class) {
            true => files(class),
            false => of(above, class),
        });
        if fewer {
            for (_, cgroup) in self.cgroups.iter_mut() {
                self.budget.give_back(cgroup.files.close_unkept(version, &self.budget));
            }
        }
        for slot in 0..self.cgroups.capacity() {
            if let Some(id) = self.cgroups.id_at(slot) {
                self.open_files(id, errors);
            }
        }
    }

    /// Whether some new container's usage may still appear.
    pub(crate) fn is_usage_pending(&self, now: Instant, timing: &Timing) -> bool {
        self.cgroups.iter().any(|(_, cgroup)| cgroup.is_usage_pending(now, timing))
    }

    /// The series of a container whose counters are read.
    pub(crate) fn series_to_read(&self, id: CgroupId) -> Option<SeriesId> {
        let cgroup = self.cgroups.get(id)?;
        let is_container = matches!(cgroup.kind, SampledKind::Container(_));
        cgroup.series.filter(|_| is_container && cgroup.is_read())
    }

    /// Whether this is the cgroup of a pod.
    pub(crate) fn is_pod(&self, id: CgroupId) -> bool {
        self.cgroups.get(id).is_some_and(|cgroup| matches!(cgroup.kind, SampledKind::Pod { .. }))
    }

    /// Reads the CPU time of a cgroup whose files are not open, nanoseconds; `None` if it cannot be
    /// read.
    pub(crate) fn read_usage(&self, id: CgroupId, buffers: &mut ReadBuffers) -> Option<u64> {
        let Hierarchy { version, cpu, cpuacct, .. } = &self.hierarchy;
        let mut read = |mount: &Path, name| {
            let directory = mount.join(&*self.cgroups[id].relative);
            let file = KeptFile::open(&directory, name).ok()??;
            file.read(&mut buffers.text).map(<[u8]>::to_vec).ok()
        };
        match version {
            CgroupVersion::V1 => {
                parse_u64("cpuacct.usage", &read(cpuacct.as_deref()?, "cpuacct.usage")?).ok()
            }
            CgroupVersion::V2 => CpuStat::parse(&read(cpu, "cpu.stat")?).ok()?.usage_ns,
        }
    }

    /// Sets the containers to search for outside of the kubepods roots.
    pub(crate) fn seek(&self, sought: Vec<Sought>) {
        self.subscription.seek(sought);
    }

    /// Quotas above a cgroup.
    pub(crate) fn above(&self, id: CgroupId) -> PathQuota {
        let parent = self.cgroups[id].parent;
        parent.map_or(PathQuota::NONE, |parent| self.cgroups[parent].path)
    }

    /// Inputs of the read plan of a cgroup.
    pub(crate) fn watched(&self, id: CgroupId) -> Watched<'_> {
        let cgroup = &self.cgroups[id];
        let parent = cgroup.parent.map(|parent| &self.cgroups[parent]);
        Watched {
            files: cgroup.kind.file_set(),
            is_above_root: cgroup.kind == SampledKind::Above,
            phase: timing::phase(id.slot()),
            found: cgroup.found,
            activity: &cgroup.activity,
            above: parent.map_or(PathQuota::NONE, |parent| parent.path),
            parent: parent.map(|parent| &parent.activity),
        }
    }

    /// Number of cgroups, for [`SampledTree::at_depth`].
    pub(crate) fn sort_by_depth(&mut self) -> usize {
        if std::mem::take(&mut self.stale_depths) {
            self.by_depth.clear();
            let visits =
                self.cgroups.iter().map(|(id, cgroup)| Visit { id, parent: cgroup.parent });
            self.by_depth.extend(visits);
            // Of two cgroups of a container the newer one is shown: that which is visited last.
            self.by_depth.sort_by_key(|visit| {
                let cgroup = &self.cgroups[visit.id];
                (depth_key(&cgroup.relative), cgroup.found)
            });
            (self.levels, self.containers) = (Levels::default(), 0);
            for (_, cgroup) in self.cgroups.iter() {
                let levels = levels_of(&cgroup.relative);
                self.levels.all = self.levels.all.max(levels);
                match cgroup.kind {
                    SampledKind::Container(_) => self.containers += 1,
                    _ => self.levels.pods = self.levels.pods.max(levels),
                }
            }
        }
        self.by_depth.len()
    }

    /// Number of containers, as of the last [`SampledTree::sort_by_depth`].
    pub(crate) fn containers(&self) -> usize {
        self.containers
    }

    /// Number of levels of the cgroups below the kernel's root, as of the last
    /// [`SampledTree::sort_by_depth`]; `None` if the mounts show only a part of its hierarchies.
    pub(crate) fn levels(&self) -> Option<Levels> {
        self.shows_roots.then_some(self.levels)
    }

    /// The cgroup at this index of the order in which ancestors come before descendants, as of the
    /// last [`SampledTree::sort_by_depth`].
    pub(crate) fn at_depth(&self, index: usize) -> Visit {
        self.by_depth[index]
    }

    fn rest_of(&mut self, id: CgroupId) -> &mut Rest {
        if self.rest.len() <= id.slot() {
            self.rest.resize(id.slot() + 1, Rest::default());
        }
        &mut self.rest[id.slot()]
    }

    /// Makes the next tick visit a cgroup, and the next snapshot rewrite its row.
    pub(crate) fn disturb(&mut self, id: CgroupId) {
        *self.rest_of(id) = Rest::default();
        self.changed = true;
    }

    /// Makes the next tick visit a cgroup.
    pub(crate) fn wake(&mut self, id: CgroupId) {
        self.rest_of(id).is_asleep = false;
    }

    /// Records whether the name of a cgroup is final and all its files have been found.
    pub(crate) fn settle(&mut self, id: CgroupId, is_settled: bool) {
        self.rest_of(id).is_settled = is_settled;
    }

    /// Whether the name of a cgroup is final and all its files have been found.
    pub(crate) fn is_settled(&self, id: CgroupId) -> bool {
        self.rest.get(id.slot()).is_some_and(|rest| rest.is_settled)
    }

    /// Whether there is nothing to read of this cgroup in this tick, as of its last visit and that of
    /// its pod in this tick.
    pub(crate) fn rests(&self, visit: Visit, rechecks: &Rechecks) -> bool {
        let Some(rest) = self.rest.get(visit.id.slot()) else { return false };
        let is_pod_still = || {
            let pod = visit.parent.and_then(|pod| self.rest.get(pod.slot()));
            pod.is_some_and(|pod| pod.is_still)
        };
        let is_due = || rechecks.idle.contains(timing::phase(visit.id.slot()));
        // Without events, settings are read in each tick.
        let may_sleep = rest.is_asleep && self.reports_settings;
        rest.is_unread || may_sleep && is_pod_still() && !is_due()
    }

    /// Records after a visit whether the next ones can be left out. `before`: the quotas of this
    /// cgroup and its ancestors before the visit; `plan`: what there would be to read now.
    pub(crate) fn note_visit(
        &mut self,
        id: CgroupId,
        before: PathQuota,
        plan: &ReadPlan,
        now: Instant,
        timing: &Timing,
    ) {
        let Watched { files, activity, parent, .. } = self.watched(id);
        let cgroup = &self.cgroups[id];
        let is_still = activity.is_idle(now, timing) && cgroup.path == before;
        let is_settled = self.is_settled(id);
        let pod = parent.filter(|_| files == FileSet::Container && is_settled);
        let is_asleep = pod.is_some_and(|pod| is_asleep(activity, pod, plan, now, timing));
        let is_unread = cgroup.naming == Naming::Sandbox && is_settled;
        *self.rest_of(id) = Rest { is_settled, is_unread, is_still, is_asleep };
    }

    /// Whether the rows of the cgroups that the publication finds are old.
    pub(crate) fn differs_since(&mut self, publication: Publication) -> bool {
        if std::mem::take(&mut self.changed) {
            self.published_change = publication.number;
        }
        self.published_change > publication.written
    }

    /// Opens the files of a cgroup that are not open yet.
    pub(crate) fn open_files(&mut self, id: CgroupId, errors: &mut ReadErrors) {
        let cgroup = &mut self.cgroups[id];
        if !cgroup.is_read() {
            return;
        }
        let was_unkept = cgroup.files.any_unkept();
        if let Err(cgroupfs::Error::Io { source, .. }) =
            cgroup.files.open(&self.hierarchy, &cgroup.relative, &mut self.budget)
        {
            errors.count(&source);
        }
        // It is counted in the snapshot.
        self.changed |= cgroup.files.any_unkept() != was_unkept;
    }

    /// Closes the files that are read rarely, and opens them again once it runs. `collected`: what
    /// comes from another source.
    pub(crate) fn keep_files(
        &mut self,
        id: CgroupId,
        collected: Collected,
        now: Instant,
        timing: &Timing,
        errors: &mut ReadErrors,
    ) {
        let Collected { counters, running } = collected;
        let most = Keeping { counters: !counters, running: !running, ..self.most };
        let keeping = kept_files(&self.watched(id), most, now, timing);
        let files = &mut self.cgroups[id].files;
        if files.keeping() != keeping {
            self.budget.give_back(files.keep(self.hierarchy.version, keeping));
            self.changed = true;
            self.open_files(id, errors);
        }
    }

    /// Closes a cgroup's files, because its counters are not needed.
    pub(crate) fn close_files(&mut self, id: CgroupId) {
        self.cgroups[id].close_files(&mut self.budget);
    }
}

impl AsFd for SampledTree {
    /// Descriptor that becomes readable when there are changes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.subscription.as_fd()
    }
}

/// Number of levels of a path below the mount.
fn levels_of(path: &str) -> u32 {
    path.split('/').filter(|name| !name.is_empty()).fold(0, |levels, _| levels + 1)
}

#[cfg(test)]
mod tests {
    use cgroup_tree::TreeOptions;

    use super::*;

    #[test]
    fn an_idle_container_is_passed_by_only_while_writes_to_settings_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("cgroup.controllers"), "cpu\n").unwrap();
        let hierarchy = Hierarchy::detect(directory.path()).unwrap();
        let shared =
            KubepodsTree::new(hierarchy.cpu.clone(), hierarchy.version, TreeOptions::default());
        let mut tree =
            SampledTree::new(hierarchy, &shared, DescriptorBudget::from_limit(4096)).unwrap();
        let [pod, id] = [1, 2].map(CgroupId::from_u64);
        tree.rest_of(pod).is_still = true;
        tree.rest_of(id).is_asleep = true;
        let rechecks = Rechecks::new(Instant::now());
        for is_reported in [true, false] {
            tree.reports_settings = is_reported;
            assert_eq!(tree.rests(Visit { id, parent: Some(pod) }, &rechecks), is_reported);
        }
    }

    #[test]
    fn each_directory_of_a_path_is_a_level() {
        assert_eq!(["", "kubepods", "kubepods/pod1/c"].map(levels_of), [0, 1, 3]);
    }
}
