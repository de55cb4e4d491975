//! Vectors of the prometheus crate with series that come and go.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::{CounterVec, GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::catalogue::Descriptor;

/// A vector whose series are removed with the objects that they describe. No scrape finds it empty
/// in between.
#[derive(Debug)]
pub(crate) struct GaugeSet<V> {
    pub(crate) vector: V,
    series: Mutex<BTreeSet<Vec<String>>>,
}

impl<V> GaugeSet<V> {
    pub(crate) fn new(vector: V) -> Self {
        Self { vector, series: Mutex::default() }
    }

    /// Whether any series is set.
    pub(crate) fn is_set(&self) -> bool {
        !self.series.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Sets these series, and then removes all others.
    pub(crate) fn keep<'a, const N: usize, T>(
        &self,
        values: impl Iterator<Item = ([&'a str; N], T)>,
        set: impl Fn(&[&str], T),
        remove: impl Fn(&[&str]) -> prometheus::Result<()>,
    ) {
        let mut now = BTreeSet::new();
        for (labels, value) in values {
            set(&labels, value);
            now.insert(labels.map(str::to_owned).to_vec());
        }
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in series.difference(&now) {
            let labels: Vec<&str> = gone.iter().map(String::as_str).collect();
            // The series was set with the same labels before, so it exists.
            let _ = remove(&labels);
        }
        *series = now;
    }
}

impl GaugeSet<IntGaugeVec> {
    /// Sets a state with the label `reason`: 1 without a reason, or 0 with the reason why not.
    pub(crate) fn set_state(&self, reason_not: Option<&str>) {
        let state = ([reason_not.unwrap_or_default()], i64::from(reason_not.is_none()));
        let set = |labels: &[&str], value: i64| self.vector.with_label_values(labels).set(value);
        self.keep([state].into_iter(), set, |labels| self.vector.remove_label_values(labels));
    }

    /// Sets the reason why the state no longer holds, if a state was set.
    pub(crate) fn withdraw_state(&self, reason: &str) {
        if self.is_set() {
            self.set_state(Some(reason));
        }
    }
}

pub(crate) fn opts(descriptor: &Descriptor) -> Opts {
    Opts::new(descriptor.name, descriptor.help)
}

/// A registered vector of floats that rise and fall.
pub(crate) fn gauge(registry: &Registry, descriptor: &Descriptor) -> GaugeVec {
    registered(registry, GaugeVec::new(opts(descriptor), descriptor.labels))
}

/// A registered vector of integers that rise and fall.
pub(crate) fn int_gauge(registry: &Registry, descriptor: &Descriptor) -> IntGaugeVec {
    registered(registry, IntGaugeVec::new(opts(descriptor), descriptor.labels))
}

/// A registered vector of floats that only rise.
pub(crate) fn counter(registry: &Registry, descriptor: &Descriptor) -> CounterVec {
    registered(registry, CounterVec::new(opts(descriptor), descriptor.labels))
}

/// A registered vector of integers that only rise.
pub(crate) fn int_counter(registry: &Registry, descriptor: &Descriptor) -> IntCounterVec {
    registered(registry, IntCounterVec::new(opts(descriptor), descriptor.labels))
}

pub(crate) fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: prometheus::Result<C>,
) -> C {
    let collector = collector.expect("the catalogue's names and labels are valid");
    registry.register(Box::new(collector.clone())).expect("the catalogue's names are distinct");
    collector
}
