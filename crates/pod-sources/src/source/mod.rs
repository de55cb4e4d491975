//! Sources of the node's pods, and their errors.

pub(crate) mod apiserver;
pub(crate) mod body;
pub(crate) mod host_certificate;
pub(crate) mod http;
pub(crate) mod pod_resources;
pub(crate) mod pods_api;
pub(crate) mod tls;
mod watched;

use std::path::PathBuf;
use std::time::Duration;

use kubepods::DecodeError;
use tokio::sync::mpsc;

use crate::cause::Cause;
use body::Listed;

/// Name of a source; the value of the label `source` of the `cpuwarden_pod_source_*` metrics.
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
    /// The container runtime's NRI socket: names of new pods and containers, no specs.
    Nri,
}

impl SourceName {
    /// Returns `kubelet`, `readonly`, `pods-api`, `pod-resources`, `apiserver` or `nri`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::ReadOnly => "readonly",
            Self::PodsApi => "pods-api",
            Self::PodResources => "pod-resources",
            Self::ApiServer => "apiserver",
            Self::Nri => "nri",
        }
    }
}

/// Error of an attempt to read the pods. All are transient: each attempt starts from the beginning.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// No connection, or it broke; includes TLS errors.
    #[error("GET {url} failed")]
    Transport {
        /// Requested URL.
        url: String,
        /// Underlying error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kubelet's certificate was rejected.
    #[error("GET {url}: the agent does not trust the kubelet's certificate: {remedy}")]
    Certificate {
        /// Requested URL.
        url: String,
        /// Remedy.
        remedy: &'static str,
        /// Underlying error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No complete answer within the timeout.
    #[error("GET {url}: no complete answer within {after:?}")]
    Timeout {
        /// Requested URL.
        url: String,
        /// Timeout.
        after: Duration,
    },
    /// HTTP status 401.
    #[error("GET {url}: 401 Unauthorized: {hint}")]
    Unauthorized {
        /// Requested URL.
        url: String,
        /// Hint for the operator.
        hint: &'static str,
    },
    /// HTTP status 403.
    #[error("GET {url}: 403 Forbidden ({answer}): {remedy}")]
    Forbidden {
        /// Requested URL.
        url: String,
        /// The kubelet's message.
        answer: String,
        /// The missing RBAC rule.
        remedy: &'static str,
    },
    /// Any other status but 200.
    #[error("GET {url}: status {status}: {answer}")]
    Status {
        /// Requested URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// Beginning of the body.
        answer: String,
    },
    /// The body is not a pod list.
    #[error("GET {url}")]
    Decode {
        /// Requested URL.
        url: String,
        /// Underlying error.
        source: DecodeError,
    },
    /// The first pod alone exceeds the size limit of a list.
    #[error("GET {url}: no complete pod in the first {limit} bytes")]
    TooLarge {
        /// Requested URL.
        url: String,
        /// Size limit, bytes.
        limit: usize,
    },
    /// An empty list that is rejected, because pods are or were running.
    #[error(
        "the pod list is empty although pods run: kept the last names (a kubelet returns an empty list shortly after \
         its start)"
    )]
    EmptyList,
    /// A required file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: std::io::Error,
    },
    /// There is no certificate or CA to verify the kubelet's certificate with.
    #[error("no CA or certificate to verify the kubelet with (checked {looked_for}): {}", Cause::Certificate.remedy())]
    NoTrust {
        /// Files that do not exist.
        looked_for: String,
    },
    /// Certificate, key or token files changed and are unusable now.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The socket does not exist: the kubelet does not offer it, or it is not mounted.
    #[error("no socket {}", socket.display())]
    Absent {
        /// Expected path.
        socket: PathBuf,
    },
    /// A gRPC call failed.
    #[error("{call} on {} failed", socket.display())]
    Grpc {
        /// Name of the method.
        call: &'static str,
        /// Path of the socket.
        socket: PathBuf,
        /// Underlying error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A watch neither started nor continued within the timeout.
    #[error("{call} on {}: no answer within {after:?}", socket.display())]
    Silent {
        /// Name of the method.
        call: &'static str,
        /// Path of the socket.
        socket: PathBuf,
        /// Timeout.
        after: Duration,
    },
    /// A pod's bytes are not a `v1.Pod`.
    #[error("{} sent an invalid pod", socket.display())]
    Protobuf {
        /// Path of the socket.
        socket: PathBuf,
        /// Underlying error.
        source: prost::DecodeError,
    },
    /// The watch on the API server failed.
    #[error("API server {url}")]
    ApiServer {
        /// URL of the API server.
        url: String,
        /// Underlying error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl SourceError {
    /// The cause to show to the operator.
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Certificate { .. } | Self::NoTrust { .. } => Cause::Certificate,
            Self::Unauthorized { .. } => Cause::Unauthorized,
            Self::Forbidden { .. } => Cause::Forbidden,
            Self::Transport { .. }
            | Self::Timeout { .. }
            | Self::Absent { .. }
            | Self::Grpc { .. } => Cause::Unreachable,
            Self::ApiServer { .. } => Cause::ApiServer,
            _ => Cause::Other,
        }
    }
}

/// Message of a watch.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) source: SourceName,
    /// The current list, or the reason why there is none.
    pub(crate) outcome: Result<Listed, SourceError>,
}

/// Sender of a watch's messages to the service.
#[derive(Debug)]
pub(crate) struct Updates {
    pub(crate) source: SourceName,
    pub(crate) sender: mpsc::Sender<Update>,
}

impl Updates {
    /// Sends the current list.
    pub(crate) async fn send(&self, listed: Listed) {
        self.outcome(Ok(listed)).await;
    }

    /// Sends the error of a broken watch.
    pub(crate) async fn failed(&self, error: SourceError) {
        self.outcome(Err(error)).await;
    }

    async fn outcome(&self, outcome: Result<Listed, SourceError>) {
        // The receiver is gone once the service ends, which also ends this watch.
        let _ = self.sender.send(Update { source: self.source, outcome }).await;
    }
}
