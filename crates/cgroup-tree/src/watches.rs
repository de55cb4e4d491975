//! inotify watches on the tree, and the reason if one is missing.

use std::os::fd::BorrowedFd;
use std::path::Path;

use cgroupfs::{TreeEvent, TreeWatch};
use kernel_text::CgroupVersion;

use crate::Role;

/// An inotify instance with its watches. While there is an error, only walks find new cgroups.
#[derive(Debug)]
pub(crate) enum Watches {
    /// Not needed so far.
    NotOpened,
    /// Every watch is there.
    Complete(TreeWatch),
    /// Watches are missing, for this reason.
    Incomplete(TreeWatch, String),
    /// There is no instance, for this reason.
    Failed(String),
}

impl Watches {
    /// No instance yet.
    pub(crate) fn new() -> Self {
        Self::NotOpened
    }

    /// Creates the first instance.
    pub(crate) fn open_first(&mut self) {
        if matches!(self, Self::NotOpened) {
            *self = Self::open();
        }
    }

    fn open() -> Self {
        match TreeWatch::new() {
            Ok(inotify) => Self::Complete(inotify),
            Err(error) => Self::Failed(format!(
                "cannot create an inotify instance: {error}; raise fs.inotify.max_user_instances"
            )),
        }
    }

    fn inotify(&self) -> Option<&TreeWatch> {
        match self {
            Self::Complete(inotify) | Self::Incomplete(inotify, _) => Some(inotify),
            Self::NotOpened | Self::Failed(_) => None,
        }
    }

    fn inotify_mut(&mut self) -> Option<&mut TreeWatch> {
        match self {
            Self::Complete(inotify) | Self::Incomplete(inotify, _) => Some(inotify),
            Self::NotOpened | Self::Failed(_) => None,
        }
    }

    /// The reason why inotify is missing or incomplete.
    pub(crate) fn error(&self) -> Option<&str> {
        match self {
            Self::Incomplete(_, error) | Self::Failed(error) => Some(error),
            Self::NotOpened | Self::Complete(_) => None,
        }
    }

    /// The descriptor that becomes readable when there are events.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify().map(TreeWatch::as_fd)
    }

    /// Clears the error for another attempt. Returns whether there is a new instance, which watches
    /// nothing yet.
    pub(crate) fn try_again(&mut self) -> bool {
        match std::mem::replace(self, Self::NotOpened) {
            Self::Complete(inotify) | Self::Incomplete(inotify, _) => {
                *self = Self::Complete(inotify);
                false
            }
            Self::NotOpened | Self::Failed(_) => {
                *self = Self::open();
                matches!(self, Self::Complete(_))
            }
        }
    }

    /// Drops the instance, whose events cannot be read.
    pub(crate) fn give_up(&mut self, error: String) {
        *self = Self::Failed(error);
    }

    /// Takes the pending events.
    pub(crate) fn drain(&mut self, events: &mut Vec<TreeEvent>) {
        let Some(inotify) = self.inotify_mut() else { return };
        if let Err(error) = inotify.drain(|event| events.push(event)) {
            self.give_up(format!("cannot read inotify events: {error}"));
        }
    }

    /// Watches a cgroup. Returns true on success, or if the cgroup is gone.
    pub(crate) fn watch(&mut self, path: &Path, role: &Role, version: CgroupVersion) -> bool {
        let Some(inotify) = self.inotify_mut() else { return false };
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
                self.miss(format!("{error}; raise fs.inotify.max_user_watches"));
                false
            }
            _ => true,
        }
    }

    /// Records that a watch is missing.
    fn miss(&mut self, error: String) {
        *self = match std::mem::replace(self, Self::NotOpened) {
            Self::Complete(inotify) | Self::Incomplete(inotify, _) => {
                Self::Incomplete(inotify, error)
            }
            Self::NotOpened | Self::Failed(_) => Self::Failed(error),
        };
    }

    /// Removes the watches of a cgroup that is gone.
    pub(crate) fn forget(&mut self, path: &Path) {
        if let Some(inotify) = self.inotify_mut() {
            inotify.forget(path);
        }
    }
}
