//! Listing the directories of a hierarchy.

use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// One cgroup directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Last component of the path.
    pub name: String,
    /// Inode; together with the path it identifies the cgroup.
    pub inode: u64,
}

/// The sub-directories of a cgroup, in no particular order. Skips names that are not UTF-8: no
/// Kubernetes component creates them.
///
/// # Errors
/// A directory that cannot be listed; [`Error::is_vanished`] if it is gone.
pub fn subdirectories(path: &Path) -> Result<Vec<Directory>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(Error::io("list", path))? {
        let entry = entry.map_err(Error::io("list", path))?;
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if let Ok(name) = entry.file_name().into_string() {
            found.push(Directory { name, inode: entry.ino() });
        }
    }
    Ok(found)
}

/// Cgroups below `path`, parents before children, at most `limit` of them, with names of any bytes.
/// Skips cgroups that vanish or cannot be listed.
#[must_use]
pub fn descendants(path: &Path, limit: usize) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut next = 0;
    list_into(path, limit, &mut found);
    while next < found.len() && found.len() < limit {
        let parent = found[next].clone();
        list_into(&parent, limit, &mut found);
        next += 1;
    }
    found
}

fn list_into(path: &Path, limit: usize, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    found.extend(directories.map(|entry| entry.path()).take(limit - found.len()));
}

/// The inode of a cgroup directory.
///
/// # Errors
/// A directory that cannot be read.
pub fn inode(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata(path).map_err(Error::io("stat", path))?.ino())
}

/// Directories below `root`, at most `depth` levels down, whose name `wanted` accepts. Searches
/// breadth first, and never below a match.
///
/// # Errors
/// A root that cannot be listed; directories below it that vanish or cannot be listed are skipped.
pub fn locate(root: &Path, depth: usize, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let mut hits = Vec::new();
    let mut level = vec![root.to_owned()];
    for _ in 0..depth {
        let mut next = Vec::new();
        for directory in &level {
            let children = match subdirectories(directory) {
                Ok(children) => children,
                Err(error) if directory == root => return Err(error),
                Err(_) => continue,
            };
            for child in children {
                let path = directory.join(&child.name);
                if wanted(&child.name) { hits.push(path) } else { next.push(path) }
            }
        }
        level = next;
    }
    hits.sort();
    Ok(hits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_bounded_and_parents_come_first() {
        use std::os::unix::ffi::OsStrExt as _;
        let root = tempfile::tempdir().unwrap();
        let odd = root.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
        fs::create_dir_all(odd.join("a/b")).unwrap();
        let all = descendants(root.path(), 10);
        assert_eq!(all, [odd.clone(), odd.join("a"), odd.join("a/b")]);
        assert_eq!(descendants(root.path(), 2), all[..2]);
        assert_eq!(descendants(&root.path().join("none"), 10), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn hits_are_found_at_any_depth_but_not_below_a_hit() {
        let root = tempfile::tempdir().unwrap();
        for path in ["a/kubepods/b/kubepods", "kubepods-bench", "x/y/z/kubepods"] {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        let hits = locate(root.path(), 3, |name| name == "kubepods").unwrap();
        assert_eq!(hits, [root.path().join("a/kubepods")]);
        assert!(locate(&root.path().join("none"), 3, |_| true).unwrap_err().is_vanished());
    }
}
