//! Series of pods whose own cgroup has a quota.

use std::sync::Arc;

use snapshot::{CpuLimit, Limit, PodIdentity, PodRow};

use super::table::{Row, Track};
use super::totals::{add_cfs, add_deltas};
use super::window::WindowStart;
use crate::cgroup::Deltas;

/// Series of one pod.
#[derive(Debug, Default)]
pub(crate) struct PodSeries {
    row: PodRow,
    window: WindowStart,
}

impl PodSeries {
    /// Adds the increments of the pod's own counters.
    pub(crate) fn add(&mut self, deltas: &Deltas, cpu_limit: Limit<CpuLimit>) {
        add_deltas(&mut self.row.cfs, deltas);
        self.row.cpu_limit = cpu_limit;
        if deltas.first {
            self.window.skip(deltas.periods.unwrap_or(0), deltas.throttled_periods.unwrap_or(0));
        }
    }

    /// Closes the current window.
    pub(crate) fn close_window(&mut self) {
        self.window.close(self.row.cfs, &mut self.row.windows);
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
