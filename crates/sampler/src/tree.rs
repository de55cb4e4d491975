//! The sampler's view of the kubepods tree: each cgroup with its files and last counters.
//!
//! This module opens and closes files, but reads no counter.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroup_tree::{CgroupId, Change, Interests, KubepodsTree, Slots, Subscription, depth_key};
use cgroupfs::Hierarchy;

use crate::budget::DescriptorBudget;
use crate::cgroup::{Cgroup, SampledKind};
use crate::files::{self, FileSet, ReadErrors};

/// All cgroups that are read.
pub(crate) struct SampledTree {
    pub(crate) hierarchy: Hierarchy,
    subscription: Subscription,
    /// Buffer of the changes to follow.
    changes: Vec<Change>,
    /// Whether inotify reports every write to a setting.
    reports_settings: bool,
    pub(crate) cgroups: Slots<Cgroup>,
    /// All cgroups, ancestors before descendants.
    by_depth: Vec<CgroupId>,
    /// Whether a cgroup was added or removed since `by_depth` was built.
    stale_depths: bool,
    budget: DescriptorBudget,
    /// Cgroups added but not yet handled by the sampler.
    pub(crate) added: Vec<CgroupId>,
    pub(crate) removed: Vec<(CgroupId, Cgroup)>,
    /// Cgroups that were filled or emptied since the last tick (v2).
    pub(crate) populated: Vec<CgroupId>,
    /// Cgroups into which processes were moved since the last tick.
    pub(crate) attached: Vec<CgroupId>,
    /// Number of the current tick.
    pub(crate) tick: u64,
    /// The current time.
    pub(crate) now: Instant,
}

impl SampledTree {
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(
        hierarchy: Hierarchy,
        tree: &Arc<KubepodsTree>,
        budget: DescriptorBudget,
    ) -> io::Result<Self> {
        Ok(Self {
            hierarchy,
            subscription: tree.subscribe(Interests::COUNTERS)?,
            changes: Vec::new(),
            reports_settings: false,
            cgroups: Slots::default(),
            by_depth: Vec::new(),
            stale_depths: false,
            budget,
            added: Vec::new(),
            removed: Vec::new(),
            populated: Vec::new(),
            attached: Vec::new(),
            tick: 0,
            now: Instant::now(),
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

    /// Follows the changes since the last call, without a walk.
    pub(crate) fn poll(&mut self, errors: &mut ReadErrors) {
        let mut changes = std::mem::take(&mut self.changes);
        self.subscription.poll(self.now, &mut changes);
        self.follow(changes);
        self.open_added(errors);
    }

    /// Follows the changes since the last call, after a walk if one is due or needed. Returns
    /// whether there was one.
    pub(crate) fn reconcile(&mut self, is_due: bool, errors: &mut ReadErrors) -> bool {
        let max_age = if is_due { Duration::ZERO } else { Duration::MAX };
        let mut changes = std::mem::take(&mut self.changes);
        let walked = self.subscription.reconcile(self.now, max_age, &mut changes);
        self.follow(changes);
        if walked {
            self.plan_descriptors(errors);
        } else {
            self.open_added(errors);
        }
        walked
    }

    fn follow(&mut self, mut changes: Vec<Change>) {
        for change in changes.drain(..) {
            match change {
                Change::Added(cgroup) => self.add(&cgroup),
                Change::Removed(id) => self.remove(id),
                Change::SettingsWritten(id) => {
                    if let Some(cgroup) = self.cgroups.get_mut(id) {
                        cgroup.activity.settings_written = true;
                    }
                }
                Change::Populated(id) => self.populated.push(id),
                Change::Attached(id) => self.attached.push(id),
                Change::CpusWritten(_) => {}
            }
        }
        self.changes = changes;
        self.reports_settings = self.shared().is_watched();
    }

    fn add(&mut self, found: &cgroup_tree::Cgroup) {
        let kind = SampledKind::of(&found.role).filter(|_| found.is_this_kubelets);
        let Some(kind) = kind else { return };
        self.cgroups.insert(found.id, Cgroup::new(found, kind));
        self.added.push(found.id);
        self.stale_depths = true;
    }

    fn remove(&mut self, id: CgroupId) {
        let Some(mut cgroup) = self.cgroups.remove(id) else { return };
        self.stale_depths = true;
        self.added.retain(|&added| added != id);
        cgroup.close_files(&mut self.budget);
        self.removed.push((id, cgroup));
    }

    /// Handles a read that has reported a missing file. If the cgroup still exists, a controller
    /// was disabled: opens the files that are left.
    pub(crate) fn on_vanished(&mut self, id: CgroupId, errors: &mut ReadErrors) {
        if !self.cgroups.get(id).is_some_and(|cgroup| cgroup.vanished) {
            return;
        }
        let mut changes = std::mem::take(&mut self.changes);
        let exists = self.subscription.report_vanished(id, &mut changes);
        self.follow(changes);
        if let Some(cgroup) = self.cgroups.get_mut(id).filter(|_| exists) {
            cgroup.close_files(&mut self.budget);
            cgroup.vanished = false;
            self.open_files(id, errors);
        }
    }

    /// Decides which files stay open, for the current number of cgroups, and opens them.
    fn plan_descriptors(&mut self, errors: &mut ReadErrors) {
        let version = self.hierarchy.version;
        let of_set = |set| {
            self.cgroups.iter().filter(|(_, cgroup)| cgroup.kind.file_set() == set).count() as u64
        };
        let sets =
            [FileSet::Bandwidth, FileSet::Pod, FileSet::Container].map(|set| (set, of_set(set)));
        let fewer = self.budget.plan(|class| {
            sets.iter().map(|&(set, cgroups)| cgroups * files::count(version, set, class)).sum()
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

    /// Number of cgroups, for [`SampledTree::at_depth`].
    pub(crate) fn sort_by_depth(&mut self) -> usize {
        if std::mem::take(&mut self.stale_depths) {
            self.by_depth.clear();
            self.by_depth.extend(self.cgroups.iter().map(|(id, _)| id));
            self.by_depth.sort_by_key(|&id| depth_key(&self.cgroups[id].relative));
        }
        self.by_depth.len()
    }

    /// The cgroup at this index of the order in which ancestors come before descendants, as of the
    /// last [`SampledTree::sort_by_depth`].
    pub(crate) fn at_depth(&self, index: usize) -> CgroupId {
        self.by_depth[index]
    }

    fn open_added(&mut self, errors: &mut ReadErrors) {
        for at in 0..self.added.len() {
            self.open_files(self.added[at], errors);
        }
    }

    /// Opens the files of a cgroup that are not open yet.
    pub(crate) fn open_files(&mut self, id: CgroupId, errors: &mut ReadErrors) {
        let cgroup = &mut self.cgroups[id];
        if !cgroup.is_read() {
            return;
        }
        if let Err(cgroupfs::Error::Io { source, .. }) =
            cgroup.files.open(&self.hierarchy, &cgroup.relative, &mut self.budget)
        {
            errors.count(&source);
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
