//! Maps a cgroup's inode to its path, also for cgroups outside the tree: host services, and cgroups
//! that a container creates below itself. Watching them all is too costly; an unknown inode
//! triggers a walk.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubepods::path::{CgroupPath, parse_below_mount};

use crate::KubepodsTree;

/// Minimum time between two walks: a walk reads every directory of the hierarchy.
const REST: Duration = Duration::from_secs(5);
/// Number of walks for which a path is kept after its directory is gone, because the program's
/// tables are read later.
const KEPT_WALKS: u64 = 2;
/// Maximum number of stored directories.
const MAX_PATHS: usize = 100_000;
/// Maximum number of directories that a walk reads below one container: a container that may create
/// cgroups can create thousands, and must not make the walk expensive for the node. Waits in others
/// stay unknown.
const MAX_NESTED: usize = 256;

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
        // Directories, and for those of a container, its place in `nested`.
        let mut unlisted = vec![(String::new(), None)];
        // Number of directories seen below each container.
        let mut nested: Vec<usize> = Vec::new();
        while let Some((parent, container)) = unlisted.pop() {
            // A cgroup that was removed before it could be listed has no children.
            let Ok(children) = cgroupfs::subdirectories(&self.mount.join(&parent)) else {
                continue;
            };
            for child in children {
                if let Some(container) = container {
                    nested[container] += 1;
                    if nested[container] > MAX_NESTED {
                        break;
                    }
                }
                let path =
                    if parent.is_empty() { child.name } else { format!("{parent}/{}", child.name) };
                self.see(child.inode, path.as_str().into());
                let container = container.or_else(|| {
                    let is_one = matches!(parse_below_mount(&path), Some(CgroupPath::Container(_)));
                    is_one.then(|| {
                        nested.push(0);
                        nested.len() - 1
                    })
                });
                unlisted.push((path, container));
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
    fn many_cgroups_below_a_container_hide_no_other() {
        let root = tempfile::tempdir().unwrap();
        let pod = root.path().join("kubepods/burstable/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0001");
        let containers = ["1", "2"].map(|digit| pod.join(digit.repeat(64)));
        for number in 0..10_000 {
            std::fs::create_dir_all(containers[0].join(format!("tenant/{number}"))).unwrap();
        }
        let others = [containers[1].join("init.scope"), root.path().join("system.slice/a.service")];
        for other in &others {
            std::fs::create_dir_all(other).unwrap();
        }
        let mut index = PathIndex::new(root.path(), None);
        let start = Instant::now();
        for other in &others {
            let path = other.strip_prefix(root.path()).unwrap().to_str();
            assert_eq!(index.path(cgroupfs::inode(other).unwrap(), start), path);
        }
        assert_eq!(index.path(u64::MAX, start), None);
        // Kubepods, its class, the pod, two containers and a nested cgroup; the service with its
        // slice; the mount.
        assert_eq!(index.paths.len(), MAX_NESTED + 6 + 2 + 1);
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
