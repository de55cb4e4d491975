//! What was found of each container's runtime, and what it is advised.

use prometheus::{GaugeVec, IntGaugeVec, Registry};

use crate::catalogue::{Descriptor, advice as catalogue};
use crate::live::{Live, opts, registered};

/// Gauges that follow the advice. Nothing of them is exposed before the first value.
#[derive(Debug)]
pub struct AdviceMetrics {
    runtime: Live<IntGaugeVec>,
    parallelism: Live<IntGaugeVec>,
    limit: Live<GaugeVec>,
    burst: Live<GaugeVec>,
    memory: Live<GaugeVec>,
}

/// One container.
#[derive(Debug, Clone, Copy)]
pub struct AdviceRow<'a> {
    /// namespace, pod, container.
    pub name: [&'a str; 3],
    /// Language and version of its runtime; the version is empty where it cannot be told.
    pub runtime: Option<[&'a str; 2]>,
    /// Threads that the runtime will run at once.
    pub parallelism: Option<u32>,
    /// Cores.
    pub limit_cores: Option<f64>,
    /// Seconds of `cpu.max.burst`.
    pub burst_seconds: Option<f64>,
    /// Bytes.
    pub memory_soft_limit_bytes: Option<u64>,
}

impl AdviceMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let count = |descriptor: &Descriptor| {
            Live::new(registered(registry, IntGaugeVec::new(opts(descriptor), descriptor.labels)))
        };
        let gauge = |descriptor: &Descriptor| {
            Live::new(registered(registry, GaugeVec::new(opts(descriptor), descriptor.labels)))
        };
        Self {
            runtime: count(&catalogue::RUNTIME_INFO),
            parallelism: count(&catalogue::RUNTIME_PARALLELISM),
            limit: gauge(&catalogue::RECOMMENDED_CPU_LIMIT_CORES),
            burst: gauge(&catalogue::RECOMMENDED_CPU_BURST_SECONDS),
            memory: gauge(&catalogue::RECOMMENDED_MEMORY_SOFT_LIMIT_BYTES),
        }
    }

    /// All containers, for which `objective` is the share of throttled periods that the advice puts up with.
    pub fn set(&self, rows: &[AdviceRow<'_>], objective: f64) {
        let objective = objective.to_string();
        let runtimes = rows.iter().filter_map(|row| {
            let ([namespace, pod, container], [language, version]) = (row.name, row.runtime?);
            Some(([namespace, pod, container, language, version], 1))
        });
        keep_counts(&self.runtime, runtimes);
        keep_counts(&self.parallelism, rows.iter().filter_map(|row| Some((row.name, i64::from(row.parallelism?)))));
        let advised = |value: fn(&AdviceRow<'_>) -> Option<f64>| {
            let objective = &objective;
            rows.iter().filter_map(move |row| {
                let [namespace, pod, container] = row.name;
                Some(([namespace, pod, container, objective.as_str()], value(row)?))
            })
        };
        keep_values(&self.limit, advised(|row| row.limit_cores));
        keep_values(&self.burst, advised(|row| row.burst_seconds));
        keep_values(&self.memory, advised(|row| row.memory_soft_limit_bytes.map(|bytes| bytes as f64)));
    }
}

fn keep_counts<'a, const N: usize>(live: &Live<IntGaugeVec>, values: impl Iterator<Item = ([&'a str; N], i64)>) {
    let set = |labels: &[&str], value| live.vector.with_label_values(labels).set(value);
    live.keep(values, set, |labels| live.vector.remove_label_values(labels));
}

fn keep_values<'a, const N: usize>(live: &Live<GaugeVec>, values: impl Iterator<Item = ([&'a str; N], f64)>) {
    let set = |labels: &[&str], value| live.vector.with_label_values(labels).set(value);
    live.keep(values, set, |labels| live.vector.remove_label_values(labels));
}
