//! A kubelet's endpoint for the agent.

use bytes::Bytes;
use kubelet_stub::{Fault, KubeletStub, StubConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A running stub on its own runtime.
pub(crate) struct Kubelet {
    stub: KubeletStub,
    _runtime: tokio::runtime::Runtime,
    _directory: TempDir,
}

impl Kubelet {
    /// Starts the stub with this `PodList` as its response.
    pub(crate) fn start(pods: impl Into<Bytes>) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let directory = TempDir::new().unwrap();
        let config = StubConfig {
            node_name: "test-node".into(),
            directory: directory.path().into(),
            pods: pods.into(),
            read_only_port: false,
        };
        let stub = runtime.block_on(KubeletStub::start(config)).unwrap();
        Self { stub, _runtime: runtime, _directory: directory }
    }

    /// Flags that make the agent use this endpoint.
    pub(crate) fn flags(&self) -> Vec<String> {
        vec![
            "--pod-source=kubelet".to_owned(),
            format!("--kubelet-url={}", self.stub.url()),
            format!("--kubelet-ca-file={}", self.stub.ca_file().display()),
            format!("--kubelet-token-file={}", self.stub.token_file().display()),
            format!("--kubelet-server-name={}", self.stub.node_name()),
        ]
    }

    /// Makes the kubelet answer with an error, or answer again.
    pub(crate) fn fail(&self, fails: bool) {
        self.stub.set_fault(fails.then_some(Fault::Status(503)));
    }

    /// Reads further requests for the pods, and never answers them.
    pub(crate) fn be_silent(&self) {
        self.stub.set_fault(Some(Fault::Hang));
    }

    /// Number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.stub.requests().len()
    }

    /// Replaces the listed pods.
    pub(crate) fn list(&self, pods: &[Value]) {
        self.stub.set_pods(pod_list(pods));
    }
}

/// A `PodList` of these pods.
pub(crate) fn pod_list(pods: &[Value]) -> Vec<u8> {
    json!({"kind": "PodList", "apiVersion": "v1", "items": pods}).to_string().into_bytes()
}

/// A running pod with one container, `main`.
pub(crate) fn running_pod(uid: &str, namespace: &str, name: &str, id: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name, "uid": uid},
        "spec": {"containers": [{"name": "main", "image": "test:1", "resources": {}}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [{
            "name": "main", "containerID": format!("containerd://{id}"), "state": {"running": {}},
            "restartCount": 0, "image": "test:1", "imageID": "", "ready": true,
        }]},
    })
}
