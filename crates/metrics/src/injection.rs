//! The metrics of the injected environment.

use std::time::Duration;

use prometheus::{CounterVec, IntCounterVec, IntGaugeVec, Registry};

use crate::catalogue::injection as catalogue;
use crate::gauge_set::{GaugeSet, counter, int_counter, int_gauge};

/// Metrics of the injected environment. Each is absent until its first value.
#[derive(Debug)]
pub struct InjectionMetrics {
    connected: GaugeSet<IntGaugeVec>,
    disconnected_seconds: CounterVec,
    reconnections: IntCounterVec,
    empty_answers: IntCounterVec,
    missed: IntCounterVec,
    variables: GaugeSet<IntGaugeVec>,
}

impl InjectionMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let variables = int_gauge(registry, &catalogue::CONTAINER_INJECTED_ENV_INFO);
        Self {
            connected: GaugeSet::new(int_gauge(registry, &catalogue::NRI_CONNECTED)),
            disconnected_seconds: counter(registry, &catalogue::NRI_DISCONNECTED_SECONDS_TOTAL),
            reconnections: int_counter(registry, &catalogue::NRI_RECONNECTIONS_TOTAL),
            empty_answers: int_counter(registry, &catalogue::NRI_EMPTY_ANSWERS_TOTAL),
            missed: int_counter(registry, &catalogue::ENV_INJECTIONS_MISSED_TOTAL),
            variables: GaugeSet::new(variables),
        }
    }

    /// Sets whether the agent is connected to a runtime, with the last known name and version.
    pub fn set_connected(&self, runtime: [&str; 2], connected: bool) {
        let vector = &self.connected.vector;
        let set = |labels: &[&str], value: i64| vector.with_label_values(labels).set(value);
        let state = (runtime, i64::from(connected));
        self.connected.keep([state].into_iter(), set, |labels| vector.remove_label_values(labels));
    }

    /// Adds time without a connection to a runtime.
    pub fn add_disconnected(&self, time: Duration) {
        self.disconnected_seconds.with_label_values::<&str>(&[]).inc_by(time.as_secs_f64());
    }

    /// Adds connections to a runtime after the first one.
    pub fn add_reconnections(&self, count: u64) {
        self.reconnections.with_label_values::<&str>(&[]).inc_by(count);
    }

    /// Counts an answer without an adjustment after a fault.
    pub fn add_empty_answer(&self, method: &str) {
        self.empty_answers.with_label_values(&[method]).inc();
    }

    /// Adds containers that started without variables because their pods were not listed yet.
    pub fn add_missed(&self, reason: &str, containers: u64) {
        self.missed.with_label_values(&[reason]).inc_by(containers);
    }

    /// Sets all variables of all containers: namespace, pod, container, variable, value, status.
    pub fn set_variables<'a>(&self, variables: impl Iterator<Item = [&'a str; 6]>) {
        let vector = &self.variables.vector;
        let set = |labels: &[&str], value: i64| vector.with_label_values(labels).set(value);
        self.variables.keep(variables.map(|labels| (labels, 1)), set, |labels| {
            vector.remove_label_values(labels)
        });
    }
}
