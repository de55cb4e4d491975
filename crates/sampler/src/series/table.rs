//! Series by what the exposition shows of them.
//!
//! A series outlives its cgroups and stays until the last pod that it was seen in is gone.

use std::collections::HashMap;
use std::sync::Arc;

use slab::Slab;

use crate::cgroup::CgroupId;

/// Handle of a series.
pub(crate) type SeriesId = usize;

/// A published row.
pub(crate) trait Row: Clone + Default {
    /// Whose it is.
    type Identity: PartialEq;

    fn identity(&self) -> &Arc<Self::Identity>;
    fn set_identity(&mut self, identity: Arc<Self::Identity>);
    /// What makes it unique.
    fn labels(identity: &Self::Identity) -> &str;
    /// The order of the exposition.
    fn key(identity: &Self::Identity) -> (&str, &str, &str);
    /// Becomes equal to `other` without giving up its own buffers.
    fn copy_from(&mut self, other: &Self);
}

/// A row together with what its counting needs.
pub(crate) trait Track: Default {
    type Row: Row;

    fn row(&self) -> &Self::Row;
    fn row_mut(&mut self) -> &mut Self::Row;
    /// A cgroup feeds it again.
    fn wake(&mut self);
    /// No cgroup feeds it.
    fn rest(&mut self);
    /// Takes over another's totals.
    fn merge(&mut self, other: &Self);
}

type Identity<T> = <<T as Track>::Row as Row>::Identity;

#[derive(Debug, Default)]
struct Entry<T> {
    track: T,
    /// Shown in the exposition.
    visible: bool,
    /// Cgroups that feed it now.
    cgroups: u32,
    /// The pods' cgroups that it was seen in and that are still there.
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
        Self { entries: Slab::new(), by_labels: HashMap::new(), order: Vec::new(), stale_order: false }
    }
}

impl<T: Track> Table<T> {
    pub(crate) fn get(&self, id: SeriesId) -> &T {
        &self.entries[id].track
    }

    pub(crate) fn get_mut(&mut self, id: SeriesId) -> &mut T {
        &mut self.entries[id].track
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, entry)| &mut entry.track)
    }

    /// Feeds the series of `identity` from one more cgroup of `pod`; makes the series when there is none.
    pub(crate) fn attach(&mut self, identity: Identity<T>, pod: CgroupId, visible: bool) -> SeriesId {
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

    /// Gives a series its labels' other values and shows or hides it.
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

    /// Moves a cgroup's feed, with what its series has counted, to the series of another identity.
    pub(crate) fn rename(&mut self, from: SeriesId, identity: Identity<T>, pod: CgroupId, visible: bool) -> SeriesId {
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

    /// A cgroup that fed the series is gone.
    pub(crate) fn detach(&mut self, id: SeriesId) {
        let entry = &mut self.entries[id];
        entry.cgroups = entry.cgroups.saturating_sub(1);
        if entry.cgroups == 0 {
            entry.track.rest();
        }
    }

    /// A cgroup that fed the series turned out to be nobody's: the series goes too, unless another cgroup feeds it.
    /// True when it has gone.
    pub(crate) fn discard(&mut self, id: SeriesId) -> bool {
        let is_last = self.entries[id].cgroups <= 1;
        if is_last {
            self.remove(id);
        } else {
            self.detach(id);
        }
        is_last
    }

    /// A pod's cgroup is gone, and with it the series that no other pod holds.
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

    /// Takes a series away altogether.
    fn remove(&mut self, id: SeriesId) -> T {
        let track = self.entries.remove(id).track;
        self.by_labels.remove(T::Row::labels(track.row().identity()));
        self.stale_order = true;
        track
    }

    /// Writes the visible rows into `rows`, reusing what is there.
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
