//! Series of pods whose own cgroup has a quota.

use std::sync::Arc;

use snapshot::{PodIdentity, PodRow};

use super::table::{Row, Track};
use super::totals::{add_cfs, gain_cfs};
use super::window::WindowMark;
use crate::cgroup::Gains;

/// Series of one pod.
#[derive(Debug, Default)]
pub(crate) struct PodSeries {
    row: PodRow,
    window: WindowMark,
}

impl PodSeries {
    /// Adds the increments of the pod's own counters.
    pub(crate) fn gain(&mut self, gains: &Gains, limit_cores: Option<f64>) {
        gain_cfs(&mut self.row.cfs, gains);
        self.row.limit_cores = limit_cores;
        if gains.first {
            self.window.skip(gains.periods.unwrap_or(0), gains.throttled_periods.unwrap_or(0));
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

    fn rest(&mut self) {
        self.row.limit_cores = None;
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
