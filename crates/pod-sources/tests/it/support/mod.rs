//! A stub kubelet and the service connected to it, with short timeouts for tests.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::time::Duration;

use kubelet_stub::{KubeletStub, StubConfig};
use pod_sources::{PodConfig, PodService, PodSource, Pods, SourceName, SourceStatus};
use tempfile::TempDir;
use tokio::runtime::Handle;

/// Timeout beyond any expected duration on a busy machine; exceeding it means that the awaited
/// event does not occur.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) const RECORDED: &[u8] =
    include_bytes!("../../../../kubepods/tests/data/kubelet-1.32-pods.json");

pub(crate) struct Node {
    pub(crate) stub: KubeletStub,
    pub(crate) config: PodConfig,
    pub(crate) directory: TempDir,
}

/// A node with the recorded pods, and the configuration to reach it over HTTPS.
pub(crate) async fn node() -> Node {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let stub = KubeletStub::start(StubConfig {
        node_name: "rig-host".into(),
        directory: directory.path().into(),
        pods: RECORDED.into(),
        read_only_port: true,
    })
    .await
    .expect("the stub starts");
    let mut config = PodConfig {
        source: PodSource::Kubelet,
        node_name: Some("rig-host".into()),
        pod_resources_socket: None,
        poll_interval: Duration::from_millis(50),
        request_timeout: Duration::from_secs(5),
        apiserver_spread: Duration::ZERO,
        ..PodConfig::default()
    };
    config.kubelet.url = stub.url();
    config.kubelet.ca_file = Some(stub.ca_file());
    config.kubelet.token_file = Some(stub.token_file());
    Node { stub, config, directory }
}

impl Node {
    pub(crate) fn start(&self) -> Pods {
        PodService::start(&self.config, &Handle::current()).expect("the configuration is valid")
    }

    /// Starts the service and waits for the first list.
    pub(crate) async fn start_known(&self) -> Pods {
        let pods = self.start();
        within(pods.known()).await;
        pods
    }
}

/// A list with one running pod with this UID, name and container id.
pub(crate) fn one_pod(uid: &str, name: &str, id: &str) -> Vec<u8> {
    format!(
        r#"{{"items":[{{"metadata":{{"namespace":"n","name":"{name}","uid":"{uid}"}},
            "spec":{{"containers":[{{"name":"c","image":"i"}}]}},"status":{{"phase":"Running","containerStatuses":[
            {{"name":"c","containerID":"containerd://{id}","state":{{"running":{{}}}}}}]}}}}]}}"#
    )
    .into_bytes()
}

/// Awaits `future` with a timeout.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("it comes to pass")
}

pub(crate) fn status(pods: &Pods, source: SourceName) -> SourceStatus {
    pods.status().into_iter().find(|status| status.source == source).expect("the source is in use")
}

/// Waits until the source is down; returns its error.
pub(crate) async fn down(pods: &Pods, source: SourceName) -> String {
    within(pods.until(|pods| status(pods, source).error.is_some())).await;
    status(pods, source).error.unwrap_or_default()
}

/// Waits until the source is up.
pub(crate) async fn up(pods: &Pods, source: SourceName) {
    within(pods.until(|pods| status(pods, source).up)).await;
}
