//! Series of the containers and pods, and what a cgroup adds to them.

use std::sync::Arc;

use crate::cgroup::{Deltas, SampledCgroup};
use crate::naming::{KnownContainer, Limits};
use crate::series::{ContainerSeries, PodSeries, SeriesId, SeriesTable, Track};

/// Series of the containers and pods.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) containers: SeriesTable<ContainerSeries>,
    pub(super) pods: SeriesTable<PodSeries>,
}

impl Ledger {
    /// Adds the increments of a container's counters to its series, if it has one, and copies its
    /// settings.
    pub(super) fn count_container(&mut self, cgroup: &SampledCgroup, deltas: &Deltas) {
        let Some(series) = cgroup.series else { return };
        let series = self.containers.get_mut(series);
        series.add(deltas, cgroup.activity.had_quota);
        let row = series.row_mut();
        row.kernel = cgroup.kernel_counters();
        row.cpu_limit = cgroup.path.limit;
        row.weight = cgroup.settings.weight.read();
        row.bandwidth = cgroup.settings.bandwidth.read();
        if !row.cgroup.as_ref().is_some_and(|path| Arc::ptr_eq(path, &cgroup.relative)) {
            row.cgroup = Some(Arc::clone(&cgroup.relative));
        }
    }

    /// Copies the settings of a container that was not read, unless its series has them.
    pub(super) fn count_unread(&mut self, cgroup: &SampledCgroup) {
        let Some(series) = cgroup.series else { return };
        let row = self.containers.get(series).row();
        let is_same = row.cgroup.as_ref().is_some_and(|path| Arc::ptr_eq(path, &cgroup.relative));
        if !is_same || row.kernel.usage_ns != cgroup.last_usage().usage_ns {
            self.count_container(cgroup, &Deltas::default());
        }
    }

    /// Adds the increments of a pod's own counters to its series, if it has one.
    pub(super) fn count_pod(&mut self, cgroup: &SampledCgroup, deltas: &Deltas) {
        let Some(series) = cgroup.series else { return };
        let limit = cgroup.settings.cpu_limit();
        if !deltas.are_zero() || self.pods.get(series).cpu_limit() != limit {
            self.pods.get_mut(series).add(deltas, limit);
        }
    }

    /// Copies the data of the pod's spec to the container's row.
    pub(super) fn describe(&mut self, series: SeriesId, known: &KnownContainer) {
        let row = self.containers.get_mut(series).row_mut();
        row.request_cores = known.request_cores;
        row.memory_request_bytes = known.memory_request_bytes;
        row.spec = Some(known.spec);
    }

    /// Limits of a container's cgroup, as the kernel enforces them.
    pub(super) fn limits(&self, cgroup: &SampledCgroup) -> Limits {
        let row = cgroup.series.map(|series| self.containers.get(series).row());
        Limits {
            cpu_cores: cgroup.settings.cpu_limit().cores(),
            memory_bytes: row.and_then(|row| row.memory_limit_bytes.limited()),
        }
    }

    /// Closes the current window of every histogram.
    pub(super) fn close_windows(&mut self) {
        self.containers.for_each_mut(ContainerSeries::close_window);
        self.pods.for_each_mut(PodSeries::close_window);
    }
}
