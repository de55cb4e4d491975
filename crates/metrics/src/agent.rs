//! Metrics that the agent counts about itself, kept by the prometheus crate: lock-free handles for
//! the code that runs the ticks and reads pod names. Values of a tick are in the snapshot instead.

use std::time::{Duration, SystemTime};

use prometheus::proto::MetricFamily;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGaugeVec, Registry,
};

use crate::catalogue::agent;
use crate::gauge_set::{GaugeSet, gauge, int_counter, int_gauge, opts, registered};
use crate::{
    AdviceMetrics, BestEffortMetrics, BurstMetrics, InjectionMetrics, PinningMetrics, SlowedMetrics,
};

/// Bucket bounds, seconds; a tick over 10,000 cgroups stays below 0.2.
const DURATION_BUCKETS: [f64; 10] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

/// Bucket bounds, seconds; a healthy tick starts within the scheduler's wake-up latency, a late one
/// within an interval.
const LATENESS_BUCKETS: [f64; 9] = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

/// The running build.
#[derive(Debug, Clone, Copy)]
pub struct Build<'a> {
    /// Version of the release.
    pub version: &'a str,
    /// Commit of the build.
    pub revision: &'a str,
}

/// The agent's own metrics. Shared by reference; every method takes `&self` and may be called from
/// any thread.
#[derive(Debug)]
pub struct AgentMetrics {
    registry: Registry,
    sample_duration: Histogram,
    sample_lateness: Histogram,
    pub(crate) series_dropped: IntCounter,
    pod_source_up: IntGaugeVec,
    pod_source_last_success: GaugeVec,
    apiserver_requests: IntCounter,
    subsystem_up: GaugeSet<IntGaugeVec>,
    subsystem_restarts: IntCounterVec,
    page_renders: IntCounterVec,
    node_condition_patches: IntCounterVec,
    http_connections_cut: IntCounterVec,
    pod_lists_cut: IntCounter,
    /// Absent until its first value.
    recording: IntGaugeVec,
    pinning: PinningMetrics,
    injection: InjectionMetrics,
    best_effort: BestEffortMetrics,
    burst: BurstMetrics,
    advice: AdviceMetrics,
    slowed: SlowedMetrics,
}

impl AgentMetrics {
    /// Creates all metrics, at zero or absent.
    #[must_use]
    pub fn new(build: Build<'_>) -> Self {
        let registry = Registry::new();
        int_gauge(&registry, &agent::BUILD_INFO)
            .with_label_values(&[build.version, build.revision])
            .set(1);
        let histogram = |descriptor, buckets: &[f64]| {
            let opts = HistogramOpts::from(opts(descriptor)).buckets(buckets.to_vec());
            registered(&registry, Histogram::with_opts(opts))
        };
        let last_success = &agent::POD_SOURCE_LAST_SUCCESS_TIMESTAMP_SECONDS;
        Self {
            sample_duration: histogram(&agent::SAMPLE_DURATION_SECONDS, &DURATION_BUCKETS),
            sample_lateness: histogram(&agent::SAMPLE_LATENESS_SECONDS, &LATENESS_BUCKETS),
            series_dropped: registered(
                &registry,
                IntCounter::with_opts(opts(&agent::SERIES_DROPPED_TOTAL)),
            ),
            pod_source_up: int_gauge(&registry, &agent::POD_SOURCE_UP),
            pod_source_last_success: gauge(&registry, last_success),
            apiserver_requests: registered(
                &registry,
                IntCounter::with_opts(opts(&agent::APISERVER_REQUESTS_TOTAL)),
            ),
            subsystem_up: GaugeSet::new(int_gauge(&registry, &agent::SUBSYSTEM_UP)),
            subsystem_restarts: int_counter(&registry, &agent::SUBSYSTEM_RESTARTS_TOTAL),
            page_renders: int_counter(&registry, &agent::PAGE_RENDERS_TOTAL),
            http_connections_cut: int_counter(&registry, &agent::HTTP_CONNECTIONS_CUT_TOTAL),
            pod_lists_cut: registered(
                &registry,
                IntCounter::with_opts(opts(&agent::POD_LISTS_CUT_TOTAL)),
            ),
            node_condition_patches: int_counter(&registry, &agent::NODE_CONDITION_PATCHES_TOTAL),
            recording: int_gauge(&registry, &agent::RECORDING),
            pinning: PinningMetrics::new(&registry),
            injection: InjectionMetrics::new(&registry),
            best_effort: BestEffortMetrics::new(&registry),
            burst: BurstMetrics::new(&registry),
            advice: AdviceMetrics::default(),
            slowed: SlowedMetrics::default(),
            registry,
        }
    }

