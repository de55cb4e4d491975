//! The watched cgroups, kept up to date by inotify and by walks.
//!
//! This module opens and closes files, but reads no counter.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cgroupfs::{Hierarchy, TreeEvent, subdirectories};
use kubepods::path::{self, Tops};
use slab::Slab;

use crate::budget::DescriptorBudget;
use crate::cgroup::{Cgroup, CgroupId, Kind};
use crate::files::{self, FileSet, ReadErrors};
use crate::watches::Watches;

/// Maximum depth of the kubelet's top cgroup: `/docker/<id>/kubelet.slice/kubelet-kubepods.slice`
/// on kind.
const LOCATE_DEPTH: usize = 5;

/// All watched cgroups.
pub(crate) struct Tree {
    pub(crate) hierarchy: Hierarchy,
    /// Top cgroups named by the operator, relative to the mount; if empty, they are searched for.
    named_tops: Vec<String>,
    /// The choice among the tops that were found.
    tops: Tops,
    pub(crate) cgroups: Slab<Cgroup>,
    by_path: HashMap<Arc<str>, CgroupId>,
    /// Cgroups above the tops, ancestors before descendants. They are not in `by_path`.
    above: Vec<CgroupId>,
    /// All cgroups, ancestors before descendants; within a depth in the order of their ids.
    by_depth: Vec<CgroupId>,
    /// Whether a cgroup was added or removed since `by_depth` was built.
    stale_depths: bool,
    pub(crate) watches: Watches,
    budget: DescriptorBudget,
    /// Cgroups added but not yet handled by the sampler.
    pub(crate) added: Vec<CgroupId>,
    pub(crate) removed: Vec<(CgroupId, Cgroup)>,
    /// Cgroups that were filled or emptied since the last tick (v2).
    pub(crate) populated: Vec<CgroupId>,
    /// Cgroups into which processes were moved since the last tick.
    pub(crate) attached: Vec<CgroupId>,
    overflowed: bool,
    /// Whether a top has appeared beside a known one.
    top_appeared: bool,
    /// Number of the current walk, for [`Cgroup::seen`].
    walk: u64,
    /// Whether some existing directory could not be listed in the current walk.
    walk_incomplete: bool,
    /// Number of the current tick.
    pub(crate) tick: u64,
    /// The current time, for [`Cgroup::found`].
    pub(crate) now: Instant,
    /// Whether the missing top was already logged.
    told_empty: bool,
}

impl Tree {
    pub(crate) fn new(
        hierarchy: Hierarchy,
        named_tops: Vec<String>,
        budget: DescriptorBudget,
    ) -> Self {
        Self {
            hierarchy,
            named_tops,
            tops: Tops::default(),
            cgroups: Slab::new(),
            by_path: HashMap::new(),
            above: Vec::new(),
            by_depth: Vec::new(),
            stale_depths: false,
            watches: Watches::new(),
            budget,
            added: Vec::new(),
            removed: Vec::new(),
            populated: Vec::new(),
            attached: Vec::new(),
            overflowed: false,
            top_appeared: false,
            walk: 0,
            walk_incomplete: false,
            tick: 0,
            now: Instant::now(),
            told_empty: false,
        }
    }

    /// Whether only a walk can find new cgroups: inotify is missing or incomplete, its queue
    /// overflowed, or a top appeared.
    pub(crate) fn must_walk(&self) -> bool {
        !self.reports_settings() || self.overflowed || self.top_appeared || self.by_path.is_empty()
    }

    /// Whether inotify reports every write to a setting.
    pub(crate) fn reports_settings(&self) -> bool {
        self.watches.error().is_none()
    }

    /// Retries the missing watches; a walk must follow, to find what was created meanwhile. Returns
    /// whether there is a new inotify instance.
    pub(crate) fn restore_watches(&mut self) -> bool {
        if self.reports_settings() {
            return false;
        }
        let is_new = self.watches.try_again();
        let ids: Vec<CgroupId> = self.cgroups.iter().map(|(id, _)| id).collect();
        for id in ids {
            if is_new || !self.cgroups[id].is_watched {
                self.watch(id);
                // Writes were not reported until now.
                self.cgroups[id].activity.settings_written = true;
            }
        }
        is_new
    }

    fn watch(&mut self, id: CgroupId) {
        let path = self.absolute(&self.cgroups[id].relative);
        let cgroup = &mut self.cgroups[id];
        cgroup.is_watched = self.watches.watch(&path, &cgroup.kind, self.hierarchy.version);
    }

