//! Maps a cgroup's inode to its path, also for cgroups outside the tree: host services, and cgroups
//! that a container creates below itself. Watching them all is too costly; an unknown inode
//! triggers a walk.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::KubepodsTree;

/// Minimum time between two walks: a walk reads every directory of the hierarchy.
const REST: Duration = Duration::from_secs(5);
/// Number of walks for which a path is kept after its directory is gone, because the program's
/// tables are read later.
const KEPT_WALKS: u64 = 2;
/// Maximum number of stored directories.
const MAX_PATHS: usize = 100_000;

/// Paths of all cgroups of a hierarchy.
#[derive(Debug)]
pub struct PathIndex {
    mount: PathBuf,
    /// Tree of the hierarchy; its cgroups need no walk.
    tree: Option<Arc<KubepodsTree>>,
    paths: HashMap<u64, KnownPath>,
    walks: u64,
    walked: Option<Instant>,
}

#[derive(Debug)]
struct KnownPath {
    path: Box<str>,
    seen: u64,
}

impl PathIndex {
    /// `mount`: mount point of the hierarchy, `/sys/fs/cgroup` or `/sys/fs/cgroup/cpu`; `tree`: the
    /// tree of the same hierarchy, if there is one.
    #[must_use]
    pub fn new(mount: impl Into<PathBuf>, tree: Option<Arc<KubepodsTree>>) -> Self {
        Self { mount: mount.into(), tree, paths: HashMap::new(), walks: 0, walked: None }
    }

    /// Path relative to the mount, such as `system.slice/kubelet.service`; empty for the root. For
    /// an unknown inode, walks the hierarchy unless the last walk is recent. `None` if the cgroup
    /// does not exist or was not found yet.
    pub fn path(&mut self, cgroup: u64, now: Instant) -> Option<&str> {
        if !self.paths.contains_key(&cgroup)
            && let Some(known) = self.tree.as_ref().and_then(|tree| tree.by_inode(cgroup))
        {
            self.see(cgroup, (&*known.path).into());
        }
        let is_due = self.walked.is_none_or(|walked| now.saturating_duration_since(walked) >= REST);
        if is_due && !self.paths.contains_key(&cgroup) {
            self.walk();
            self.walked = Some(now);
        }
        self.paths.get(&cgroup).map(|entry| &*entry.path)
    }

    fn walk(&mut self) {
        self.walks += 1;
        if let Ok(inode) = cgroupfs::inode(&self.mount) {
            self.see(inode, "".into());
        }
        let mut unlisted = vec![String::new()];
        while let Some(parent) = unlisted.pop() {
            // A cgroup that was removed before it could be listed has no children.
            let Ok(children) = cgroupfs::subdirectories(&self.mount.join(&parent)) else {
                continue;
            };
            for child in children {
                let path =
                    if parent.is_empty() { child.name } else { format!("{parent}/{}", child.name) };
                self.see(child.inode, path.as_str().into());
                unlisted.push(path);
            }
        }
        let oldest = self.walks.saturating_sub(KEPT_WALKS);
        self.paths.retain(|_, entry| entry.seen > oldest);
    }

    fn see(&mut self, inode: u64, path: Box<str>) {
        if self.paths.len() < MAX_PATHS || self.paths.contains_key(&inode) {
            self.paths.insert(inode, KnownPath { path, seen: self.walks });
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel_text::CgroupVersion;

    use super::*;
    use crate::{Interests, TreeOptions};

    #[test]
    fn cgroups_of_the_tree_are_found_at_once() {
        let root = tempfile::tempdir().unwrap();
        let mount = || root.path().to_owned();
        let tree = KubepodsTree::new(mount(), CgroupVersion::V2, TreeOptions::default());
        let mut index = PathIndex::new(mount(), Some(Arc::clone(&tree)));
        let start = Instant::now();
        // Walks, and does not find it.
        assert_eq!(index.path(u64::MAX, start), None);
        std::fs::create_dir_all(root.path().join("kubepods/burstable")).unwrap();
        let mut subscription = tree.subscribe(Interests::ALL).unwrap();
        subscription.reconcile(start, Duration::ZERO, &mut Vec::new());
        let inode = cgroupfs::inode(&root.path().join("kubepods/burstable")).unwrap();
        assert_eq!(index.path(inode, start), Some("kubepods/burstable"));
    }

    #[test]
    fn paths_are_found_by_inode_for_a_while_after_removal() {
        let root = tempfile::tempdir().unwrap();
        let service = root.path().join("system.slice/a.service");
        std::fs::create_dir_all(&service).unwrap();
        let inode = |path: &std::path::Path| cgroupfs::inode(path).unwrap();
        let (top, id) = (inode(root.path()), inode(&service));
        let mut index = PathIndex::new(root.path(), None);
        let start = Instant::now();
        assert_eq!(index.path(id, start), Some("system.slice/a.service"));
        assert_eq!(index.path(top, start), Some(""));
        // A new cgroup does not trigger a walk at once.
        let new = root.path().join("new");
        std::fs::create_dir(&new).unwrap();
        assert_eq!(index.path(inode(&new), start + REST / 2), None);
        std::fs::remove_dir(&service).unwrap();
        assert_eq!(index.path(inode(&new), start + REST), Some("new"));
        assert_eq!(index.path(id, start + REST), Some("system.slice/a.service"));
        // A request for a nonexistent cgroup triggers further walks.
        assert_eq!(index.path(u64::MAX, start + REST * 2), None);
        assert_eq!(index.path(id, start + REST * 2), None);
    }
}
