//! The page of /metrics, rendered into buffers that are kept.

use std::sync::{Arc, Mutex, PoisonError};

use metrics::{AgentMetrics, Exposition, Format};
use pods::Pods;
use sampler::Published;

/// Which page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Everything, under our names.
    Agent,
    /// Containers, under cAdvisor's names.
    Cadvisor,
}

/// Renders the latest snapshot together with what the agent counts about itself.
pub(crate) struct Page {
    published: Published,
    pods: Pods,
    metrics: Arc<AgentMetrics>,
    exposition: Mutex<Exposition>,
}

impl Page {
    pub(crate) fn new(published: Published, pods: Pods, metrics: Arc<AgentMetrics>, max_series: usize) -> Self {
        Self { published, pods, metrics, exposition: Mutex::new(Exposition::new(max_series)) }
    }

    /// The page in this format, compressed or not.
    pub(crate) fn render(&self, subject: Subject, format: Format, gzip: bool) -> Vec<u8> {
        self.copy_pod_sources();
        let snapshot = self.published.latest();
        // A render that panicked leaves buffers that the next one overwrites from the start.
        let mut exposition = self.exposition.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match subject {
            Subject::Agent => exposition.render(&snapshot, &self.metrics, format),
            Subject::Cadvisor => exposition.render_cadvisor(&snapshot, &self.metrics, format),
        };
        if gzip { exposition.compressed().to_vec() } else { page.to_vec() }
    }

    fn copy_pod_sources(&self) {
        for status in self.pods.status() {
            let source = status.source.as_str();
            if let Some(at) = status.last_success {
                self.metrics.pod_source_succeeded(source, at);
            }
            if !status.up {
                self.metrics.pod_source_failed(source);
            }
        }
        self.metrics.set_apiserver_requests(self.pods.apiserver_requests());
    }
}
