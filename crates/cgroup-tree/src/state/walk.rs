//! Discovery: walks of the hierarchy, and single directories that an event has reported.

use std::path::Path;

use cgroupfs::subdirectories;
use kubepods::path::{self, CgroupPath};

use super::TreeState;
use crate::entries::NewCgroup;
use crate::queue::Change;
use crate::roots::{Root, ancestors};
use crate::{CgroupId, Role, strays};

impl TreeState {
    /// Walks the whole tree: adds new cgroups, removes those that are gone, and replaces those with
    /// another inode.
    pub(super) fn walk(&mut self) {
        if std::mem::take(&mut self.overflowed) {
            self.note_lost_writes();
        }
        (self.walk_incomplete, self.root_appeared) = (false, false);
        self.walk += 1;
        let roots = self.roots.find(&self.mount, self.entries.root_paths());
        self.drop_above(&roots);
        roots.iter().for_each(|root| self.reconcile_root(root));
        self.reconcile_strays();
        self.drop_unseen();
        self.roots.report_missing(self.entries.is_empty(), &self.mount);
    }

    /// Reports a write to every setting, because real ones may have been lost.
    fn note_lost_writes(&mut self) {
        for id in self.entries.ids() {
            self.note(&Change::SettingsWritten(id));
            self.note(&Change::CpusWritten(id));
        }
    }

    fn reconcile_root(&mut self, root: &Root) {
        let Ok(inode) = cgroupfs::inode(&self.mount.join(&root.path)) else { return };
        let is_this_kubelets = root.is_this_kubelets;
        if let Some(id) = self.entries.at(&root.path) {
            let entry = &mut self.entries[id];
            let known = &entry.cgroup;
            if known.inode == inode && known.is_this_kubelets == is_this_kubelets {
                entry.seen = self.walk;
                return self.scan(id);
            }
            self.remove(id);
        }
        let parent = if is_this_kubelets { self.add_above(&root.path) } else { None };
        let path = root.path.as_str().into();
        let role = Role::Root;
        let seen_created = false;
        self.add(NewCgroup { path, inode, role, parent, is_this_kubelets, seen_created });
    }

    /// Lists one known directory and handles its children.
    fn scan(&mut self, id: CgroupId) {
        let path = self.mount.join(&*self.entries[id].cgroup.path);
        match subdirectories(&path) {
            Ok(children) => {
                for child in children {
                    self.reconcile_child(id, &child.name, child.inode);
                }
            }
            Err(error) => self.walk_incomplete |= !error.is_vanished(),
        }
    }

    /// Handles a directory that an event has reported.
    pub(super) fn on_appeared(&mut self, path: &Path) {
        let Some(relative) = self.relative(path) else { return };
        if self.roots.is_root(relative) {
            self.root_appeared = true;
            return;
        }
        let Some((parent, name)) = relative.rsplit_once('/') else { return };
        let Some(parent) = self.entries.at(parent) else { return };
        // A directory in which another kubelet's root appears is watched whatever its role.
        let is_listed = self.entries[parent].cgroup.role.has_children();
        if is_listed && let Ok(inode) = cgroupfs::inode(path) {
            self.is_reported = true;
            self.reconcile_child(parent, name, inode);
            self.is_reported = false;
        }
    }

    /// Handles a directory `name` with this inode below `parent`.
    fn reconcile_child(&mut self, parent: CgroupId, name: &str, inode: u64) {
        let above = &self.entries[parent].cgroup;
        let is_this_kubelets = above.is_this_kubelets;
        let path = format!("{}/{name}", above.path);
        if let Some(id) = self.entries.at(&path) {
            let entry = &mut self.entries[id];
            if entry.cgroup.inode == inode {
                entry.seen = self.walk;
                if entry.cgroup.role.has_children() {
                    self.scan(id);
                }
                return;
            }
            self.remove(id);
        }
        if let Some(role) = self.role_of(parent, &path) {
            let (path, parent) = (path.into(), Some(parent));
            let seen_created = self.is_reported;
            self.add(NewCgroup { path, inode, role, parent, is_this_kubelets, seen_created });
        }
    }