    fn absolute(&self, relative: &str) -> PathBuf {
        self.hierarchy.cpu.join(relative)
    }

    /// Handles the inotify events since the last call, without blocking.
    pub(crate) fn drain_events(&mut self, errors: &mut ReadErrors) {
        let mut events = Vec::new();
        self.watches.drain(&mut events);
        for event in events {
            self.event(event, errors);
        }
        for at in 0..self.added.len() {
            self.open_files(self.added[at], errors);
        }
    }

    fn event(&mut self, event: TreeEvent, errors: &mut ReadErrors) {
        match event {
            TreeEvent::Overflow => self.overflowed = true,
            TreeEvent::Populated(path) => self.populated.extend(self.id_of(&path)),
            TreeEvent::Attached(path) => self.attached.extend(self.id_of(&path)),
            TreeEvent::Set(path) => {
                if let Some(id) = self.id_of(&path).or_else(|| self.above_at(self.relative(&path)?))
                {
                    self.cgroups[id].activity.settings_written = true;
                }
            }
            TreeEvent::Removed(path) => {
                let Some(id) = self.id_of(&path) else { return };
                // The path may be in use again already: then this event is about its predecessor.
                if !cgroupfs::inode(&path).is_ok_and(|inode| inode == self.cgroups[id].inode) {
                    self.remove(id);
                }
            }
            TreeEvent::Appeared(path) => {
                let Some(relative) = self.relative(&path) else { return };
                if self.is_top(relative) {
                    self.top_appeared = true;
                    return;
                }
                let Some((parent, name)) = relative.rsplit_once('/') else { return };
                let Some(&parent) = self.by_path.get(parent) else { return };
                if let Ok(inode) = cgroupfs::inode(&path) {
                    self.meet(parent, name, inode, errors);
                }
            }
        }
    }

