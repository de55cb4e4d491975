//! The state of the agent, as its endpoint reports it.

use std::sync::Arc;
use std::time::SystemTime;

use api::SourceHealth;
use endpoint::{AgentStatus, Readiness};
use metrics::AgentMetrics;
use pod_sources::{Pods, SourceName, SourceStatus};
use watchdog::{Part, Watchdog};

/// Reads the state of the pod sources and of all parts.
pub(crate) struct LiveStatus {
    pub(crate) pods: Pods,
    pub(crate) metrics: Arc<AgentMetrics>,
    pub(crate) watchdog: Watchdog,
}

impl AgentStatus for LiveStatus {
    fn readiness(&self) -> Readiness {
        match self.pods.names_missing() {
            Some(cause) => Readiness::Unnamed { remedy: cause.remedy() },
            None if self.pods.is_known() => Readiness::Ready,
            None => Readiness::Waiting,
        }
    }

    fn faults(&self) -> Vec<String> {
        self.watchdog.silent().iter().map(ToString::to_string).collect()
    }

    fn pod_sources(&self) -> Vec<SourceHealth> {
        self.pods.status().iter().map(health).collect()
    }

    fn update_metrics(&self) {
        let silent = self.watchdog.silent();
        let works = |part| !silent.iter().any(|silent| silent.part == part);
        for status in self.pods.status() {
            let source = status.source.as_str();
            let asked_by = if status.source == SourceName::PodResources {
                Part::PodResources
            } else {
                Part::Pods
            };
            if let Some(at) = status.last_success {
                self.metrics.pod_source_succeeded(source, at);
            }
            if !status.up || !works(asked_by) {
                self.metrics.pod_source_failed(source);
            }
        }
        self.metrics.set_apiserver_requests(self.pods.apiserver_requests());
        self.metrics.set_pod_lists_cut(self.pods.cut_lists());
    }
}

fn health(status: &SourceStatus) -> SourceHealth {
    SourceHealth {
        source: status.source.as_str().to_owned(),
        up: status.up,
        last_success_ms: status.last_success.map(milliseconds),
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metrics::Build;
    use pod_sources::{PodConfig, PodService, PodSource};
    use tokio::runtime::{Builder, Handle};

    use super::*;

    /// The status with a kubelet that does not answer.
    fn status(names_after: Duration, runtime: &Handle) -> LiveStatus {
        let mut config =
            PodConfig { source: PodSource::Kubelet, names_after, ..PodConfig::default() };
        config.kubelet.url = "https://127.0.0.1:1".to_owned();
        config.pod_resources_socket = None;
        LiveStatus {
            pods: PodService::start(&config, runtime).unwrap(),
            metrics: Arc::new(AgentMetrics::new(Build { version: "0", revision: "0" })),
            watchdog: Watchdog::new(),
        }
    }

    #[test]
    fn the_agent_waits_for_names_and_is_ready_without_them_later() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let soon = status(Duration::ZERO, runtime.handle()).readiness();
        let Readiness::Unnamed { remedy } = soon else { panic!("{soon:?}") };
        assert!(remedy.contains("config.podSource=apiserver"), "{remedy}");
        let later = status(Duration::MAX, runtime.handle()).readiness();
        assert!(matches!(later, Readiness::Waiting), "{later:?}");
    }
}
