//! The pinning metrics: gauges that follow the plan, counters that follow the writes.

use std::time::Duration;

use prometheus::{CounterVec, IntCounterVec, IntGaugeVec, Registry};

use crate::catalogue::pinning as catalogue;
use crate::gauge_set::{GaugeSet, counter, int_counter, int_gauge};

/// Metrics of pinning. Each is absent until its first value.
#[derive(Debug)]
pub struct PinningMetrics {
    pinned: GaugeSet<IntGaugeVec>,
    pools: IntGaugeVec,
    overlap: GaugeSet<CounterVec>,
    operations: IntCounterVec,
    rejections: IntCounterVec,
    enforcing: GaugeSet<IntGaugeVec>,
    stepped_back: GaugeSet<IntGaugeVec>,
    events: IntCounterVec,
}

impl PinningMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let overlap = counter(registry, &catalogue::EXCLUSIVE_OVERLAP_SECONDS_TOTAL);
        Self {
            pinned: GaugeSet::new(int_gauge(registry, &catalogue::PINNED_CPUS)),
            pools: int_gauge(registry, &catalogue::POOL_CPUS),
            overlap: GaugeSet::new(overlap),
            operations: int_counter(registry, &catalogue::PIN_OPERATIONS_TOTAL),
            rejections: int_counter(registry, &catalogue::PIN_REJECTIONS_TOTAL),
            enforcing: GaugeSet::new(int_gauge(registry, &catalogue::PINNING_ENFORCING)),
            stepped_back: GaugeSet::new(int_gauge(registry, &catalogue::PINNING_STEPPED_BACK)),
            events: int_counter(registry, &catalogue::PIN_EVENTS_TOTAL),
        }
    }

    /// Sets the number of exclusive CPUs of all pods that have some: namespace, pod, class, policy.
    pub fn set_pinned<'a>(&self, pods: impl Iterator<Item = ([&'a str; 4], usize)>) {
        let set = |labels: &[&str], cpus: usize| {
            self.pinned.vector.with_label_values(labels).set(gauge_value(cpus));
        };
        self.pinned.keep(pods, set, |labels| self.pinned.vector.remove_label_values(labels));
    }

    /// Sets the number of CPUs in a pool.
    pub fn set_pool(&self, pool: &str, cpus: usize) {
        self.pools.with_label_values(&[pool]).set(gauge_value(cpus));
    }

    /// Adds the time of overlap since the last call, by namespace and pod, of all pods with
    /// exclusive CPUs.
    pub fn add_overlaps<'a>(&self, pods: impl Iterator<Item = ([&'a str; 2], Duration)>) {
        let add = |labels: &[&str], time: Duration| {
            self.overlap.vector.with_label_values(labels).inc_by(time.as_secs_f64());
        };
        self.overlap.keep(pods, add, |labels| self.overlap.vector.remove_label_values(labels));
    }

    /// Counts `times` more operations; `held`: whether they succeeded.
    pub fn add_operations(&self, operation: &str, held: bool, times: u64) {
        self.operations
            .with_label_values(&[operation, if held { "ok" } else { "error" }])
            .inc_by(times);
    }

    /// Counts a rejected pod.
    pub fn add_rejection(&self, reason: &str) {
        self.rejections.with_label_values(&[reason]).inc();
    }

    /// Sets the number of objects that pinning has stepped back from, by scope and reason.
    pub fn set_stepped_back<'a>(&self, counts: impl Iterator<Item = ([&'a str; 2], usize)>) {
        let vector = &self.stepped_back.vector;
        let set = |labels: &[&str], count: usize| {
            vector.with_label_values(labels).set(gauge_value(count));
        };
        self.stepped_back.keep(counts, set, |labels| vector.remove_label_values(labels));
    }

    /// Counts an event by result: `sent`, `failed` or `dropped`.
    pub fn add_event(&self, result: &str) {
        self.events.with_label_values(&[result]).inc();
    }

    /// Sets whether cpusets are written, or the reason why not.
    pub fn set_enforcing(&self, reason_not: Option<&str>) {
        self.enforcing.set_state(reason_not);
    }
}

fn gauge_value(cpus: usize) -> i64 {
    i64::try_from(cpus).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use prometheus::core::Collector as _;

    use super::*;

    #[test]
    fn series_go_with_their_pods() {
        let metrics = PinningMetrics::new(&Registry::new());
        let series = || {
            metrics
                .pinned
                .vector
                .collect()
                .iter()
                .map(|family| family.get_metric().len())
                .sum::<usize>()
        };
        metrics.set_pinned(
            [(["a", "b", "LSR", "FullPCPUs"], 2), (["a", "c", "LSE", "FullPCPUs"], 4)].into_iter(),
        );
        assert_eq!(series(), 2);
        metrics.set_pinned([(["a", "c", "LSE", "FullPCPUs"], 4)].into_iter());
        assert_eq!(series(), 1);
    }
}
