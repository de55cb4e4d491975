//! Series of a container.

use std::sync::Arc;

use snapshot::{ContainerIdentity, ContainerRow, KernelCounters, Limit, Threads, share};

use super::table::{Row, Track};
use super::totals::{add, add_cfs};
use super::window::WindowStart;
use crate::cgroup::Deltas;
use crate::reading::Value;

/// Series of one container.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContainerSeries {
    pub(crate) row: ContainerRow,
    window: WindowStart,
}

impl ContainerSeries {
    /// Adds the increments of a cgroup's counters.
    pub(crate) fn add(&mut self, deltas: &Deltas, had_quota: bool) {
        let row = &mut self.row;
        add(&mut row.usage_ns, deltas.usage_ns.read());
        add(&mut row.user_ns, deltas.user_ns.read());
        add(&mut row.system_ns, deltas.system_ns.read());
        add(&mut row.throttled_ancestor_ns, deltas.ancestor_ns);
        if !had_quota {
            return;
        }
        row.windows.get_or_insert_default();
        let totals = row.cfs.get_or_insert_default();
        if let Value::Read(cfs) = deltas.cfs {
            add_cfs(totals, &cfs);
            if deltas.first {
                self.window.skip(cfs.periods, cfs.throttled_periods);
            }
        }
    }

    /// Closes the current window. Returns whether it counted.
    pub(crate) fn close_window(&mut self) -> bool {
        let Some((cfs, windows)) = self.row.cfs.zip(self.row.windows.as_mut()) else {
            return false;
        };
        self.window.close(cfs, windows)
    }
}

impl Track for ContainerSeries {
    type Row = ContainerRow;

    fn row(&self) -> &ContainerRow {
        &self.row
    }

    fn row_mut(&mut self) -> &mut ContainerRow {
        &mut self.row
    }

    fn wake(&mut self) {
        self.row.live = true;
    }

    fn merge(&mut self, other: &Self) {
        let (row, other) = (&mut self.row, &other.row);
        add(&mut row.usage_ns, other.usage_ns);
        add(&mut row.user_ns, other.user_ns);
        add(&mut row.system_ns, other.system_ns);
        add(&mut row.throttled_ancestor_ns, other.throttled_ancestor_ns);
        add(&mut row.throttled_child_ns, other.throttled_child_ns);
        add(&mut row.pressure_waiting_ns, other.pressure_waiting_ns);
        add(&mut row.pressure_stalled_ns, other.pressure_stalled_ns);
        add(&mut row.contention_lower_ns, other.contention_lower_ns);
        add(&mut row.contention_upper_ns, other.contention_upper_ns);
        add(&mut row.run_delay_ns, other.run_delay_ns);
        if let Some(cfs) = other.cfs {
            add_cfs(row.cfs.get_or_insert_default(), &cfs);
            self.window.skip(cfs.periods, cfs.throttled_periods);
        }
        if let Some(windows) = other.windows {
            row.windows.get_or_insert_default().add(&windows);
        }
    }

    fn has_grown(&self, earlier: &Self) -> bool {
        let counters = |row: &ContainerRow| {
            let cpu = [row.usage_ns, row.user_ns, row.system_ns, row.throttled_ancestor_ns];
            let waits = [
                row.throttled_child_ns,
                row.pressure_waiting_ns,
                row.pressure_stalled_ns,
                row.run_delay_ns,
                row.contention_upper_ns,
            ];
            (cpu, waits, row.cfs)
        };
        counters(&self.row) != counters(&earlier.row)
    }

    /// Keeps the counters and clears the gauges.
    fn on_idle(&mut self) {
        let row = &mut self.row;
        row.live = false;
        row.cpu_limit = Limit::NotRead;
        row.request_cores = None;
        row.weight = None;
        row.bandwidth = None;
        row.kernel = KernelCounters::default();
        row.cpuset = None;
        row.numa_memory.clear();
        row.first_pid = None;
        row.threads = Threads::NotScanned;
        row.runnable_threads = None;
        row.memory_working_set_bytes = None;
        row.memory_live_bytes = None;
        row.memory_limit_bytes = Limit::NotRead;
        row.memory_request_bytes = None;
        row.spec = None;
    }
}

impl Row for ContainerRow {
    type Identity = ContainerIdentity;

    fn identity(&self) -> &Arc<ContainerIdentity> {
        &self.identity
    }

    fn set_identity(&mut self, identity: Arc<ContainerIdentity>) {
        self.identity = identity;
    }

    fn labels(identity: &ContainerIdentity) -> &str {
        &identity.labels
    }

    fn key(identity: &ContainerIdentity) -> (&str, &str, &str) {
        (&identity.namespace, &identity.pod, &identity.container)
    }

    /// Keeps the waits and the garbage collection, which are joined to the published row.
    fn copy_from(&mut self, other: &Self) {
        let mut numa_memory = std::mem::take(&mut self.numa_memory);
        numa_memory.clone_from(&other.numa_memory);
        let (mut cpuset, mut cgroup) = (self.cpuset.take(), self.cgroup.take());
        share(&mut cpuset, other.cpuset.as_ref());
        share(&mut cgroup, other.cgroup.as_ref());
        let (identity, waits, gc) =
            (Arc::clone(&other.identity), self.waits.take(), self.gc.take());
        *self = Self { identity, cpuset, waits, gc, cgroup, numa_memory, ..*other };
    }
}
