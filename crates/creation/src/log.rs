//! Reports of the plugin, for the log, the metrics and the status of the pod sources.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::AgentMetrics;
use nri::PluginReport;
use pod_sources::RuntimeSource;

/// Reports of the plugin.
pub(crate) struct Log {
    metrics: Arc<AgentMetrics>,
    source: RuntimeSource,
    /// Name and version of the last runtime.
    runtime: [String; 2],
    /// Last logged error: attempts to connect repeat every few seconds.
    last: String,
    outage: Outage,
}

/// The time without a connection.
#[derive(Debug)]
struct Outage {
    /// Since when it is not counted yet; `None` while connected.
    since: Option<Instant>,
    was_connected: bool,
}

impl Outage {
    fn new(now: Instant) -> Self {
        Self { since: Some(now), was_connected: false }
    }

    /// The connection is lost, or an attempt failed. Returns the time to count.
    fn disconnected(&mut self, now: Instant) -> Duration {
        self.since.replace(now).map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns the time to count, and whether it was connected before.
    fn connected(&mut self, now: Instant) -> (Duration, bool) {
        let time = self.since.take().map(|since| now.saturating_duration_since(since));
        (time.unwrap_or_default(), std::mem::replace(&mut self.was_connected, true))
    }
}

impl Log {
    pub(crate) fn new(metrics: Arc<AgentMetrics>, source: RuntimeSource) -> Self {
        metrics.injection().add_reconnections(0);
        let outage = Outage::new(Instant::now());
        Self { metrics, source, runtime: Default::default(), last: String::new(), outage }
    }

    pub(crate) fn take(&mut self, report: &PluginReport<'_>) {
        match report {
            PluginReport::Synchronized { runtime } => {
                self.runtime = [runtime.name.clone(), runtime.version.clone()];
                self.last.clear();
                let (time, is_again) = self.outage.connected(Instant::now());
                let injection = self.metrics.injection();
                injection.add_disconnected(time);
                injection.add_reconnections(u64::from(is_again));
                injection.set_connected(self.labels(), true);
                tracing::info!(runtime = runtime.name, version = runtime.version, "NRI: connected");
            }
            PluginReport::AnsweredEmpty { method, .. } => {
                self.metrics.injection().add_empty_answer(method);
                tracing::warn!("NRI: {report}");
            }
            PluginReport::Disconnected { error, .. } => {
                let error = error.to_string();
                self.metrics.injection().add_disconnected(self.outage.disconnected(Instant::now()));
                self.disconnected(&error);
                if error != self.last {
                    tracing::warn!(error, "NRI: not connected; new containers start without it");
                    self.last = error;
                }
            }
            report => tracing::info!("NRI: {report}"),
        }
    }

    pub(crate) fn disconnected(&self, error: &str) {
        self.metrics.injection().set_connected(self.labels(), false);
        self.source.disconnected(format!("NRI: {error}"));
    }

    fn labels(&self) -> [&str; 2] {
        self.runtime.each_ref().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_without_a_connection_is_counted_once() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let seconds = |time: Duration| time.as_secs();
        let mut outage = Outage::new(start);
        assert_eq!(seconds(outage.disconnected(at(2))), 2, "a failed attempt");
        assert_eq!(outage.connected(at(5)), (Duration::from_secs(3), false));
        assert_eq!(seconds(outage.disconnected(at(100))), 0);
        assert_eq!(seconds(outage.disconnected(at(101))), 1);
        assert_eq!(outage.connected(at(104)), (Duration::from_secs(3), true));
    }
}