    fn relative<'a>(&self, path: &'a Path) -> Option<&'a str> {
        path.strip_prefix(&self.hierarchy.cpu).ok()?.to_str()
    }

    fn id_of(&self, path: &Path) -> Option<CgroupId> {
        self.by_path.get(self.relative(path)?).copied()
    }

    /// Walks the whole tree: adds new cgroups, removes those that are gone, and replaces those with
    /// another inode.
    pub(crate) fn walk(&mut self, errors: &mut ReadErrors) {
        if std::mem::take(&mut self.overflowed) {
            self.cgroups.iter_mut().for_each(|(_, cgroup)| cgroup.activity.settings_written = true);
        }
        self.walk_incomplete = false;
        self.top_appeared = false;
        self.walk += 1;
        let tops = self.tops();
        self.drop_above(&tops);
        for top in tops {
            let Ok(inode) = cgroupfs::inode(&self.absolute(&top)) else { continue };
            match self.by_path.get(top.as_str()).copied() {
                Some(id) if self.cgroups[id].inode == inode => {
                    self.cgroups[id].seen = self.walk;
                    self.scan(id, errors);
                }
                Some(id) => {
                    self.remove(id);
                    self.add_top(&top, inode, errors);
                }
                None => self.add_top(&top, inode, errors),
            }
        }
        self.drop_unseen();
        self.plan_descriptors(errors);
        self.tell_if_empty();
    }

    /// Logs once that there is nothing to sample, and again if that recurs.
    fn tell_if_empty(&mut self) {
        let is_empty = self.by_path.is_empty();
        if is_empty && !self.told_empty {
            let wanted = if self.named_tops.is_empty() {
                "kubepods".to_owned()
            } else {
                self.named_tops.join(", ")
            };
            let below = self.hierarchy.cpu.display();
            tracing::warn!(
                "no cgroup {wanted} below {below}: no containers are sampled until it exists (set \
                 --kubepods if its name differs)"
            );
        }
        self.told_empty = is_empty;
    }

    /// Decides which files stay open, for the current number of cgroups, and opens them.
    fn plan_descriptors(&mut self, errors: &mut ReadErrors) {
        let version = self.hierarchy.version;
        let of_set = |set| {
            self.cgroups.iter().filter(|(_, cgroup)| cgroup.kind.file_set() == set).count() as u64
        };
        let sets =
            [FileSet::Bandwidth, FileSet::Pod, FileSet::Container].map(|set| (set, of_set(set)));
        let fewer = self.budget.plan(|rhythm| {
            sets.iter().map(|&(set, cgroups)| cgroups * files::count(version, set, rhythm)).sum()
        });
        if fewer {
            for (_, cgroup) in &mut self.cgroups {
                self.budget.give_back(cgroup.files.close_unkept(version, &self.budget));
            }
        }
        let ids: Vec<CgroupId> = self.cgroups.iter().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.open_files(id, errors));
    }

    fn tops(&mut self) -> Vec<String> {
        if !self.named_tops.is_empty() {
            return self.named_tops.clone();
        }
        // Search again each time: after a change of its driver a kubelet leaves the old top beside
        // the new one.
        let known = self.cgroups.iter().filter(|(_, cgroup)| cgroup.kind == Kind::Root);
        let known: Vec<String> = known.map(|(_, cgroup)| cgroup.relative.to_string()).collect();
        let tops = path::choose_tops(locate_tops(&self.hierarchy).into_iter().chain(known));
        if tops != self.tops {
            report_tops(&tops);
            self.tops.clone_from(&tops);
        }
        tops.taken
    }

    fn is_top(&self, relative: &str) -> bool {
        match self.named_tops.is_empty() {
            true => path::split(relative).is_some_and(|split| split.relative.is_empty()),
            false => self.named_tops.iter().any(|top| top == relative),
        }
    }

    /// Lists one known directory and handles its children.
    fn scan(&mut self, id: CgroupId, errors: &mut ReadErrors) {
        let children = match subdirectories(&self.absolute(&self.cgroups[id].relative)) {
            Ok(children) => children,
            Err(error) => {
                self.walk_incomplete |= !error.is_vanished();
                return;
            }
        };
        for child in children {
            self.meet(id, &child.name, child.inode, errors);
        }
    }

    /// Handles a directory `name` with this inode below `parent`.
    fn meet(&mut self, parent: CgroupId, name: &str, inode: u64, errors: &mut ReadErrors) {
        let relative = format!("{}/{name}", self.cgroups[parent].relative);
        match self.by_path.get(relative.as_str()).copied() {
            Some(id) if self.cgroups[id].inode == inode => {
                self.cgroups[id].seen = self.walk;
                if self.cgroups[id].kind.has_children() {
                    self.scan(id, errors);
                }
            }
            Some(id) => {
                self.remove(id);
                self.meet_new(parent, &relative, inode, errors);
            }
            None => self.meet_new(parent, &relative, inode, errors),
        }
    }

    fn meet_new(&mut self, parent: CgroupId, relative: &str, inode: u64, errors: &mut ReadErrors) {
        let top = &self.cgroups[self.top_of(parent)].relative;
        if let Some(kind) = path::parse(&relative[top.len() + 1..]).and_then(Kind::of) {
            self.add(relative, inode, kind, Some(parent), errors);
        }
    }

    fn top_of(&self, mut id: CgroupId) -> CgroupId {
        while let Some(parent) =
            self.cgroups[id].parent.filter(|_| self.cgroups[id].kind != Kind::Root)
        {
            id = parent;
        }
        id
    }

    fn add_top(&mut self, top: &str, inode: u64, errors: &mut ReadErrors) {
        let above = self.add_above(top);
        self.add(top, inode, Kind::Root, above, errors);
    }

    fn above_at(&self, relative: &str) -> Option<CgroupId> {
        self.above.iter().copied().find(|&id| *self.cgroups[id].relative == *relative)
    }

    /// Adds the visible cgroups above a top, from the mount's root down; returns the lowest.
    fn add_above(&mut self, top: &str) -> Option<CgroupId> {
        let mut parent = None;
        for relative in ancestors(top) {
            parent = self.above_at(relative).or_else(|| {
                let path = self.absolute(relative);
                let inode = cgroupfs::inode(&path).ok()?;
                let id = self.cgroups.insert(Cgroup::new(
                    relative.into(),
                    inode,
                    Kind::Above,
                    parent,
                    self.now,
                ));
                self.above.push(id);
                self.stale_depths = true;
                // The watch reports writes to its quota; its mask equals that of a directory in
                // which a top may reappear.
                self.watch(id);
                Some(id)
            });
        }
        parent
    }

    /// Removes cgroups that are above no top any more, or were replaced, and the tops below them.
    fn drop_above(&mut self, tops: &[String]) {
        for id in self.above.clone() {
            let Some(cgroup) = self.cgroups.get(id) else { continue };
            let is_needed =
                tops.iter().any(|top| ancestors(top).any(|above| above == &*cgroup.relative));
            let is_same = cgroupfs::inode(&self.absolute(&cgroup.relative))
                .is_ok_and(|inode| inode == cgroup.inode);
            if !is_needed || !is_same {
                self.remove(id);
            }
        }
    }

    fn add(
        &mut self,
        relative: &str,
        inode: u64,
        kind: Kind,
        parent: Option<CgroupId>,
        errors: &mut ReadErrors,
    ) {
        let has_children = kind.has_children();
        let mut cgroup = Cgroup::new(relative.into(), inode, kind, parent, self.now);
        cgroup.seen = self.walk;
        let id = self.cgroups.insert(cgroup);
        self.by_path.insert(Arc::clone(&self.cgroups[id].relative), id);
        self.added.push(id);
        self.stale_depths = true;
        self.watch(id);
        if has_children {
            // Scan after the watch is set: earlier children are found here, later ones are
            // reported.
            self.scan(id, errors);
        }
    }

    /// Number of cgroups, for [`Tree::at_depth`].
    pub(crate) fn sort_by_depth(&mut self) -> usize {
        if std::mem::take(&mut self.stale_depths) {
            self.by_depth.clear();
            self.by_depth.extend(&self.above);
            for rank in 0..=Kind::LAST_RANK {
                let of_rank =
                    |cgroup: &Cgroup| cgroup.kind.rank() == rank && cgroup.kind != Kind::Above;
                self.by_depth.extend(
                    self.cgroups.iter().filter(|(_, cgroup)| of_rank(cgroup)).map(|(id, _)| id),
                );
            }
        }
        self.by_depth.len()
    }

    /// The cgroup at this place of the order in which ancestors come before descendants, as of the
    /// last [`Tree::sort_by_depth`].
    pub(crate) fn at_depth(&self, place: usize) -> CgroupId {
        self.by_depth[place]
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

    /// Removes a cgroup and everything below it.
    pub(crate) fn remove(&mut self, id: CgroupId) {
        if self.cgroups[id].kind.has_children() {
            let children = self.cgroups.iter().filter(|(_, cgroup)| cgroup.parent == Some(id));
            let children: Vec<CgroupId> = children.map(|(child, _)| child).collect();
            children.into_iter().for_each(|child| self.remove(child));
        }
        let mut cgroup = self.cgroups.remove(id);
        self.stale_depths = true;
        if cgroup.kind == Kind::Above {
            // The watch stays: a top may reappear below it.
            self.above.retain(|&above| above != id);
            return cgroup.close_files(&mut self.budget);
        }
        self.by_path.remove(&cgroup.relative);
        self.added.retain(|&added| added != id);
        self.populated.retain(|&populated| populated != id);
        self.attached.retain(|&attached| attached != id);
        cgroup.close_files(&mut self.budget);
        let path = self.absolute(&cgroup.relative);
        self.watches.forget(&path);
        self.removed.push((id, cgroup));
    }

    fn drop_unseen(&mut self) {
        if self.walk_incomplete {
            return;
        }
        let walk = self.walk;
        let unseen = self.cgroups.iter().filter(|(_, cgroup)| cgroup.seen != walk);
        let gone: Vec<Arc<str>> = unseen.map(|(_, cgroup)| cgroup.relative.clone()).collect();
        for path in gone {
            if let Some(&id) = self.by_path.get(&path) {
                self.remove(id);
            }
        }
    }
}

