//! Reports cgroups that appear, change their settings, fill, empty and disappear, from inotify.
//!
//! In cgroupfs a watch on the parent reports mkdir and rmdir. `IN_DELETE_SELF` never comes, so the
//! caller drops a watch when the parent reports the removal. A watch on a directory gets
//! `IN_MODIFY` for each write to a file in it. On v2 the kernel itself modifies `cgroup.events` at
//! the first attach and the last exit. It notifies only if the file's inode is in memory
//! (`kernfs_notify_workfn`), so that file has its own watch.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};

use crate::{Error, Result};

/// An event in a watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeEvent {
    /// A sub-directory was created.
    Appeared(PathBuf),
    /// A sub-directory was removed; its watches no longer exist for the caller.
    Removed(PathBuf),
    /// The first process entered this cgroup, or the last one left it (v2).
    Populated(PathBuf),
    /// A `cpu.*` file of this cgroup was written: quota, period, weight or shares.
    Set(PathBuf),
    /// A `cpuset.*` file of this cgroup was written.
    CpusWritten(PathBuf),
    /// Somebody moved a process or a thread into this cgroup.
    Attached(PathBuf),
    /// The kernel's queue overflowed: events are lost, walk the tree.
    Overflow,
}

/// Watches on directories and on `cgroup.events` files of one hierarchy.
#[derive(Debug)]
pub struct TreeWatch {
    inotify: Inotify,
    buffer: Vec<u8>,
    places: HashMap<WatchDescriptor, (PathBuf, WatchKind)>,
    watches: HashMap<PathBuf, Vec<WatchDescriptor>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchKind {
    Directory,
    Events,
}

impl TreeWatch {
    /// Creates a watcher without watches.
    ///
    /// # Errors
    /// No inotify instance is available (`fs.inotify.max_user_instances`).
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            inotify: Inotify::init()?,
            buffer: vec![0; 64 * 1024],
            places: HashMap::new(),
            watches: HashMap::new(),
        })
    }

    /// The descriptor that becomes readable when events are pending.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Number of active watches.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no watch is active.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Starts to report events of the cgroup `directory` and its sub-directories. List it
    /// afterwards: earlier sub-directories are not reported.
    ///
    /// # Errors
    /// No such directory, or no watch left (`fs.inotify.max_user_watches`).
    pub fn watch(&mut self, directory: &Path) -> Result<()> {
        let mask = WatchMask::CREATE
            | WatchMask::DELETE
            | WatchMask::MOVE
            | WatchMask::MODIFY
            | WatchMask::ONLYDIR;
        self.add(directory, directory, mask, WatchKind::Directory)
    }

    /// Starts to report events of the cgroup `directory`, but not of its sub-directories.
    ///
    /// # Errors
    /// Same as [`TreeWatch::watch`].
    pub fn watch_leaf(&mut self, directory: &Path) -> Result<()> {
        self.add(directory, directory, WatchMask::MODIFY | WatchMask::ONLYDIR, WatchKind::Directory)
    }

    /// Starts to report when the cgroup `directory` fills or empties (v2).
    ///
    /// # Errors
    /// Fails if the file does not exist, or no watch is left.
    pub fn watch_population(&mut self, directory: &Path) -> Result<()> {
        self.add(directory, &directory.join("cgroup.events"), WatchMask::MODIFY, WatchKind::Events)
    }

    fn add(
        &mut self,
        directory: &Path,
        path: &Path,
        mask: WatchMask,
        kind: WatchKind,
    ) -> Result<()> {
        let watch = self.inotify.watches().add(path, mask).map_err(Error::io("watch", path))?;
        if self.places.insert(watch.clone(), (directory.to_owned(), kind)).is_none() {
            self.watches.entry(directory.to_owned()).or_default().push(watch);
        }
        Ok(())
    }

    /// Drops all watches of `directory`, which may be gone already.
    pub fn forget(&mut self, directory: &Path) {
        for watch in self.watches.remove(directory).unwrap_or_default() {
            self.places.remove(&watch);
            // Fails if the kernel has already dropped the watch together with the inode.
            let _ = self.inotify.watches().remove(watch);
        }
    }

    /// Passes all pending events to `visit`, without blocking.
    ///
    /// # Errors
    /// Returns the kernel's read error, except "would block".
    pub fn drain(&mut self, mut visit: impl FnMut(TreeEvent)) -> io::Result<()> {
        loop {
            let events = match self.inotify.read_events(&mut self.buffer) {
                Ok(events) => events,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut any = false;
            for event in events {
                any = true;
                if let Some(event) = translate(&self.places, event.mask, &event.wd, event.name) {
                    visit(event);
                }
            }
            if !any {
                return Ok(());
            }
        }
    }
}

