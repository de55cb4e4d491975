//! Series of pods whose own cgroup has a quota.

use std::sync::Arc;

use snapshot::{CpuLimit, Limit, PodIdentity, PodRow};

use super::table::{Row, Track};
use super::totals::add_cfs;
use super::window::WindowStart;
use crate::cgroup::Deltas;
use crate::reading::Value;

/// Series of one pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodSeries {
    row: PodRow,
    window: WindowStart,
}

impl PodSeries {
    /// Adds the increments of the pod's own counters.
    pub(crate) fn add(&mut self, deltas: &Deltas, cpu_limit: Limit<CpuLimit>) {
        self.row.cpu_limit = cpu_limit;
        if let Value::Read(cfs) = deltas.cfs {
            add_cfs(&mut self.row.cfs, &cfs);
            if deltas.first {
                self.window.skip(cfs.periods, cfs.throttled_periods);
            }
        }
    }

    pub(crate) fn cpu_limit(&self) -> Limit<CpuLimit> {
        self.row.cpu_limit
    }

    /// Closes the current window. Returns whether it counted.
    pub(crate) fn close_window(&mut self) -> bool {
        self.window.close(self.row.cfs, &mut self.row.windows)
    }
}

impl Track for PodSeries {
    type Row = PodRow;

    fn row(&self) -> &PodRow {
        &self.row
    }

    fn row_mut(&mut self) -> &mut PodRow {
        &mut self.row
    }

    fn wake(&mut self) {}

    fn on_idle(&mut self) {
        self.row.cpu_limit = Limit::NotRead;
    }

    fn has_grown(&self, earlier: &Self) -> bool {
        self.row.cfs != earlier.row.cfs
    }

    fn merge(&mut self, other: &Self) {
        add_cfs(&mut self.row.cfs, &other.row.cfs);
        self.row.windows.add(&other.row.windows);
        self.window.skip(other.row.cfs.periods, other.row.cfs.throttled_periods);
    }
}

impl Row for PodRow {
    type Identity = PodIdentity;

    fn identity(&self) -> &Arc<PodIdentity> {
        &self.identity
    }

    fn set_identity(&mut self, identity: Arc<PodIdentity>) {
        self.identity = identity;
    }

    fn labels(identity: &PodIdentity) -> &str {
        &identity.labels
    }

    fn key(identity: &PodIdentity) -> (&str, &str, &str) {
        (&identity.namespace, &identity.pod, "")
    }

    fn copy_from(&mut self, other: &Self) {
        *self = Self { identity: Arc::clone(&other.identity), ..*other };
    }
}
