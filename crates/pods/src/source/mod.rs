//! The places that know the node's pods, and how each of them fails.

pub(crate) mod apiserver;
pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod http;
pub(crate) mod pod_resources;
pub(crate) mod pods_api;
pub(crate) mod tls;
pub(crate) mod token;
pub(crate) mod trust;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::cause::Cause;
use crate::decode::DecodeError;
use crate::model::Pod;

/// Which source; the value of the `source` label of the `cpuwarden_pod_source_*` metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceName {
    /// The kubelet's HTTPS port.
    Kubelet,
    /// The kubelet's read-only port.
    ReadOnly,
    /// The kubelet's Pods API socket.
    PodsApi,
    /// The kubelet's pod-resources socket: exclusive CPUs, no names.
    PodResources,
    /// The API server.
    ApiServer,
}

impl SourceName {
    /// `kubelet`, `readonly`, `pods-api`, `pod-resources`, `apiserver`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::ReadOnly => "readonly",
            Self::PodsApi => "pods-api",
            Self::PodResources => "pod-resources",
            Self::ApiServer => "apiserver",
        }
    }
}

/// Why an attempt to learn the pods failed. All of them are passing: the next attempt starts afresh.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// No connection, or it broke; TLS failures included.
    #[error("GET {url} failed")]
    Transport {
        /// What was asked for.
        url: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kubelet's certificate did not pass the check.
    #[error("GET {url}: the kubelet's certificate is not accepted: {remedy}")]
    Certificate {
        /// What was asked for.
        url: String,
        /// What to do.
        remedy: &'static str,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer in time.
    #[error("GET {url} had no complete answer after {after:?}")]
    Timeout {
        /// What was asked for.
        url: String,
        /// The limit.
        after: Duration,
    },
    /// 401.
    #[error("GET {url}: 401 Unauthorized: {hint}")]
    Unauthorized {
        /// What was asked for.
        url: String,
        /// What to look at.
        hint: &'static str,
    },
    /// 403.
    #[error("GET {url}: 403 Forbidden ({answer}): {remedy}")]
    Forbidden {
        /// What was asked for.
        url: String,
        /// The kubelet's own words.
        answer: String,
        /// The RBAC rule that is missing.
        remedy: &'static str,
    },
    /// Any other status than 200.
    #[error("GET {url}: status {status}: {answer}")]
    Status {
        /// What was asked for.
        url: String,
        /// The status.
        status: u16,
        /// Beginning of the body.
        answer: String,
    },
    /// The body is no pod list.
    #[error("GET {url}")]
    Decode {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// The first pod alone is larger than a list may be.
    #[error("GET {url}: no whole pod in the first {limit} bytes")]
    TooLarge {
        /// What was asked for.
        url: String,
        /// The limit.
        limit: usize,
    },
    /// An empty list that is not believed, because pods were or are seen to run.
    #[error(
        "the list is empty while pods run: kept the last names (a kubelet lists nothing for a while after its start)"
    )]
    EmptyList,
    /// A file that is needed now.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No authority to verify the kubelet's certificate with.
    #[error("nothing to verify the kubelet's certificate with (looked for {looked_for}): {}", Cause::Certificate.remedy())]
    NoTrust {
        /// Files that do not exist.
        looked_for: String,
    },
    /// Trust or identity files changed into something unusable.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The socket does not exist: the kubelet does not offer it, or it is not mounted.
    #[error("no socket {}", socket.display())]
    Absent {
        /// Where it would be.
        socket: PathBuf,
    },
    /// A gRPC call failed.
    #[error("{call} on {} failed", socket.display())]
    Grpc {
        /// The method.
        call: &'static str,
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A watch that should have begun, or gone on, did not.
    #[error("{call} on {} said nothing for {after:?}", socket.display())]
    Silent {
        /// The method.
        call: &'static str,
        /// The socket.
        socket: PathBuf,
        /// The limit.
        after: Duration,
    },
    /// A pod's bytes are no `v1.Pod`.
    #[error("{} sent a pod that is not readable", socket.display())]
    Protobuf {
        /// The socket.
        socket: PathBuf,
        /// What is wrong with it.
        source: prost::DecodeError,
    },
    /// The watch on the API server failed.
    #[error("API server {url}")]
    ApiServer {
        /// Where.
        url: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl SourceError {
    /// The kind of failure.
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Certificate { .. } | Self::NoTrust { .. } => Cause::Certificate,
            Self::Unauthorized { .. } => Cause::Unauthorized,
            Self::Forbidden { .. } => Cause::Forbidden,
            Self::Transport { .. } | Self::Timeout { .. } | Self::Absent { .. } | Self::Grpc { .. } => {
                Cause::Unreachable
            }
            Self::ApiServer { .. } => Cause::ApiServer,
            _ => Cause::Other,
        }
    }
}

/// What a watch has to say.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) source: SourceName,
    /// The whole list as it is now, or why there is none.
    pub(crate) outcome: Result<Vec<Arc<Pod>>, SourceError>,
}

/// A watch's way to the service.
#[derive(Debug)]
pub(crate) struct Updates {
    pub(crate) source: SourceName,
    pub(crate) sender: mpsc::Sender<Update>,
}

impl Updates {
    /// Hands over the present list.
    pub(crate) async fn send(&self, pods: Vec<Arc<Pod>>) {
        self.outcome(Ok(pods)).await;
    }

    /// Says that the watch is broken.
    pub(crate) async fn failed(&self, error: SourceError) {
        self.outcome(Err(error)).await;
    }

    async fn outcome(&self, outcome: Result<Vec<Arc<Pod>>, SourceError>) {
        // Nobody receives once the service ends, and with it this watch.
        let _ = self.sender.send(Update { source: self.source, outcome }).await;
    }
}

/// An error with its causes on one line: `a: b: c`.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // hyper and tonic repeat their source's text in their own.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
