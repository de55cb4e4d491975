//! inotify on the tree: what is watched, and why something is not.

use std::os::fd::BorrowedFd;
use std::path::Path;

use cgroupfs::{TreeEvent, TreeWatch, Version};

use crate::cgroup::Kind;

/// An inotify instance, if there is one, and what is wrong with it. While anything is wrong, only walks find what is new.
#[derive(Debug)]
pub(crate) struct Watches {
    inotify: Option<TreeWatch>,
    error: Option<String>,
}

impl Watches {
    pub(crate) fn new() -> Self {
        let mut watches = Self { inotify: None, error: None };
        watches.open();
        watches
    }

    fn open(&mut self) {
        match TreeWatch::new() {
            Ok(inotify) => self.inotify = Some(inotify),
            Err(error) => {
                self.error = Some(format!("no inotify instance: {error}; raise fs.inotify.max_user_instances"));
            }
        }
    }

    /// Why there is no inotify, or why some of it is missing.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The descriptor that becomes readable when there are events.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(TreeWatch::as_fd)
    }

    /// Forgets what was wrong, so that it is tried again. True when there is a new instance, which watches nothing yet.
    pub(crate) fn try_again(&mut self) -> bool {
        self.error = None;
        let is_new = self.inotify.is_none();
        if is_new {
            self.open();
        }
        is_new && self.inotify.is_some()
    }

    /// Gives the instance up: its events cannot be had.
    pub(crate) fn give_up(&mut self, error: String) {
        (self.inotify, self.error) = (None, Some(error));
    }

    /// Takes the events that are waiting.
    pub(crate) fn drain(&mut self, events: &mut Vec<TreeEvent>) {
        let Some(inotify) = &mut self.inotify else { return };
        if let Err(error) = inotify.drain(|event| events.push(event)) {
            self.give_up(format!("inotify cannot be read: {error}"));
        }
    }

    /// Watches a cgroup. True when that is done, or when the cgroup is gone.
    pub(crate) fn watch(&mut self, path: &Path, kind: &Kind, version: Version) -> bool {
        let Some(inotify) = &mut self.inotify else { return false };
        let result = match (kind.has_children(), version) {
            (true, _) => inotify.watch(path),
            (false, Version::V1) => inotify.watch_leaf(path),
            (false, Version::V2) => inotify.watch_leaf(path).and_then(|()| inotify.watch_population(path)),
        };
        // The directory that a kubepods root is in: there it goes, and comes back.
        let beside = path.parent().filter(|_| *kind == Kind::Root);
        let result = result.and_then(|()| beside.map_or(Ok(()), |parent| inotify.watch(parent)));
        match result {
            Err(error) if !error.is_vanished() => {
                self.error = Some(format!("{error}; raise fs.inotify.max_user_watches"));
                false
            }
            _ => true,
        }
    }

    /// Forgets the watches on a cgroup that is gone.
    pub(crate) fn forget(&mut self, path: &Path) {
        if let Some(inotify) = &mut self.inotify {
            inotify.forget(path);
        }
    }
}
