//! The metrics of the injected environment.

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use crate::catalogue::{Descriptor, injection as catalogue};
use crate::gauge_set::{GaugeSet, opts, registered};

/// Metrics of the injected environment. Each is absent until its first value.
#[derive(Debug)]
pub struct InjectionMetrics {
    connected: GaugeSet<IntGaugeVec>,
    empty_answers: IntCounterVec,
    variables: GaugeSet<IntGaugeVec>,
}

impl InjectionMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let gauge = |descriptor: &Descriptor| {
            let vector = IntGaugeVec::new(opts(descriptor), descriptor.labels);
            GaugeSet::new(registered(registry, vector))
        };
        let answers = &catalogue::NRI_EMPTY_ANSWERS_TOTAL;
        Self {
            connected: gauge(&catalogue::NRI_CONNECTED),
            empty_answers: registered(registry, IntCounterVec::new(opts(answers), answers.labels)),
            variables: gauge(&catalogue::CONTAINER_INJECTED_ENV_INFO),
        }
    }

    /// Sets whether the agent is connected to a runtime, with the last known name and version.
    pub fn set_connected(&self, runtime: [&str; 2], connected: bool) {
        let vector = &self.connected.vector;
        let set = |labels: &[&str], value: i64| vector.with_label_values(labels).set(value);
        let state = (runtime, i64::from(connected));
        self.connected.keep([state].into_iter(), set, |labels| vector.remove_label_values(labels));
    }

    /// Counts an answer without an adjustment after a fault.
    pub fn add_empty_answer(&self, method: &str) {
        self.empty_answers.with_label_values(&[method]).inc();
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
