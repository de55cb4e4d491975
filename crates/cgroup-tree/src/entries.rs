//! Tables of the known cgroups. Nothing in here touches the file system.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Instant;

use crate::slots::{Ids, Slots};
use crate::{CgroupId, Role, TreeCgroup, depth_key};

/// A known cgroup.
#[derive(Debug)]
pub(crate) struct KnownCgroup {
    pub(crate) cgroup: Arc<TreeCgroup>,
    children: Vec<CgroupId>,
    /// Number of the last walk that found it.
    pub(crate) seen: u64,
    /// Whether an inotify watch is set on it.
    pub(crate) is_watched: bool,
}

/// Properties of a directory that becomes a cgroup of the tree.
#[derive(Debug)]
pub(crate) struct NewCgroup {
    pub(crate) path: Arc<str>,
    pub(crate) inode: u64,
    pub(crate) role: Role,
    pub(crate) parent: Option<CgroupId>,
    pub(crate) is_this_kubelets: bool,
    pub(crate) seen_created: bool,
}

/// The known cgroups, by id, path and inode.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    ids: Ids,
    entries: Slots<KnownCgroup>,
    /// All cgroups but those above the roots.
    by_path: HashMap<Arc<str>, CgroupId>,
    by_inode: HashMap<u64, CgroupId>,
    /// Cgroups above the roots, ancestors before descendants.
    above: Vec<CgroupId>,
}

impl Entries {
    /// Adds a cgroup below its parent, under a new id.
    pub(crate) fn insert(&mut self, new: NewCgroup, found: Instant, seen: u64) -> Arc<TreeCgroup> {
        let NewCgroup { path, inode, role, parent, is_this_kubelets, seen_created } = new;
        let id = self.ids.take();
        let cgroup = Arc::new(TreeCgroup {
            id,
            parent,
            path,
            inode,
            role,
            is_this_kubelets,
            found,
            seen_created,
        });
        let entry = KnownCgroup {
            cgroup: Arc::clone(&cgroup),
            children: Vec::new(),
            seen,
            is_watched: false,
        };
        self.entries.insert(id, entry);
        if let Some(parent) = parent {
            self.entries[parent].children.push(id);
        }
        self.by_inode.insert(inode, id);
        match cgroup.role {
            Role::Above => self.above.push(id),
            _ => drop(self.by_path.insert(Arc::clone(&cgroup.path), id)),
        }
        cgroup
    }

    /// Removes the children from a cgroup, to be removed one by one before it.
    pub(crate) fn take_children(&mut self, id: CgroupId) -> Vec<CgroupId> {
        self.entries
            .get_mut(id)
            .map(|entry| std::mem::take(&mut entry.children))
            .unwrap_or_default()
    }

    /// Removes a cgroup that has no children any more.
    pub(crate) fn remove(&mut self, id: CgroupId) -> Option<Arc<TreeCgroup>> {
        let KnownCgroup { cgroup, .. } = self.entries.remove(id)?;
        if let Some(parent) = cgroup.parent.and_then(|parent| self.entries.get_mut(parent)) {
            parent.children.retain(|&child| child != id);
        }
        // A directory that was renamed is listed under its new path before the old one is removed.
        if self.by_inode.get(&cgroup.inode) == Some(&id) {
            self.by_inode.remove(&cgroup.inode);
        }
        match cgroup.role {
            Role::Above => self.above.retain(|&above| above != id),
            _ => drop(self.by_path.remove(&cgroup.path)),
        }
        self.ids.give_back(id);
        Some(cgroup)
    }

    /// Removes everything, even if the tables disagree; returns the ids, descendants first.
    pub(crate) fn clear(&mut self) -> Vec<CgroupId> {
        let mut all = self.ids();
        all.sort_by_key(|&id| std::cmp::Reverse(depth_key(&self[id].cgroup.path)));
        for &id in &all {
            self.entries.remove(id);
            self.ids.give_back(id);
        }
        self.by_path.clear();
        self.by_inode.clear();
        self.above.clear();
        all
    }

    /// Whether no root is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    pub(crate) fn get(&self, id: CgroupId) -> Option<&KnownCgroup> {
        self.entries.get(id)
    }

    pub(crate) fn ids(&self) -> Vec<CgroupId> {
        self.entries.iter().map(|(id, _)| id).collect()
    }

    /// Ids of the cgroups that the walk with this number has not found, except those above the
    /// roots.
    pub(crate) fn unseen_by(&self, walk: u64) -> Vec<CgroupId> {
        let unseen = self.entries.iter().filter(|(_, entry)| entry.seen != walk);
        unseen.filter(|(_, entry)| entry.cgroup.role != Role::Above).map(|(id, _)| id).collect()
    }

    /// Paths of the known roots.
    pub(crate) fn root_paths(&self) -> impl Iterator<Item = String> {
        let cgroups = self.entries.iter().map(|(_, entry)| &entry.cgroup);
        let roots = cgroups.filter(|cgroup| cgroup.role == Role::Root);
        roots.map(|root| root.path.to_string())
    }

    /// Ids of the containers outside of the roots.
    pub(crate) fn strays(&self) -> Vec<CgroupId> {
        let is_stray = |entry: &KnownCgroup| matches!(entry.cgroup.role, Role::Stray(_));
        self.entries.iter().filter(|(_, entry)| is_stray(entry)).map(|(id, _)| id).collect()
    }

    /// Ids of the cgroups above the roots, ancestors before descendants.
    pub(crate) fn above(&self) -> &[CgroupId] {
        &self.above
    }

    /// The cgroup above a root with this path below the mount.
    pub(crate) fn above_at(&self, path: &str) -> Option<CgroupId> {
        self.above.iter().copied().find(|&id| *self[id].cgroup.path == *path)
    }

    /// The root, or cgroup below one, with this path below the mount.
    pub(crate) fn at(&self, path: &str) -> Option<CgroupId> {
        self.by_path.get(path).copied()
    }

    /// The root at or above a cgroup.
    pub(crate) fn root_of(&self, id: CgroupId) -> Option<&Arc<TreeCgroup>> {
        let mut cgroup = &self.get(id)?.cgroup;
        while cgroup.role != Role::Root {
            cgroup = &self.get(cgroup.parent?)?.cgroup;
        }
        Some(cgroup)
    }

    /// All cgroups, ancestors before descendants.
    pub(crate) fn by_depth(&self) -> Vec<Arc<TreeCgroup>> {
        let cgroups = self.entries.iter().map(|(_, entry)| Arc::clone(&entry.cgroup));
        let mut all: Vec<_> = cgroups.collect();
        all.sort_by_key(|cgroup| depth_key(&cgroup.path));
        all
    }

    pub(crate) fn by_inode(&self, inode: u64) -> Option<Arc<TreeCgroup>> {
        self.by_inode.get(&inode).map(|&id| Arc::clone(&self[id].cgroup))
    }
}

impl Index<CgroupId> for Entries {
    type Output = KnownCgroup;

    fn index(&self, id: CgroupId) -> &KnownCgroup {
        &self.entries[id]
    }
}

impl IndexMut<CgroupId> for Entries {
    fn index_mut(&mut self, id: CgroupId) -> &mut KnownCgroup {
        &mut self.entries[id]
    }
}