fn translate(
    places: &HashMap<WatchDescriptor, (PathBuf, WatchKind)>,
    mask: EventMask,
    watch: &WatchDescriptor,
    name: Option<&OsStr>,
) -> Option<TreeEvent> {
    if mask.contains(EventMask::Q_OVERFLOW) {
        return Some(TreeEvent::Overflow);
    }
    let (directory, kind) = places.get(watch)?;
    if *kind == WatchKind::Events {
        return mask.contains(EventMask::MODIFY).then(|| TreeEvent::Populated(directory.clone()));
    }
    let name = name?;
    if !mask.contains(EventMask::ISDIR) {
        return match name.as_encoded_bytes() {
            _ if !mask.contains(EventMask::MODIFY) => None,
            b"cgroup.procs" | b"tasks" => Some(TreeEvent::Attached(directory.clone())),
            name if name.starts_with(b"cpuset.") => Some(TreeEvent::CpusWritten(directory.clone())),
            name => name.starts_with(b"cpu.").then(|| TreeEvent::Set(directory.clone())),
        };
    }
    let path = directory.join(name);
    if mask.intersects(EventMask::CREATE | EventMask::MOVED_TO) {
        return Some(TreeEvent::Appeared(path));
    }
    mask.intersects(EventMask::DELETE | EventMask::MOVED_FROM).then_some(TreeEvent::Removed(path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn events(watch: &mut TreeWatch) -> Vec<TreeEvent> {
        let mut events = Vec::new();
        watch.drain(|event| events.push(event)).unwrap();
        events
    }

    #[test]
    fn directories_are_reported_and_files_are_not() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = TreeWatch::new().unwrap();
        watch.watch(root.path()).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        let pod = root.path().join("pod");
        fs::create_dir(&pod).unwrap();
        fs::remove_dir(&pod).unwrap();
        assert_eq!(events(&mut watch), [TreeEvent::Appeared(pod.clone()), TreeEvent::Removed(pod)]);
        assert_eq!(events(&mut watch), []);
    }

    #[test]
    fn a_forgotten_directory_is_silent_and_its_watch_is_free() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = TreeWatch::new().unwrap();
        watch.watch(root.path()).unwrap();
        watch.watch(root.path()).unwrap();
        assert_eq!(watch.len(), 1);
        watch.forget(root.path());
        assert!(watch.is_empty());
        fs::create_dir(root.path().join("x")).unwrap();
        assert_eq!(events(&mut watch), []);
    }

    #[test]
    fn population_changes_name_the_cgroup() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.events"), "populated 1\n").unwrap();
        let mut watch = TreeWatch::new().unwrap();
        watch.watch_population(root.path()).unwrap();
        fs::write(root.path().join("cgroup.events"), "populated 0\n").unwrap();
        assert!(events(&mut watch).contains(&TreeEvent::Populated(root.path().to_owned())));
    }

    #[test]
    fn writes_to_settings_and_processes_are_reported_and_others_not() {
        let root = tempfile::tempdir().unwrap();
        let files = ["cpu.max", "memory.max", "cpuset.cpus", "cgroup.procs", "tasks"]
            .map(|name| root.path().join(name));
        files.iter().for_each(|file| fs::write(file, "").unwrap());
        let mut watch = TreeWatch::new().unwrap();
        watch.watch_leaf(root.path()).unwrap();
        files.iter().for_each(|file| fs::write(file, "1").unwrap());
        let mut events = events(&mut watch);
        events.dedup();
        let path = || root.path().to_owned();
        assert_eq!(
            events,
            [TreeEvent::Set(path()), TreeEvent::CpusWritten(path()), TreeEvent::Attached(path())]
        );
    }
}
