//! State of the tree: the known cgroups, and what events and walks change of them.

mod walk;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cgroupfs::TreeEvent;
use kernel_text::CgroupVersion;
use slab::Slab;

use crate::entries::Entries;
use crate::queue::{Change, Queue};
use crate::roots::Roots;
use crate::watches::Watches;
use crate::{CgroupId, Interests, Role, Sought};

/// All cgroups of the tree, and the changes that the subscribers have not taken yet.
#[derive(Debug)]
pub(crate) struct TreeState {
    mount: PathBuf,
    version: CgroupVersion,
    roots: Roots,
    entries: Entries,
    watches: Watches,
    queues: Slab<Queue>,
    /// Buffer of the inotify events to apply.
    events: Vec<TreeEvent>,
    /// Whether inotify events were lost.
    overflowed: bool,
    /// Whether a root has appeared beside a known one.
    root_appeared: bool,
    /// Number of the current walk, for `KnownCgroup::seen`.
    walk: u64,
    /// Whether the directory that is handled now was reported by an event, and not found by a walk.
    is_reported: bool,
    /// Whether some existing directory could not be listed in the current walk.
    walk_incomplete: bool,
    /// Containers to search for outside of the roots.
    sought: Vec<Sought>,
    /// Whether some of them were not searched for yet.
    sought_anew: bool,
    /// Time of the last walk that was due. Walks for another reason do not delay the next one.
    walked: Option<Instant>,
    /// The current time, for `TreeCgroup::found`.
    now: Instant,
}

impl TreeState {
    pub(crate) fn new(mount: PathBuf, version: CgroupVersion, roots: Roots) -> Self {
        Self {
            mount,
            version,
            roots,
            entries: Entries::default(),
            watches: Watches::new(),
            queues: Slab::new(),
            events: Vec::new(),
            overflowed: false,
            root_appeared: false,
            walk: 0,
            is_reported: false,
            walk_incomplete: false,
            sought: Vec::new(),
            sought_anew: false,
            walked: None,
            now: Instant::now(),
        }
    }

    /// The known cgroups.
    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The reason why inotify is missing or incomplete.
    pub(crate) fn watch_error(&self) -> Option<&str> {
        self.watches.error()
    }

    /// Applies the pending inotify events, without blocking.
    pub(crate) fn drain_events(&mut self, now: Instant) {
        self.now = now;
        let mut events = std::mem::take(&mut self.events);
        self.watches.drain(&mut events);
        events.drain(..).for_each(|event| self.apply(event));
        self.events = events;
    }

    /// Walks the hierarchy if the last walk that was due is at least `max_age` old, or if only a
    /// walk can find new cgroups. The former also retries missing watches. Returns whether it
    /// walked.
    pub(crate) fn reconcile(&mut self, now: Instant, max_age: Duration) -> bool {
        self.now = now;
        let is_due =
            self.walked.is_none_or(|walked| now.saturating_duration_since(walked) >= max_age);
        if is_due {
            self.walked = Some(now);
            self.restore_watches();
        }
        let walks = is_due || self.must_walk();
        if walks {
            self.walk();
        }
        walks
    }

    /// Whether only a walk can find new cgroups: inotify is missing or incomplete, its queue
    /// overflowed, or a root appeared.
    fn must_walk(&self) -> bool {
        self.watches.error().is_some()
            || self.overflowed
            || self.root_appeared
            || self.sought_anew
            || self.entries.is_empty()
    }

    /// Retries the missing watches; a walk must follow, to find what was created meanwhile.
    fn restore_watches(&mut self) {
        if self.watches.error().is_none() {
            return;
        }
        let is_new = self.watches.try_again();
        if is_new {
            self.listen();
        }
        for id in self.entries.ids() {
            if is_new || !self.entries[id].is_watched {
                self.watch(id);
                // Writes were not reported until now.
                self.note(&Change::SettingsWritten(id));
                self.note(&Change::CpusWritten(id));
            }
        }
    }

    /// Wakes all subscribers when the inotify instance has events.
    fn listen(&mut self) {
        let Some(inotify) = self.watches.as_fd() else { return };
        let failed = self.queues.iter().find_map(|(_, queue)| queue.listen(inotify).err());
        if let Some(error) = failed {
            self.watches.give_up(format!("cannot wait for inotify events: {error}"));
        }
    }

    /// Sets the containers to search for outside of the roots, from the next walk on.
    pub(crate) fn seek(&mut self, sought: Vec<Sought>) {
        self.sought_anew |= sought.iter().any(|new| self.sought.iter().all(|old| old.id != new.id));
        self.sought = sought;
    }

