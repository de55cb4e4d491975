//! Table of series by their labels.
//!
//! A series outlives its cgroups: it stays until the last pod that contained it is gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::cgroup::CgroupId;
use crate::publish::Publication;

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
pub(crate) trait Track: Clone + Default {
    type Row: Row;

    fn row(&self) -> &Self::Row;
    fn row_mut(&mut self) -> &mut Self::Row;
    /// Called when a cgroup feeds it again.
    fn wake(&mut self);
    /// Called when no cgroup feeds it any more.
    fn on_idle(&mut self);
    /// Adds the totals of another series.
    fn merge(&mut self, other: &Self);
    /// Whether a counter is higher than in this earlier state of the series.
    fn has_grown(&self, earlier: &Self) -> bool;
}

type Identity<T> = <<T as Track>::Row as Row>::Identity;

#[derive(Debug, Default)]
struct SeriesEntry<T> {
    track: T,
    /// Whether it is shown in the exposition.
    visible: bool,
    /// Number of cgroups that feed it now.
    cgroups: u32,
    /// Existing pod cgroups that contain or contained it.
    pods: Vec<CgroupId>,
    provisional: Provisional<T>,
}

/// Counts of a series whose name may still change. What it grew by while it was shown stays under
/// this name, because a reader has already added it up; the rest moves to the new name.
#[derive(Debug, Default)]
enum Provisional<T> {
    /// The name is final, or the series was not shown yet.
    #[default]
    No,
    /// The next publication is the first.
    Unpublished,
    /// State at the first publication, which no reader counts as growth.
    Since(Box<T>),
}

/// Time for which a series is shown after its cgroup got another name, so that its last value is
/// scraped.
const SHOWN_AFTER_RENAME: Duration = Duration::from_secs(120);

/// All series of one kind.
#[derive(Debug)]
pub(crate) struct SeriesTable<T> {
    entries: Slab<SeriesEntry<T>>,
    by_labels: HashMap<Box<str>, SeriesId>,
    /// Visible series in the order of the exposition.
    order: Vec<SeriesId>,
    stale_order: bool,
    /// Number of the last publication.
    published: u64,
    /// Publication by which each series last changed, by its id.
    changed: Vec<u64>,
    /// Publication by which the order or an identity last changed.
    order_changed: u64,
    /// Series whose cgroup got another name, and since when; `None` until the next tick.
    renamed: Vec<(SeriesId, Option<Instant>)>,
}

impl<T> Default for SeriesTable<T> {
    fn default() -> Self {
        Self {
            entries: Slab::new(),
            by_labels: HashMap::new(),
            order: Vec::new(),
            stale_order: false,
            published: 0,
            changed: Vec::new(),
            order_changed: 0,
            renamed: Vec::new(),
        }
    }
}

impl<T: Track> SeriesTable<T> {
    pub(crate) fn get(&self, id: SeriesId) -> &T {
        &self.entries[id].track
    }

    pub(crate) fn get_mut(&mut self, id: SeriesId) -> &mut T {
        &mut self.entry(id).track
    }