    /// Records a tick that began `lateness` after its deadline and took `duration` of wall time.
    pub fn observe_tick(&self, lateness: Duration, duration: Duration) {
        self.sample_lateness.observe(lateness.as_secs_f64());
        self.sample_duration.observe(duration.as_secs_f64());
    }

    /// Records a valid answer of the named pod source at `at`.
    pub fn pod_source_succeeded(&self, source: &str, at: SystemTime) {
        // A clock before 1970 has no timestamp; the source is up nevertheless.
        if let Ok(since_epoch) = at.duration_since(SystemTime::UNIX_EPOCH) {
            self.pod_source_last_success
                .with_label_values(&[source])
                .set(since_epoch.as_secs_f64());
        }
        self.pod_source_up.with_label_values(&[source]).set(1);
    }

    /// Records that the named pod source gave no valid answer.
    pub fn pod_source_failed(&self, source: &str) {
        self.pod_source_up.with_label_values(&[source]).set(0);
    }

    /// Sets whether the last second was recorded.
    pub fn set_recording(&self, is_written: bool) {
        self.recording.with_label_values::<&str>(&[]).set(i64::from(is_written));
    }

    /// Sets the number of requests sent to the API server since the start.
    pub fn set_apiserver_requests(&self, total: u64) {
        self.apiserver_requests.inc_by(total.saturating_sub(self.apiserver_requests.get()));
    }

    /// Sets all enabled threads and tasks, and whether each completes its rounds.
    pub fn set_subsystems(&self, states: impl Iterator<Item = (&'static str, bool)>) {
        let up = &self.subsystem_up;
        let set = |labels: &[&str], is_up: bool| {
            up.vector.with_label_values(labels).set(i64::from(is_up));
        };
        up.keep(states.map(|(name, is_up)| ([name], is_up)), set, |labels| {
            up.vector.remove_label_values(labels)
        });
    }

    /// Counts a restart of a thread after a panic.
    pub fn subsystem_restarted(&self, name: &str) {
        self.subsystem_restarts.with_label_values(&[name]).inc();
    }

    /// Counts a rendered page.
    pub fn page_rendered(&self, page: &str) {
        self.page_renders.with_label_values(&[page]).inc();
    }

    /// Counts a request to the API server about the node's condition: `ok` or `error`.
    pub fn add_node_condition_patch(&self, result: &str) {
        self.node_condition_patches.with_label_values(&[result]).inc();
    }

    /// Counts a closed or rejected connection to the endpoint.
    pub fn http_connection_cut(&self, reason: &str) {
        self.http_connections_cut.with_label_values(&[reason]).inc();
    }

    /// Sets the number of pod lists that exceeded the limit since the start.
    pub fn set_pod_lists_cut(&self, total: u64) {
        self.pod_lists_cut.inc_by(total.saturating_sub(self.pod_lists_cut.get()));
    }

    /// Metrics of the injected environment.
    pub fn injection(&self) -> &InjectionMetrics {
        &self.injection
    }

    /// Metrics of pinning.
    pub fn pinning(&self) -> &PinningMetrics {
        &self.pinning
    }

    /// Metrics of best-effort pods that yield.
    pub fn best_effort(&self) -> &BestEffortMetrics {
        &self.best_effort
    }

    /// Metrics of CPU limits that burst.
    pub fn burst(&self) -> &BurstMetrics {
        &self.burst
    }

    /// Rows of runtimes and advice.
    pub fn advice(&self) -> &AdviceMetrics {
        &self.advice
    }

    /// Rows of slowed pods.
    pub fn slowed(&self) -> &SlowedMetrics {
        &self.slowed
    }

    /// All metrics that have a value, sorted by name.
    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}
