//! The kubelet's Pods API (KEP-4188): `v1alpha1.Pods/WatchPods` on a separate socket, beta and on
//! by default since Kubernetes 1.37. It pushes every change, so nothing is polled while the watch
//! lives. Access is controlled by the socket's permissions (root), not by RBAC.
//!
//! The stream begins with one ADDED event per pod and one INITIAL_SYNC_COMPLETE. The kubelet
//! ends it if a client falls 100 events behind; the watch is then restarted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kubepods::{LabelKeys, from_wire};
use prost::Message;
use tokio::time::{Instant, timeout_at};
use tonic::Streaming;

use super::watched::WatchedPods;
use super::{SourceError, Updates};
use crate::bounded::{is_too_large, uid_of};
use crate::config::PodConfig;
use crate::grpc::pods_v1alpha1::pods_client::PodsClient;
use crate::grpc::pods_v1alpha1::{EventType, WatchPodsEvent, WatchPodsRequest};
use crate::grpc::{MESSAGE_LIMIT, connect, core_v1, failed};
use crate::proto::to_wire;

/// Time for which changes are collected and then published together.
const FLOCK: Duration = Duration::from_millis(50);

const CALL: &str = "WatchPods";

/// A client of the socket.
#[derive(Debug)]
pub(crate) struct PodsApiSocket {
    socket: PathBuf,
    /// Alternative path of the socket.
    other: Option<PathBuf>,
    keep: LabelKeys,
    timeout: Duration,
}

impl PodsApiSocket {
    /// Creates the client. `timeout` bounds the connection and the initial list, but not the watch.
    pub(crate) fn new(config: &PodConfig, keep: LabelKeys) -> Self {
        Self {
            socket: config.pods_api_socket.clone(),
            other: config.pods_api_other_socket.clone(),
            keep,
            timeout: config.request_timeout,
        }
    }

    /// A client of the existing one of the two sockets.
    fn present(&self) -> Self {
        let other = self.other.as_ref().filter(|other| !self.socket.exists() && other.exists());
        let socket = other.unwrap_or(&self.socket).clone();
        Self { socket, other: None, keep: self.keep.clone(), timeout: self.timeout }
    }

    /// Watches until an error occurs; sends the whole list after every batch of changes.
    pub(crate) async fn watch(&self, updates: &Updates) -> SourceError {
        match self.present().try_watch(updates).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn try_watch(&self, updates: &Updates) -> Result<std::convert::Infallible, SourceError> {
        let channel = connect(&self.socket, self.timeout).await?;
        let mut client = PodsClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
        let silent = |_| SourceError::Silent {
            call: CALL,
            socket: self.socket.clone(),
            after: self.timeout,
        };
        let mut pods = WatchedPods::default();
        let deadline = Instant::now() + self.timeout;
        let begun =
            timeout_at(deadline, client.watch_pods(WatchPodsRequest {})).await.map_err(silent)?;
        let mut events = begun.map_err(failed(CALL, &self.socket))?.into_inner();
        while !timeout_at(deadline, self.apply_next(&mut events, &mut pods))
            .await
            .map_err(silent)??
        {}
        loop {
            updates.send(pods.listed()).await;
            self.apply_next(&mut events, &mut pods).await?;
            let flock_ends = Instant::now() + FLOCK;
            while let Ok(applied) =
                timeout_at(flock_ends, self.apply_next(&mut events, &mut pods)).await
            {
                applied?;
            }
        }
    }

    /// Handles one event; returns true at the end of the initial list.
    async fn apply_next(
        &self,
        events: &mut Streaming<WatchPodsEvent>,
        pods: &mut WatchedPods,
    ) -> Result<bool, SourceError> {
        let ended = || tonic::Status::unavailable("the kubelet ended the watch");
        let event = events.message().await.and_then(|event| event.ok_or_else(ended));
        let event = event.map_err(failed(CALL, &self.socket))?;
        let kind = event.r#type();
        if !matches!(kind, EventType::Added | EventType::Modified | EventType::Deleted) {
            return Ok(kind == EventType::InitialSyncComplete);
        }
        let unreadable = |source| SourceError::Protobuf { socket: self.socket.clone(), source };
        if is_too_large(&event.pod).map_err(unreadable)? {
            let uid = uid_of(&event.pod).map_err(unreadable)?;
            if kind == EventType::Deleted {
                pods.remove(&uid);
            } else {
                pods.insert(&uid, None);
            }
            return Ok(false);
        }
        let wire = core_v1::Pod::decode(event.pod).map_err(unreadable)?;
        let pod = from_wire(to_wire(wire), &self.keep);
        if kind == EventType::Deleted {
            pods.remove(&pod.uid);
        } else {
            let uid = pod.uid.clone();
            pods.insert(&uid, Some(Arc::new(pod)));
        }
        Ok(false)
    }
}
