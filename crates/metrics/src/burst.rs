//! The metrics of CPU limits that burst.

use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Registry};

use crate::catalogue::burst as catalogue;
use crate::gauge_set::{GaugeSet, gauge, int_counter, int_gauge};

/// Metrics of CPU limits that burst. Each is absent until its first value.
#[derive(Debug)]
pub struct BurstMetrics {
    enforcing: GaugeSet<IntGaugeVec>,
    bursts: GaugeSet<GaugeVec>,
    containers: GaugeSet<IntGaugeVec>,
    changes: IntCounterVec,
    writes: IntCounterVec,
}

impl BurstMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            enforcing: GaugeSet::new(int_gauge(registry, &catalogue::BURST_ENFORCING)),
            bursts: GaugeSet::new(gauge(registry, &catalogue::CONTAINER_BURST_SECONDS)),
            containers: GaugeSet::new(int_gauge(registry, &catalogue::BURST_CONTAINERS)),
            changes: int_counter(registry, &catalogue::BURST_CHANGES_TOTAL),
            writes: int_counter(registry, &catalogue::BURST_WRITES_TOTAL),
        }
    }

    /// Sets whether bursts are written, or the reason why not.
    pub fn set_enforcing(&self, reason_not: Option<&str>) {
        self.enforcing.set_state(reason_not);
    }

    /// Sets the reason why nothing is written any more, unless the feature is off.
    pub fn withdraw(&self, reason: &str) {
        self.enforcing.withdraw_state(reason);
    }

    /// Sets the bursts by namespace, pod and container, seconds per period.
    pub fn set_bursts<'a>(&self, bursts: impl Iterator<Item = ([&'a str; 3], f64)>) {
        keep(&self.bursts, bursts);
    }

    /// Sets the number of containers by state.
    pub fn set_containers<'a>(&self, counts: impl Iterator<Item = (&'a str, usize)>) {
        let vector = &self.containers.vector;
        let set = |labels: &[&str], count: usize| {
            vector.with_label_values(labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        };
        let counts = counts.map(|(state, count)| ([state], count));
        self.containers.keep(counts, set, |labels| vector.remove_label_values(labels));
    }

    /// Counts a change of a container's burst, by action and reason.
    pub fn add_change(&self, labels: [&str; 2]) {
        self.changes.with_label_values(&labels).inc();
    }

    /// Counts writes by setting and result.
    pub fn add_writes(&self, setting: &str, result: &str, times: u64) {
        if times > 0 {
            self.writes.with_label_values(&[setting, result]).inc_by(times);
        }
    }
}

/// Sets the values of these containers, and removes the series of all others.
fn keep<'a>(gauges: &GaugeSet<GaugeVec>, values: impl Iterator<Item = ([&'a str; 3], f64)>) {
    let vector = &gauges.vector;
    let set = |labels: &[&str], value: f64| vector.with_label_values(labels).set(value);
    gauges.keep(values, set, |labels| vector.remove_label_values(labels));
}
