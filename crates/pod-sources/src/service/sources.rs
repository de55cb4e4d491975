//! Sources of a configuration, by preference.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::config::{ConfigError, PodConfig, PodSource};
use crate::source::SourceName;
use crate::source::apiserver::ApiServer;
use crate::source::http::KubeletHttp;
use crate::source::pod_resources::PodResourcesSocket;
use crate::source::pods_api::PodsApiSocket;

/// Time for which local sources must have failed before the API server is used: `least`, and a
/// random part of `spread`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delay {
    pub(super) least: Duration,
    pub(super) spread: Duration,
}

impl Delay {
    /// `chance` is a random number in 0..1.
    pub(super) fn length(self, chance: f64) -> Duration {
        self.least + self.spread.mul_f64(chance)
    }
}

/// Sources that a configuration uses.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) pods_api: Option<PodsApiSocket>,
    pub(super) polled: Vec<KubeletHttp>,
    /// The API server, and when it is used.
    pub(super) apiserver: Option<(ApiServer, Delay)>,
    pub(super) pod_resources: Option<PodResourcesSocket>,
}

impl Sources {
    /// Checks the configuration and creates the sources, without a connection.
    pub(super) fn of(
        config: &PodConfig,
        apiserver_requests: &Arc<AtomicU64>,
    ) -> Result<Self, ConfigError> {
        let keep = config.labels_to_keep();
        let pods_api = || PodsApiSocket::new(config, keep.clone());
        let apiserver = |least, spread| {
            let server = ApiServer::new(config, Arc::clone(apiserver_requests));
            server.map(|server| Some((server, Delay { least, spread })))
        };
        let mut sources = Self::default();
        let unused = match config.source {
            PodSource::Kubelet => Some("kubelet"),
            PodSource::PodsApi => Some("pods-api"),
            PodSource::ApiServer => Some("apiserver"),
            PodSource::Auto | PodSource::ReadOnly | PodSource::None => None,
        };
        if let Some(source_name) = unused.filter(|_| config.readonly_url.is_some()) {
            return Err(ConfigError::Unused { source_name, setting: "--kubelet-readonly-url" });
        }
        match config.source {
            PodSource::None => return Ok(sources),
            PodSource::PodsApi => sources.pods_api = Some(pods_api()),
            PodSource::ApiServer => {
                sources.apiserver = apiserver(Duration::ZERO, config.apiserver_spread)?;
            }
            PodSource::Kubelet => sources.polled.push(KubeletHttp::secure(config)?),
            PodSource::ReadOnly => {
                let missing = ConfigError::Missing {
                    source_name: "readonly",
                    setting: "--kubelet-readonly-url",
                };
                let url = config.readonly_url.as_deref().ok_or(missing)?;
                sources.polled.push(KubeletHttp::read_only(config, url)?);
            }
            PodSource::Auto => {
                sources.pods_api = Some(pods_api());
                sources.polled.push(KubeletHttp::secure(config)?);
                if let Some(url) = &config.readonly_url {
                    sources.polled.push(KubeletHttp::read_only(config, url)?);
                }
                if config.apiserver_fallback {
                    let after = config.apiserver_fallback_after;
                    sources.apiserver = apiserver(after, after)?;
                }
            }
        }
        let socket = config.pod_resources_socket.as_deref();
        sources.pod_resources =
            socket.map(|socket| PodResourcesSocket::new(socket, config.request_timeout));
        Ok(sources)
    }

    /// Names of the sources, by preference.
    pub(super) fn names(&self) -> Vec<SourceName> {
        let mut names = Vec::new();
        names.extend(self.pods_api.as_ref().map(|_| SourceName::PodsApi));
        names.extend(self.polled.iter().map(KubeletHttp::name));
        names.extend(self.apiserver.as_ref().map(|_| SourceName::ApiServer));
        names.extend(self.pod_resources.as_ref().map(|_| SourceName::PodResources));
        names
    }

    /// Whether any source can name a pod.
    pub(super) fn can_name(&self) -> bool {
        self.pods_api.is_some() || !self.polled.is_empty() || self.apiserver.is_some()
    }
}

#[cfg(test)]
mod tests {
    use tls_client::apiserver::ApiServerConfig;

    use super::*;

    #[test]
    fn agents_that_start_together_do_not_list_together() {
        let directory = tempfile::tempdir().unwrap();
        let url = Some("https://127.0.0.1:1".to_owned());
        let config = |source| PodConfig {
            source,
            node_name: Some("n".to_owned()),
            apiserver: ApiServerConfig { url: url.clone(), ..ApiServerConfig::default() },
            apiserver_fallback: true,
            pod_resources_socket: None,
            pods_api_socket: directory.path().join("none"),
            ..PodConfig::default()
        };
        let delays = |source| {
            let sources = Sources::of(&config(source), &Arc::default()).unwrap();
            let (_, delay) = sources.apiserver.unwrap();
            [0.0, 0.5, 1.0].map(|chance| delay.length(chance).as_secs())
        };
        assert_eq!(delays(PodSource::ApiServer), [0, 5, 10]);
        assert_eq!(delays(PodSource::Auto), [60, 90, 120], "the fallback");
    }
}
