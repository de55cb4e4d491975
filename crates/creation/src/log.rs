//! Reports of the plugin, for the log, the metrics and the status of the pod sources.

use std::sync::Arc;

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
}

impl Log {
    pub(crate) fn new(metrics: Arc<AgentMetrics>, source: RuntimeSource) -> Self {
        Self { metrics, source, runtime: Default::default(), last: String::new() }
    }

    pub(crate) fn take(&mut self, report: &PluginReport<'_>) {
        match report {
            PluginReport::Synchronized { runtime } => {
                self.runtime = [runtime.name.clone(), runtime.version.clone()];
                self.last.clear();
                self.metrics.injection().set_connected(self.labels(), true);
                tracing::info!(runtime = runtime.name, version = runtime.version, "NRI: connected");
            }
            PluginReport::AnsweredEmpty { method, .. } => {
                self.metrics.injection().add_empty_answer(method);
                tracing::warn!("NRI: {report}");
            }
            PluginReport::Disconnected { error, .. } => {
                let error = error.to_string();
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