    /// Adds a subscriber; its first changes are the additions of all known cgroups.
    pub(crate) fn subscribe(&mut self, interests: Interests) -> io::Result<usize> {
        // What is required first: without inotify walks find the changes.
        let mut queue = Queue::new(interests)?;
        self.watches.open_first();
        if let Some(inotify) = self.watches.as_fd() {
            queue.listen(inotify)?;
        }
        for cgroup in self.entries.by_depth() {
            queue.push(&Change::Added(cgroup));
        }
        Ok(self.queues.insert(queue))
    }

    /// Removes a subscriber.
    pub(crate) fn unsubscribe(&mut self, key: usize) {
        self.queues.try_remove(key);
    }

    /// The queue of a subscriber.
    pub(crate) fn queue(&self, key: usize) -> &Queue {
        &self.queues[key]
    }

    /// Appends the changes of one subscriber to `changes`, and wakes all others that have some.
    pub(crate) fn hand_out(&mut self, subscriber: usize, changes: &mut Vec<Change>) {
        for (key, queue) in &mut self.queues {
            if key == subscriber {
                queue.take(changes);
            } else {
                queue.signal();
            }
        }
    }

    fn note(&mut self, change: &Change) {
        self.queues.iter_mut().for_each(|(_, queue)| queue.push(change));
    }

    fn watch(&mut self, id: CgroupId) {
        let entry = &mut self.entries[id];
        let path = self.mount.join(&*entry.cgroup.path);
        entry.is_watched = self.watches.watch(&path, &entry.cgroup.role, self.version);
    }

    fn apply(&mut self, event: TreeEvent) {
        match event {
            TreeEvent::Overflow => self.overflowed = true,
            TreeEvent::Appeared(path) => self.on_appeared(&path),
            TreeEvent::Removed(path) => {
                // The path may be in use again already: then this event is about its predecessor.
                if let Some(id) = self.at(&path) {
                    self.remove_if_gone(id);
                }
            }
            TreeEvent::Populated(path) => self.note_at(self.at(&path), Change::Populated),
            TreeEvent::Attached(path) => self.note_at(self.at(&path), Change::Attached),
            TreeEvent::Set(path) => self.note_at(self.visible_at(&path), Change::SettingsWritten),
            TreeEvent::CpusWritten(path) => {
                self.note_at(self.visible_at(&path), Change::CpusWritten);
            }
        }
    }

    fn note_at(&mut self, id: Option<CgroupId>, change: impl Fn(CgroupId) -> Change) {
        if let Some(id) = id {
            self.note(&change(id));
        }
    }

    fn relative<'a>(&self, path: &'a Path) -> Option<&'a str> {
        path.strip_prefix(&self.mount).ok()?.to_str()
    }

    /// The cgroup with this absolute path, unless it is above a root.
    fn at(&self, path: &Path) -> Option<CgroupId> {
        self.entries.at(self.relative(path)?)
    }

    /// The cgroup with this absolute path.
    fn visible_at(&self, path: &Path) -> Option<CgroupId> {
        self.at(path).or_else(|| self.entries.above_at(self.relative(path)?))
    }

    /// Removes a cgroup unless its directory still exists; returns whether it does.
    pub(crate) fn remove_if_gone(&mut self, id: CgroupId) -> bool {
        let Some(entry) = self.entries.get(id) else { return false };
        let path = self.mount.join(&*entry.cgroup.path);
        let exists = cgroupfs::inode(&path).is_ok_and(|inode| inode == entry.cgroup.inode);
        if !exists {
            self.remove(id);
        }
        exists
    }

    /// Removes a cgroup and everything below it.
    fn remove(&mut self, id: CgroupId) {
        for child in self.entries.take_children(id) {
            self.remove(child);
        }
        let Some(cgroup) = self.entries.remove(id) else { return };
        // The watch above a root stays: a root may reappear below it.
        if cgroup.role != Role::Above {
            self.watches.forget(&self.mount.join(&*cgroup.path));
        }
        self.note(&Change::Removed(id));
    }

    /// Discards all cgroups after a panic may have left the tables in disagreement. The next
    /// reconciliation finds them again, under new ids.
    pub(crate) fn rebuild(&mut self) {
        for id in self.entries.clear() {
            self.note(&Change::Removed(id));
        }
        self.watches.give_up("a thread panicked while it updated the tree".to_owned());
        // Makes the next reconciliation create the watches again.
        self.walked = None;
    }

    /// Loses the pending inotify events, as the kernel does when its queue is full.
    #[cfg(test)]
    pub(crate) fn lose_events(&mut self) {
        let mut lost = Vec::new();
        self.watches.drain(&mut lost);
        self.overflowed = true;
    }

    /// Whether there is such a subscriber.
    #[cfg(test)]
    pub(crate) fn has_subscriber(&self, key: usize) -> bool {
        self.queues.contains(key)
    }
}