/// Ancestors of a top, from the mount's root down: `""`, `docker`, `docker/0123` for
/// `docker/0123/kubepods`.
fn ancestors(top: &str) -> impl Iterator<Item = &str> {
    let parents = top.match_indices('/').map(|(slash, _)| &top[..slash]);
    std::iter::once("").chain(parents.filter(|parent| !parent.is_empty()))
}

/// Logs which of several cgroups called kubepods are read.
fn report_tops(tops: &Tops) {
    if tops.taken.len() > 1 || !tops.passed_over.is_empty() {
        let (taken, passed_over) = (tops.taken.join(", "), tops.passed_over.join(", "));
        tracing::warn!(
            taken,
            passed_over,
            "found several kubepods cgroups; set --kubepods to the one of this kubelet"
        );
    }
}

/// Cgroups called kubepods below the cpu mount, as paths relative to it.
fn locate_tops(hierarchy: &Hierarchy) -> Vec<String> {
    let is_top = |name: &str| path::kubepods_root(name).is_some();
    let hits = cgroupfs::locate(&hierarchy.cpu, LOCATE_DEPTH, is_top).unwrap_or_default();
    let relative =
        |hit: &PathBuf| hit.strip_prefix(&hierarchy.cpu).ok()?.to_str().map(str::to_owned);
    hits.iter().filter_map(relative).collect()
}
