//! The metrics of best-effort pods that yield.

use std::time::Duration;

use prometheus::{CounterVec, GaugeVec, IntCounterVec, IntGaugeVec, Registry};

use crate::catalogue::best_effort as catalogue;
use crate::gauge_set::{GaugeSet, counter, gauge, int_counter, int_gauge};

/// Metrics of best-effort pods that yield. Each is absent until its first value.
#[derive(Debug)]
pub struct BestEffortMetrics {
    step: IntGaugeVec,
    step_seconds: CounterVec,
    transitions: IntCounterVec,
    writes: IntCounterVec,
    enforcing: GaugeSet<IntGaugeVec>,
    restricted: GaugeSet<IntGaugeVec>,
    harm: GaugeVec,
    budget: GaugeVec,
}

impl BestEffortMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            step: int_gauge(registry, &catalogue::BEST_EFFORT_STEP),
            step_seconds: counter(registry, &catalogue::BEST_EFFORT_STEP_SECONDS_TOTAL),
            transitions: int_counter(registry, &catalogue::BEST_EFFORT_TRANSITIONS_TOTAL),
            writes: int_counter(registry, &catalogue::BEST_EFFORT_WRITES_TOTAL),
            enforcing: GaugeSet::new(int_gauge(registry, &catalogue::BEST_EFFORT_ENFORCING)),
            restricted: GaugeSet::new(int_gauge(registry, &catalogue::BEST_EFFORT_RESTRICTED)),
            harm: gauge(registry, &catalogue::BEST_EFFORT_HARM_RATIO),
            budget: gauge(registry, &catalogue::BEST_EFFORT_BUDGET_CORES),
        }
    }

    /// Sets the step, and adds the time since the last call to it.
    pub fn set_step(&self, step: u8, elapsed: Duration) {
        self.step.with_label_values::<&str>(&[]).set(step.into());
        if step > 0 {
            let seconds = self.step_seconds.with_label_values(&[&step.to_string()]);
            seconds.inc_by(elapsed.as_secs_f64());
        }
    }

    /// Sets whether restrictions are written, or the reason why not.
    pub fn set_enforcing(&self, reason_not: Option<&str>) {
        self.enforcing.set_state(reason_not);
    }

    /// Sets the reason why nothing is written any more, unless the feature is off.
    pub fn withdraw(&self, reason: &str) {
        self.enforcing.withdraw_state(reason);
    }

    /// Sets the pods that are restricted, by namespace and name.
    pub fn set_restricted<'a>(&self, pods: impl Iterator<Item = [&'a str; 2]>) {
        let vector = &self.restricted.vector;
        let set = |labels: &[&str], (): ()| vector.with_label_values(labels).set(1);
        let remove = |labels: &[&str]| vector.remove_label_values(labels);
        self.restricted.keep(pods.map(|pod| (pod, ())), set, remove);
    }

    /// Sets the worst harm of the last sample.
    pub fn set_harm(&self, share: f64) {
        self.harm.with_label_values::<&str>(&[]).set(share);
    }

    /// Removes the harm: waits are no longer traced.
    pub fn remove_harm(&self) {
        self.harm.reset();
    }

    /// Sets the budget of the utilization rule, cores.
    pub fn set_budget(&self, cores: f64) {
        self.budget.with_label_values::<&str>(&[]).set(cores);
    }

    /// Counts a change of the restriction.
    pub fn add_transition(&self, step: u8, reason: &str) {
        self.transitions.with_label_values(&[&*step.to_string(), reason]).inc();
    }

    /// Counts writes by setting and result.
    pub fn add_writes(&self, setting: &str, result: &str, times: u64) {
        if times > 0 {
            self.writes.with_label_values(&[setting, result]).inc_by(times);
        }
    }
}
