//! CPU time per container between two snapshots.

use std::collections::HashMap;

use snapshot::ContainerRow;

/// Turns the counters of containers into their CPU time since the last reading.
///
/// Each series is compared with itself: a sum over all rows falls when the rows of an ended pod
/// leave the snapshot.
#[derive(Debug, Default)]
pub struct ContainerUsage {
    /// Counters by the labels of the series and by the container's id: a restart keeps the labels,
    /// a name that arrives late keeps the id.
    last: HashMap<Box<str>, u64>,
}

impl ContainerUsage {
    /// Returns the rows that have a counter, each with its CPU time since the last reading,
    /// nanoseconds. A new series began at 0.
    pub fn read<'a>(&mut self, rows: &'a [ContainerRow]) -> Vec<(&'a ContainerRow, u64)> {
        let mut now = HashMap::with_capacity(2 * rows.len());
        let mut gained = Vec::with_capacity(rows.len());
        for row in rows {
            let Some(used) = row.usage_ns else { continue };
            let (labels, id) = (&row.identity.labels, row.identity.container_id.as_str());
            let before = self.last.get(labels).or_else(|| self.last.get(id));
            // A counter that went back is a new series with the same labels.
            let before = before.copied().filter(|before| *before <= used);
            gained.push((row, used - before.unwrap_or_default()));
            now.insert(labels.clone(), used);
            if !id.is_empty() {
                now.insert(id.into(), used);
            }
        }
        self.last = now;
        gained
    }
}