    /// Role of a child; `None` if it does not belong to the tree.
    fn role_of(&self, parent: CgroupId, path: &str) -> Option<Role> {
        let root = self.entries.root_of(parent)?;
        match path::parse(&path[root.path.len() + 1..]) {
            Some(CgroupPath::Nested { .. }) => None,
            Some(path) => Some(Role::Known(path)),
            // Only root on the host creates cgroups inside a pod's.
            None => {
                let Role::Known(CgroupPath::Pod(pod)) = &self.entries[parent].cgroup.role else {
                    return None;
                };
                let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
                let id = path::container_id(name).unwrap_or(name).into();
                Some(Role::Foreign { pod: pod.clone(), id })
            }
        }
    }

    /// Keeps the known strays that still exist, and searches for the containers that are sought.
    fn reconcile_strays(&mut self) {
        self.sought_anew = false;
        for id in self.entries.strays() {
            if self.remove_if_gone(id) {
                self.entries[id].seen = self.walk;
            }
        }
        if self.sought.is_empty() {
            return;
        }
        for (relative, container) in strays::find(&self.mount, &self.sought) {
            let is_known = self.entries.at(&relative).is_some();
            let inode = cgroupfs::inode(&self.mount.join(&relative));
            let Some(inode) = inode.ok().filter(|_| !is_known) else { continue };
            let role = Role::Stray(container);
            let (parent, path) = (self.add_above(&relative), relative.into());
            let (is_this_kubelets, seen_created) = (true, false);
            self.add(NewCgroup { path, inode, role, parent, is_this_kubelets, seen_created });
        }
    }

    /// Adds the visible cgroups above a root or a stray, from the mount's root down; returns the
    /// lowest. A stray may also be below a cgroup of the tree.
    fn add_above(&mut self, root: &str) -> Option<CgroupId> {
        let mut parent = None;
        for relative in ancestors(root) {
            let known = self.entries.above_at(relative).or_else(|| self.entries.at(relative));
            parent = known.or_else(|| {
                let inode = cgroupfs::inode(&self.mount.join(relative)).ok()?;
                let (path, role) = (relative.into(), Role::Above);
                let (is_this_kubelets, seen_created) = (true, false);
                Some(self.insert(NewCgroup {
                    path,
                    inode,
                    role,
                    parent,
                    is_this_kubelets,
                    seen_created,
                }))
            });
        }
        parent
    }

    /// Removes cgroups that are above no root any more, or were replaced, and the roots below them.
    fn drop_above(&mut self, roots: &[Root]) {
        for id in self.entries.above().to_vec() {
            let Some(cgroup) = self.entries.get(id).map(|entry| &entry.cgroup) else { continue };
            let is_above = |path: &str| ancestors(path).any(|above| above == &*cgroup.path);
            let strays = self.entries.strays();
            let is_needed = roots.iter().any(|root| root.is_this_kubelets && is_above(&root.path))
                || strays.iter().any(|&id| is_above(&self.entries[id].cgroup.path));
            let is_same = cgroupfs::inode(&self.mount.join(&*cgroup.path))
                .is_ok_and(|inode| inode == cgroup.inode);
            if !is_needed || !is_same {
                self.remove(id);
            }
        }
    }

    fn add(&mut self, new: NewCgroup) {
        let has_children = new.role.has_children();
        let id = self.insert(new);
        if has_children {
            // Scan after the watch is set: earlier children are found here, later ones are
            // reported.
            self.scan(id);
        }
    }

    fn insert(&mut self, new: NewCgroup) -> CgroupId {
        let cgroup = self.entries.insert(new, self.now, self.walk);
        let id = cgroup.id;
        self.note(&Change::Added(cgroup));
        self.watch(id);
        id
    }

    fn drop_unseen(&mut self) {
        if !self.walk_incomplete {
            self.entries.unseen_by(self.walk).into_iter().for_each(|id| self.remove(id));
        }
    }
}
