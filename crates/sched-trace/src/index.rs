//! Maps a cgroup's inode to its path, for cgroups that the caller's own tree does not know: host
//! services, and cgroups that a container creates below itself.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Minimum time between two walks: a walk of a thousand cgroups takes about 30 ms.
const REST: Duration = Duration::from_secs(5);
/// Number of walks for which a path is kept after its directory is gone, because the program's
/// tables are read later.
const KEPT_WALKS: u64 = 2;
/// Maximum number of stored directories.
const MAX_PATHS: usize = 100_000;

/// All directories of the hierarchy with the cpu controller.
#[derive(Debug)]
pub struct CgroupIndex {
    mount: PathBuf,
    paths: HashMap<u64, Entry>,
    walks: u64,
    walked: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    path: Box<str>,
    seen: u64,
}

impl CgroupIndex {
    /// `mount`: mount point of the hierarchy with the cpu controller, `/sys/fs/cgroup` or
    /// `/sys/fs/cgroup/cpu`.
    #[must_use]
    pub fn new(mount: impl Into<PathBuf>) -> Self {
        Self { mount: mount.into(), paths: HashMap::new(), walks: 0, walked: None }
    }

    /// Path relative to the mount, such as `system.slice/kubelet.service`; empty for the root. For
    /// an unknown inode, walks the hierarchy unless the last walk is recent. `None` if the cgroup
    /// does not exist or was not found yet.
    pub fn path(&mut self, cgroup: u64, now: Instant) -> Option<&str> {
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
            self.paths.insert(inode, Entry { path, seen: self.walks });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_by_inode_and_outlive_their_directories_for_a_while() {
        let root = tempfile::tempdir().unwrap();
        let service = root.path().join("system.slice/a.service");
        std::fs::create_dir_all(&service).unwrap();
        let inode = |path: &std::path::Path| cgroupfs::inode(path).unwrap();
        let (top, id) = (inode(root.path()), inode(&service));
        let mut index = CgroupIndex::new(root.path());
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
