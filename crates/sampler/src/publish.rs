//! Atomic publication of snapshots, and reuse of those without a reader.

use std::sync::Arc;

use snapshot::{NodeGc, NodeSnapshot, NodeWaits, Published};

/// The writer: fills a snapshot that no consumer holds any more.
#[derive(Debug, Default)]
pub(crate) struct SnapshotPublisher {
    published: Published<NodeSnapshot>,
    spare: Vec<Arc<NodeSnapshot>>,
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

    /// Lets `fill` overwrite an older snapshot, which keeps its buffers, and publishes it.
    pub(crate) fn publish(&mut self, fill: impl FnOnce(&mut NodeSnapshot)) {
        let free = self.spare.iter_mut().position(|snapshot| Arc::get_mut(snapshot).is_some());
        let mut snapshot = free.map(|at| self.spare.swap_remove(at)).unwrap_or_default();
        if let Some(snapshot) = Arc::get_mut(&mut snapshot) {
            fill(snapshot);
        }
        let old = self.published.replace(snapshot);
        // Limits the spares in case a consumer never releases a snapshot.
        if self.spare.len() < 3 {
            self.spare.push(old);
        }
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
            publisher.publish(|snapshot| snapshot.sequence = sequence);
            let latest = published.latest();
            assert_eq!(latest.sequence, sequence);
            held.push(latest);
        }
        assert!(held.iter().map(|snapshot| snapshot.sequence).eq(1..=10));
    }

    #[test]
    fn an_unreferenced_snapshot_is_reused() {
        let mut publisher = SnapshotPublisher::default();
        let published = publisher.published();
        let mut addresses = std::collections::HashSet::new();
        for sequence in 1..=20 {
            publisher.publish(|snapshot| snapshot.sequence = sequence);
            addresses.insert(Arc::as_ptr(&published.latest()));
        }
        assert!(addresses.len() <= 3, "{addresses:?}");
    }
}
