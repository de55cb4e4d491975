//! The tree as its users share it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use kernel_text::CgroupVersion;

use crate::roots::Roots;
use crate::state::TreeState;
use crate::{CgroupId, Change, Interests, Sought, TreeCgroup};

#[cfg(test)]
mod tests;

/// Options of a tree.
#[derive(Debug, Clone, Default)]
pub struct TreeOptions {
    /// Kubepods roots named by the operator, as paths below the mount; if empty, they are searched
    /// for.
    pub named_roots: Vec<String>,
    /// Whether to include the roots of other kubelets.
    pub other_roots: bool,
    /// Whether to log missing and ambiguous roots. On cgroup v1 one tree of a node does.
    pub reports: bool,
}

/// The Kubernetes cgroups of one hierarchy.
///
/// Nothing happens in it by itself: each subscriber applies the pending events on its own thread,
/// for all. A lock is held meanwhile, but never while a file of a cgroup is read.
#[derive(Debug)]
pub struct KubepodsTree {
    mount: PathBuf,
    state: Mutex<TreeState>,
}

impl KubepodsTree {
    /// Creates a tree of the hierarchy at `mount`. It is empty until it is first reconciled.
    #[must_use]
    pub fn new(mount: PathBuf, version: CgroupVersion, options: TreeOptions) -> Arc<Self> {
        let TreeOptions { named_roots, other_roots, reports } = options;
        let roots = Roots::new(named_roots, other_roots, reports);
        let state = Mutex::new(TreeState::new(mount.clone(), version, roots));
        Arc::new(Self { mount, state })
    }

    /// Mount of the hierarchy.
    #[must_use]
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// Adds a subscriber, to which all known cgroups are added first.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn subscribe(self: &Arc<Self>, interests: Interests) -> io::Result<Subscription> {
        let mut state = self.lock();
        let key = state.subscribe(interests)?;
        let wake = state.queue(key).wake_fd();
        drop(state);
        Ok(Subscription { tree: Arc::clone(self), key, wake })
    }

    /// All cgroups, ancestors before descendants.
    #[must_use]
    pub fn by_depth(&self) -> Vec<Arc<TreeCgroup>> {
        self.lock().entries().by_depth()
    }

    /// The cgroup with this inode.
    #[must_use]
    pub fn by_inode(&self, inode: u64) -> Option<Arc<TreeCgroup>> {
        self.lock().entries().by_inode(inode)
    }

    /// The reason why inotify is missing or incomplete; until it is repaired, changes are found
    /// only by walks.
    #[must_use]
    pub fn watch_error(&self) -> Option<String> {
        self.lock().watch_error().map(str::to_owned)
    }

    /// Whether inotify reports every change and every write to a setting.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.lock().watch_error().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, TreeState> {
        self.state.lock().unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            state.rebuild();
            self.state.clear_poison();
            state
        })
    }
}

/// One user of a tree. Its changes are queued until it takes them; dropping it ends that.
#[derive(Debug)]
pub struct Subscription {
    tree: Arc<KubepodsTree>,
    key: usize,
    wake: Arc<OwnedFd>,
}

impl Subscription {
    /// The tree.
    #[must_use]
    pub fn tree(&self) -> &Arc<KubepodsTree> {
        &self.tree
    }

    /// Applies the pending inotify events, without blocking and without a walk. Appends the changes
    /// since the last call to `changes`, including those that other subscribers have applied.
    pub fn poll(&mut self, now: Instant, changes: &mut Vec<Change>) {
        self.apply(changes, |state| state.drain_events(now));
    }

    /// Like [`Subscription::poll`], and walks the hierarchy if only a walk can find what is new, or
    /// if the last periodic walk by any subscriber is at least `max_age` old. The latter also
    /// retries missing watches. Returns whether it walked.
    pub fn reconcile(
        &mut self,
        now: Instant,
        max_age: Duration,
        changes: &mut Vec<Change>,
    ) -> bool {
        self.apply(changes, |state| {
            state.drain_events(now);
            state.reconcile(now, max_age)
        })
    }

    /// Reports that a file of this cgroup has vanished. If the directory is gone, too, the cgroup
    /// is removed without waiting for the event. Returns whether it still exists.
    pub fn report_vanished(&mut self, id: CgroupId, changes: &mut Vec<Change>) -> bool {
        self.apply(changes, |state| state.remove_if_gone(id))
    }

    /// Sets the containers to search for outside of the kubepods roots, by their ids: a container
    /// runtime with another cgroup driver than the kubelet's creates their cgroups elsewhere. The
    /// next reconciliation walks if there is a new one; later walks search again. Those that were
    /// found stay until they are removed.
    pub fn seek(&self, sought: Vec<Sought>) {
        self.tree.lock().seek(sought);
    }

    fn apply<T>(
        &mut self,
        changes: &mut Vec<Change>,
        apply: impl FnOnce(&mut TreeState) -> T,
    ) -> T {
        let mut state = self.tree.lock();
        let result = apply(&mut state);
        state.hand_out(self.key, changes);
        result
    }
}

impl AsFd for Subscription {
    /// Descriptor that becomes readable when there are inotify events, or changes that another
    /// subscriber has applied.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.tree.lock().unsubscribe(self.key);
    }
}
