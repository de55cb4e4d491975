//! inotify watches on the tree, and the reason if one is missing.

use std::os::fd::BorrowedFd;
use std::path::Path;

use cgroupfs::{TreeEvent, TreeWatch};
use kernel_text::CgroupVersion;

use crate::Role;

/// An inotify instance, if there is one, and its error. While there is an error, only walks find
/// new cgroups.
#[derive(Debug)]
pub(crate) struct Watches {
    inotify: Option<TreeWatch>,
    error: Option<String>,
}

impl Watches {
    /// No instance yet.
    pub(crate) fn new() -> Self {
        Self { inotify: None, error: None }
    }

    /// Creates the first instance.
    pub(crate) fn open_first(&mut self) {
        if self.inotify.is_none() && self.error.is_none() {
            self.open();
        }
    }

    fn open(&mut self) {
        match TreeWatch::new() {
            Ok(inotify) => self.inotify = Some(inotify),
            Err(error) => {
                self.error = Some(format!(
                    "cannot create an inotify instance: {error}; raise fs.inotify.max_user_instances"
                ));
            }
        }
    }

    /// The reason why inotify is missing or incomplete.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The descriptor that becomes readable when there are events.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(TreeWatch::as_fd)
    }

    /// Clears the error for another attempt. Returns whether there is a new instance, which watches
    /// nothing yet.
    pub(crate) fn try_again(&mut self) -> bool {
        self.error = None;
        let is_new = self.inotify.is_none();
        if is_new {
            self.open();
        }
        is_new && self.inotify.is_some()
    }

    /// Drops the instance, whose events cannot be read.
    pub(crate) fn give_up(&mut self, error: String) {
        (self.inotify, self.error) = (None, Some(error));
    }

    /// Takes the pending events.
    pub(crate) fn drain(&mut self, events: &mut Vec<TreeEvent>) {
        let Some(inotify) = &mut self.inotify else { return };
        if let Err(error) = inotify.drain(|event| events.push(event)) {
            self.give_up(format!("cannot read inotify events: {error}"));
        }
    }

    /// Watches a cgroup. Returns true on success, or if the cgroup is gone.
    pub(crate) fn watch(&mut self, path: &Path, role: &Role, version: CgroupVersion) -> bool {
        let Some(inotify) = &mut self.inotify else { return false };
        let result = match (role.has_children(), version) {
            (true, _) => inotify.watch(path),
            (false, CgroupVersion::V1) => inotify.watch_leaf(path),
            (false, CgroupVersion::V2) => {
                inotify.watch_leaf(path).and_then(|()| inotify.watch_population(path))
            }
        };
        // Parent directory of a kubepods root: the root disappears from it and reappears in it.
        let beside = path.parent().filter(|_| *role == Role::Root);
        let result = result.and_then(|()| beside.map_or(Ok(()), |parent| inotify.watch(parent)));
        match result {
            Err(error) if !error.is_vanished() => {
                self.error = Some(format!("{error}; raise fs.inotify.max_user_watches"));
                false
            }
            _ => true,
        }
    }

    /// Removes the watches of a cgroup that is gone.
    pub(crate) fn forget(&mut self, path: &Path) {
        if let Some(inotify) = &mut self.inotify {
            inotify.forget(path);
        }
    }
}
