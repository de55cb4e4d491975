//! The kubelet's gRPC sockets: generated clients, and connections to a Unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

use crate::source::SourceError;

/// Maximum message size, bytes. The pod-resources list of a large node exceeds tonic's default of 4
/// MiB.
pub(crate) const MESSAGE_LIMIT: usize = 16 << 20;

/// Interval of keep-alive pings. grpc-go, which serves these sockets, disconnects clients that ping
/// more often than every five minutes.
const PING_INTERVAL: Duration = Duration::from_secs(330);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) use generated::{core_v1, podresources_v1, pods_v1alpha1};

/// Messages and clients that `build.rs` generates from `proto/`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    dead_code,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
mod generated {
    /// The fields of `v1.Pod` that are read.
    pub(crate) mod core_v1 {
        tonic::include_proto!("core_v1");
    }

    /// `v1.PodResourcesLister`.
    pub(crate) mod podresources_v1 {
        tonic::include_proto!("v1");
    }

    /// `v1alpha1.Pods`.
    pub(crate) mod pods_v1alpha1 {
        tonic::include_proto!("v1alpha1");
    }
}

/// Connects to a socket. A channel is bound to one socket file: if the kubelet recreates it,
/// connect again.
pub(crate) async fn connect(socket: &Path, timeout: Duration) -> Result<Channel, SourceError> {
    if !socket.exists() {
        return Err(SourceError::Absent { socket: socket.to_owned() });
    }
    let path = socket.to_owned();
    // grpc-go rejects a path as the authority; this host name is never resolved.
    Endpoint::from_static("http://localhost")
        .connect_timeout(timeout)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect_with_connector(tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
        .map_err(|source| SourceError::Grpc {
            call: "connect",
            socket: socket.to_owned(),
            source: source.into(),
        })
}

/// Maps the error of a failed call.
pub(crate) fn failed(
    call: &'static str,
    socket: &Path,
) -> impl FnOnce(tonic::Status) -> SourceError {
    let socket: PathBuf = socket.to_owned();
    move |status| SourceError::Grpc {
        call,
        socket,
        source: format!("{}: {}", status.code(), status.message()).into(),
    }
}