    /// The entry, which the next publication copies.
    fn entry(&mut self, id: SeriesId) -> &mut SeriesEntry<T> {
        if self.changed.len() <= id {
            self.changed.resize(id + 1, 0);
        }
        self.changed[id] = self.published + 1;
        &mut self.entries[id]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| &entry.track)
    }

    /// Lets `change` change the series; it returns whether it did.
    pub(crate) fn for_each_mut(&mut self, mut change: impl FnMut(&mut T) -> bool) {
        for (id, entry) in &mut self.entries {
            if change(&mut entry.track) {
                self.changed[id] = self.published + 1;
            }
        }
    }

    /// Makes the next publication copy every row.
    pub(crate) fn touch_all(&mut self) {
        self.changed.fill(self.published + 1);
    }

    /// Whether a series came, went, or got another identity since this publication.
    pub(crate) fn differs_since(&self, publication: u64) -> bool {
        self.stale_order || self.order_changed > publication
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
                let id = self.entries.insert(SeriesEntry::default());
                self.by_labels.insert(labels.into(), id);
                id
            }
        };
        let entry = self.entry(id);
        entry.cgroups += 1;
        entry.track.wake();
        if !entry.pods.contains(&pod) {
            entry.pods.push(pod);
        }
        self.describe(id, identity, visible);
        id
    }

    /// Whether more than one cgroup feeds the series.
    pub(crate) fn is_shared(&self, id: SeriesId) -> bool {
        self.entries[id].cgroups > 1
    }

    /// Updates the identity of a series, whose labels stay the same, and shows or hides it.
    pub(crate) fn describe(&mut self, id: SeriesId, identity: Identity<T>, visible: bool) {
        let entry = self.entry(id);
        let row = entry.track.row_mut();
        let is_renamed = **row.identity() != identity;
        if is_renamed {
            row.set_identity(Arc::new(identity));
        }
        let is_shown_or_hidden = std::mem::replace(&mut entry.visible, visible) != visible;
        self.stale_order |= is_renamed || is_shown_or_hidden;
    }

    /// Records that a series is shown under a name that may still change.
    pub(crate) fn show_provisionally(&mut self, id: SeriesId) {
        let provisional = &mut self.entry(id).provisional;
        if matches!(provisional, Provisional::No) {
            *provisional = Provisional::Unpublished;
        }
    }

    /// Removes the series whose cgroup got another name some time ago.
    pub(crate) fn drop_renamed(&mut self, now: Instant) {
        for at in (0..self.renamed.len()).rev() {
            let (id, since) = &mut self.renamed[at];
            let (id, since) = (*id, *since.get_or_insert(now));
            if now.saturating_duration_since(since) >= SHOWN_AFTER_RENAME {
                self.renamed.swap_remove(at);
                if self.entries[id].cgroups == 0 {
                    self.remove(id);
                }
            }
        }
    }

    /// Moves a cgroup to the series of another identity, with the counts of its series that no
    /// reader has seen growing.
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
            0 | 1 => self.move_counts(from, to),
            _ => self.entries[from].cgroups -= 1,
        }
        to
    }

    fn move_counts(&mut self, from: SeriesId, to: SeriesId) {
        let old = &mut self.entries[from];
        match std::mem::take(&mut old.provisional) {
            Provisional::Since(first) if old.track.has_grown(&first) => {
                self.renamed.push((from, None));
                self.detach(from);
                self.get_mut(to).merge(&first);
            }
            _ => {
                let old = self.remove(from);
                self.get_mut(to).merge(&old);
            }
        }
    }

    /// Records that a cgroup that fed the series is gone.
    pub(crate) fn detach(&mut self, id: SeriesId) {
        let entry = self.entry(id);
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
        self.renamed.retain(|&(renamed, _)| renamed != id);
        track
    }

    /// Writes the visible rows into `rows`: those that have changed since it was written last. `finish`
    /// completes a row that was written.
    pub(crate) fn publish(
        &mut self,
        rows: &mut Vec<T::Row>,
        publication: Publication,
        finish: impl Fn(&mut T::Row),
    ) {
        let Publication { number, written } = publication;
        self.published = number;
        if std::mem::take(&mut self.stale_order) {
            self.sort();
            self.order_changed = self.published;
        }
        let is_same_order = self.order_changed <= written;
        rows.truncate(self.order.len());
        for (at, &id) in self.order.iter().enumerate() {
            if is_same_order && self.changed[id] <= written {
                continue;
            }
            let entry = &mut self.entries[id];
            if matches!(entry.provisional, Provisional::Unpublished) {
                entry.provisional = Provisional::Since(Box::new(entry.track.clone()));
            }
            let row = entry.track.row();
            match rows.get_mut(at) {
                Some(published) => published.copy_from(row),
                None => rows.push(row.clone()),
            }
            finish(&mut rows[at]);
        }
    }

    fn sort(&mut self) {
        self.order.clear();
        self.order.extend(self.entries.iter().filter(|(_, entry)| entry.visible).map(|(id, _)| id));
        let key = |id: &SeriesId| T::Row::key(self.entries[*id].track.row().identity());
        self.order.sort_by(|a, b| key(a).cmp(&key(b)));
    }
}
