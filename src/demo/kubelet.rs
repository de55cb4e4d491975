//! The embedded kubelet: real HTTPS with its own certificate and token, serving the stage's pods.

use anyhow::Context;
use kubelet_stub::{KubeletStub, StubConfig};
use tempfile::TempDir;

use crate::config::{Options, PodSourceName};

/// A running kubelet endpoint; stopped on drop, and its files deleted.
pub(super) struct Kubelet {
    stub: KubeletStub,
    _files: TempDir,
}

impl Kubelet {
    /// Serves this pod list on a free loopback port.
    ///
    /// # Errors
    /// No temporary directory, port or certificate is available.
    pub(super) async fn start(node_name: &str, pods: Vec<u8>) -> anyhow::Result<Self> {
        let files = tempfile::Builder::new().prefix("cpuwarden-demo-").tempdir();
        let files = files.context("no directory for the kubelet's certificate")?;
        let config = StubConfig {
            node_name: node_name.to_owned(),
            directory: files.path().to_owned(),
            pods: pods.into(),
            read_only_port: false,
        };
        let stub = KubeletStub::start(config).await.context("cannot start the embedded kubelet")?;
        Ok(Self { stub, _files: files })
    }

    /// Options that make an agent use this endpoint.
    pub(super) fn options(&self, node: Options) -> Options {
        Options {
            pod_source: Some(PodSourceName::Kubelet),
            kubelet_url: Some(self.stub.url()),
            kubelet_ca_file: Some(self.stub.ca_file()),
            kubelet_token_file: Some(self.stub.token_file()),
            node_name: Some(self.stub.node_name().to_owned()),
            ..node
        }
    }
}
