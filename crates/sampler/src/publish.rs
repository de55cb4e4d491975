//! Atomic publication of snapshots, and reuse of those without a reader.

use std::sync::Arc;

use snapshot::{NodeGc, NodeSnapshot, NodeWaits, Published};

/// A publication, and what the snapshot that it fills holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publication {
    /// Its number, from 1.
    pub(crate) number: u64,
    /// The publication that filled the snapshot before; 0: none.
    pub(crate) written: u64,
}

/// The writer: fills a snapshot that no consumer holds any more.
#[derive(Debug, Default)]
pub(crate) struct SnapshotPublisher {
    published: Published<NodeSnapshot>,
    /// Number of the last publication.
    number: u64,
    /// Older snapshots, each with the publication that filled it.
    spare: Vec<(u64, Arc<NodeSnapshot>)>,
    /// Waits for the next snapshot.
    waits: Published<NodeWaits>,
    /// Garbage collection for the next snapshot.
    gc: Published<NodeGc>,
}

impl SnapshotPublisher {
    pub(crate) fn published(&self) -> Published<NodeSnapshot> {
        self.published.clone()
    }

    /// Slot for the waits that the next snapshot publishes.
    pub(crate) fn waits(&self) -> Published<NodeWaits> {
        self.waits.clone()
    }

    /// Slot for the garbage collection that the next snapshot publishes.
    pub(crate) fn gc(&self) -> Published<NodeGc> {
        self.gc.clone()
    }

    /// Lets `fill` overwrite an older snapshot, which keeps its buffers and rows, and publishes it.
    pub(crate) fn publish(&mut self, fill: impl FnOnce(&mut NodeSnapshot, Publication)) {
        let free = self.spare.iter_mut().position(|(_, snapshot)| Arc::get_mut(snapshot).is_some());
        let (written, mut snapshot) = free.map(|at| self.spare.swap_remove(at)).unwrap_or_default();
        let number = self.number + 1;
        if let Some(snapshot) = Arc::get_mut(&mut snapshot) {
            fill(snapshot, Publication { number, written });
        }
        let old = self.published.replace(snapshot);
        // Limits the spares in case a consumer never releases a snapshot.
        if self.spare.len() < 3 {
            self.spare.push((self.number, old));
        }
        self.number = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_in_use_is_never_written_to() {
        let mut publisher = SnapshotPublisher::default();
        let published = publisher.published();
        let mut held = Vec::new();
        for sequence in 1..=10 {
            publisher.publish(|snapshot, _| snapshot.sequence = sequence);
            let latest = published.latest();
            assert_eq!(latest.sequence, sequence);
            held.push(latest);
        }
        assert!(held.iter().map(|snapshot| snapshot.sequence).eq(1..=10));
    }

    #[test]
    fn a_reused_snapshot_comes_with_the_publication_that_filled_it() {
        let mut publisher = SnapshotPublisher::default();
        let published = publisher.published();
        let mut held = Vec::new();
        for number in 1..=20 {
            publisher.publish(|snapshot, publication| {
                assert_eq!((publication.number, publication.written), (number, snapshot.sequence));
                snapshot.sequence = number;
            });
            if number % 5 == 0 {
                held.push(published.latest());
            }
        }
        assert!(held.iter().map(|snapshot| snapshot.sequence).eq([5, 10, 15, 20]));
    }

    #[test]
    fn an_unreferenced_snapshot_is_reused() {
        let mut publisher = SnapshotPublisher::default();
        let published = publisher.published();
        let mut addresses = std::collections::HashSet::new();
        for sequence in 1..=20 {
            publisher.publish(|snapshot, _| snapshot.sequence = sequence);
            addresses.insert(Arc::as_ptr(&published.latest()));
        }
        assert!(addresses.len() <= 3, "{addresses:?}");
    }
}
