//! Changes of the tree, queued for one subscriber.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use crate::{CgroupId, TreeCgroup};

/// A change of the tree.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A cgroup was found. Its parent was added before it.
    Added(Arc<TreeCgroup>),
    /// A cgroup is gone, or another has replaced it. Its children were removed before it.
    Removed(CgroupId),
    /// A `cpu.*` file was written: quota, period, weight or shares.
    SettingsWritten(CgroupId),
    /// A `cpuset.*` file was written.
    CpusWritten(CgroupId),
    /// The first process entered the cgroup, or the last one left it (v2, containers).
    Populated(CgroupId),
    /// Somebody moved a process or a thread into the cgroup.
    Attached(CgroupId),
}

const ADDED: u8 = 1;
const REMOVED: u8 = 1 << 1;
const SETTINGS: u8 = 1 << 2;
const CPUS: u8 = 1 << 3;
const POPULATED: u8 = 1 << 4;
const ATTACHED: u8 = 1 << 5;

impl Change {
    /// The cgroup that has changed.
    #[must_use]
    pub fn id(&self) -> CgroupId {
        match self {
            Self::Added(cgroup) => cgroup.id,
            Self::Removed(id)
            | Self::SettingsWritten(id)
            | Self::CpusWritten(id)
            | Self::Populated(id)
            | Self::Attached(id) => *id,
        }
    }

    fn bit(&self) -> u8 {
        match self {
            Self::Added(_) => ADDED,
            Self::Removed(_) => REMOVED,
            Self::SettingsWritten(_) => SETTINGS,
            Self::CpusWritten(_) => CPUS,
            Self::Populated(_) => POPULATED,
            Self::Attached(_) => ATTACHED,
        }
    }
}

/// Changes that a subscriber wants; additions and removals are always among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interests(u8);

impl Interests {
    /// Everything but writes to cpusets: for readers of counters.
    pub const COUNTERS: Self = Self(ADDED | REMOVED | SETTINGS | POPULATED | ATTACHED);
    /// Writes to cpusets, and processes that are moved: for the writer of cpusets.
    pub const CPUSETS: Self = Self(ADDED | REMOVED | CPUS | ATTACHED);
    /// Every change.
    pub const ALL: Self = Self(u8::MAX);
}

/// Changes that a subscriber has not taken yet. Its size is bounded by that of the tree: equal
/// changes of a cgroup are queued once, and a cgroup that is removed before the subscriber has seen
/// it is not reported at all.
#[derive(Debug)]
pub(crate) struct Queue {
    changes: Vec<Change>,
    /// Queued kinds of changes for each slot.
    pending: Vec<u8>,
    interests: Interests,
    /// Readable while there are changes that another subscriber's thread has queued.
    signal: OwnedFd,
    /// Readable while there are such changes, or inotify events.
    epoll: Arc<OwnedFd>,
    is_signaled: bool,
}

impl Queue {
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(interests: Interests) -> io::Result<Self> {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let queue = Self {
            changes: Vec::new(),
            pending: Vec::new(),
            interests,
            signal,
            epoll: Arc::new(epoll),
            is_signaled: false,
        };
        queue.listen(queue.signal.as_fd())?;
        Ok(queue)
    }

    /// Wakes the subscriber also when `descriptor` is readable.
    pub(crate) fn listen(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, EventData::new_u64(0), EventFlags::IN)?)
    }

    /// Descriptor that becomes readable when the subscriber must poll.
    pub(crate) fn wake_fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.epoll)
    }

    pub(crate) fn push(&mut self, change: &Change) {
        let (id, bit) = (change.id(), change.bit());
        if self.interests.0 & bit == 0 {
            return;
        }
        if self.pending.len() <= id.slot() {
            self.pending.resize(id.slot() + 1, 0);
        }
        let pending = &mut self.pending[id.slot()];
        if bit == REMOVED {
            let obsolete = std::mem::take(pending) & !REMOVED;
            if obsolete != 0 {
                self.changes.retain(|queued| queued.id() != id);
            }
            if obsolete & ADDED != 0 {
                return;
            }
        } else if *pending & bit != 0 {
            return;
        }
        self.pending[id.slot()] |= bit;
        self.changes.push(change.clone());
    }

    /// Wakes the subscriber if it has changes.
    pub(crate) fn signal(&mut self) {
        if !self.changes.is_empty() && !self.is_signaled {
            // Fails only if the counter is full; then the descriptor is readable anyway.
            let _ = rustix::io::write(&self.signal, &1u64.to_ne_bytes());
            self.is_signaled = true;
        }
    }

    /// Moves the changes to the end of `changes`.
    pub(crate) fn take(&mut self, changes: &mut Vec<Change>) {
        if std::mem::take(&mut self.is_signaled) {
            let _ = rustix::io::read(&self.signal, &mut [0; 8]);
        }
        self.changes.iter().for_each(|change| self.pending[change.id().slot()] = 0);
        changes.append(&mut self.changes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::Role;
    use crate::slots::Ids;

    fn added(id: CgroupId) -> Change {
        let (path, role) = ("kubepods".into(), Role::Root);
        let found = Instant::now();
        let is_this_kubelets = true;
        Change::Added(Arc::new(TreeCgroup {
            id,
            parent: None,
            path,
            inode: 1,
            role,
            is_this_kubelets,
            found,
            seen_created: true,
        }))
    }

    fn taken(queue: &mut Queue) -> Vec<Change> {
        let mut changes = Vec::new();
        queue.take(&mut changes);
        changes
    }

    #[test]
    fn a_cgroup_that_is_removed_before_it_was_seen_is_not_reported() {
        let mut ids = Ids::default();
        let mut queue = Queue::new(Interests::ALL).unwrap();
        let old = ids.take();
        queue.push(&added(old));
        assert_eq!(taken(&mut queue).len(), 1);
        queue.push(&Change::SettingsWritten(old));
        queue.push(&Change::Removed(old));
        ids.give_back(old);
        // Two more cgroups in the same slot.
        let unseen = ids.take();
        queue.push(&added(unseen));
        queue.push(&Change::Attached(unseen));
        queue.push(&Change::Removed(unseen));
        ids.give_back(unseen);
        let new = added(ids.take());
        queue.push(&new);
        assert_eq!(taken(&mut queue), [Change::Removed(old), new]);
        assert_eq!(taken(&mut queue), []);
    }

    #[test]
    fn equal_changes_are_queued_once_until_they_are_taken() {
        let id = Ids::default().take();
        let mut queue = Queue::new(Interests::COUNTERS).unwrap();
        for _ in 0..2 {
            for _ in 0..100 {
                queue.push(&Change::Populated(id));
                queue.push(&Change::CpusWritten(id));
                queue.push(&Change::SettingsWritten(id));
            }
            assert_eq!(taken(&mut queue), [Change::Populated(id), Change::SettingsWritten(id)]);
        }
    }
}
