//! Table of series by their labels.
//!
//! A series outlives its cgroups: it stays until the last pod that contained it is gone.

use std::collections::HashMap;
use std::sync::Arc;

use slab::Slab;

use crate::cgroup::CgroupId;

/// Handle of a series.
pub(crate) type SeriesId = usize;

/// A published row.
pub(crate) trait Row: Clone + Default {
    /// Identity of the row: names and labels.
    type Identity: PartialEq;

    fn identity(&self) -> &Arc<Self::Identity>;
    fn set_identity(&mut self, identity: Arc<Self::Identity>);
    /// Labels, which are unique.
    fn labels(identity: &Self::Identity) -> &str;
    /// Sort key of the exposition.
    fn key(identity: &Self::Identity) -> (&str, &str, &str);
    /// Copies `other`, reusing its own buffers.
    fn copy_from(&mut self, other: &Self);
}

/// A row with the state needed to update it.
pub(crate) trait Track: Default {
    type Row: Row;

    fn row(&self) -> &Self::Row;
    fn row_mut(&mut self) -> &mut Self::Row;
    /// Called when a cgroup feeds it again.
    fn wake(&mut self);
    /// Called when no cgroup feeds it any more.
    fn on_idle(&mut self);
    /// Adds the totals of another series.
    fn merge(&mut self, other: &Self);
}

type Identity<T> = <<T as Track>::Row as Row>::Identity;

#[derive(Debug, Default)]
struct Entry<T> {
    track: T,
    /// Whether it is shown in the exposition.
    visible: bool,
    /// Number of cgroups that feed it now.
    cgroups: u32,
    /// Existing pod cgroups that contain or contained it.
    pods: Vec<CgroupId>,
}

/// All series of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: Slab<Entry<T>>,
    by_labels: HashMap<Box<str>, SeriesId>,
    /// Visible series in the order of the exposition.
    order: Vec<SeriesId>,
    stale_order: bool,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            entries: Slab::new(),
            by_labels: HashMap::new(),
            order: Vec::new(),
            stale_order: false,
        }
    }
}

impl<T: Track> Table<T> {
    pub(crate) fn get(&self, id: SeriesId) -> &T {
        &self.entries[id].track
    }

    pub(crate) fn get_mut(&mut self, id: SeriesId) -> &mut T {
        &mut self.entries[id].track
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| &entry.track)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, entry)| &mut entry.track)
    }

    /// Feeds the series of `identity` from one more cgroup of `pod`; creates the series if it does
    /// not exist.
    pub(crate) fn attach(
        &mut self,
        identity: Identity<T>,
        pod: CgroupId,
        visible: bool,
    ) -> SeriesId {
        let labels = T::Row::labels(&identity);
        let id = match self.by_labels.get(labels) {
            Some(&id) => id,
            None => {
                let id = self.entries.insert(Entry::default());
                self.by_labels.insert(labels.into(), id);
                id
            }
        };
        let entry = &mut self.entries[id];
        entry.cgroups += 1;
        entry.track.wake();
        if !entry.pods.contains(&pod) {
            entry.pods.push(pod);
        }
        self.describe(id, identity, visible);
        id
    }

    /// Updates the identity of a series, whose labels stay the same, and shows or hides it.
    pub(crate) fn describe(&mut self, id: SeriesId, identity: Identity<T>, visible: bool) {
        let entry = &mut self.entries[id];
        let row = entry.track.row_mut();
        if **row.identity() != identity {
            row.set_identity(Arc::new(identity));
            self.stale_order = true;
        }
        self.stale_order |= entry.visible != visible;
        entry.visible = visible;
    }

    /// Moves a cgroup, with the counts of its series, to the series of another identity.
    pub(crate) fn rename(
        &mut self,
        from: SeriesId,
        identity: Identity<T>,
        pod: CgroupId,
        visible: bool,
    ) -> SeriesId {
        if T::Row::labels(self.entries[from].track.row().identity()) == T::Row::labels(&identity) {
            self.describe(from, identity, visible);
            return from;
        }
        let to = self.attach(identity, pod, visible);
        match self.entries[from].cgroups {
            0 | 1 => {
                let old = self.remove(from);
                self.entries[to].track.merge(&old);
            }
            _ => self.entries[from].cgroups -= 1,
        }
        to
    }

    /// Records that a cgroup that fed the series is gone.
    pub(crate) fn detach(&mut self, id: SeriesId) {
        let entry = &mut self.entries[id];
        entry.cgroups = entry.cgroups.saturating_sub(1);
        if entry.cgroups == 0 {
            entry.track.on_idle();
        }
    }

    /// Removes the series of a cgroup that turned out to be a sandbox, unless another cgroup feeds
    /// it. Returns whether it was removed.
    pub(crate) fn discard(&mut self, id: SeriesId) -> bool {
        let is_last = self.entries[id].cgroups <= 1;
        if is_last {
            self.remove(id);
        } else {
            self.detach(id);
        }
        is_last
    }

    /// Records that a pod's cgroup is gone; removes the series that no other pod holds.
    pub(crate) fn drop_pod(&mut self, pod: CgroupId) {
        let mut gone = Vec::new();
        for (id, entry) in &mut self.entries {
            let held = entry.pods.len();
            entry.pods.retain(|&holder| holder != pod);
            if entry.pods.is_empty() && held > 0 {
                gone.push(id);
            }
        }
        for id in gone {
            self.remove(id);
        }
    }

    /// Removes a series.
    fn remove(&mut self, id: SeriesId) -> T {
        let track = self.entries.remove(id).track;
        self.by_labels.remove(T::Row::labels(track.row().identity()));
        self.stale_order = true;
        track
    }

    /// Writes the visible rows into `rows`, reusing the existing rows.
    pub(crate) fn publish(&mut self, rows: &mut Vec<T::Row>) {
        if std::mem::take(&mut self.stale_order) {
            self.sort();
        }
        rows.truncate(self.order.len());
        for (at, &id) in self.order.iter().enumerate() {
            let row = self.entries[id].track.row();
            match rows.get_mut(at) {
                Some(published) => published.copy_from(row),
                None => rows.push(row.clone()),
            }
        }
    }

    fn sort(&mut self) {
        self.order.clear();
        self.order.extend(self.entries.iter().filter(|(_, entry)| entry.visible).map(|(id, _)| id));
        let key = |id: &SeriesId| T::Row::key(self.entries[*id].track.row().identity());
        self.order.sort_by(|a, b| key(a).cmp(&key(b)));
    }
}
