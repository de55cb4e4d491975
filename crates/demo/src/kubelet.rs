//! The embedded kubelet: real HTTPS with its own certificate and token, serving the stage's pods.

use std::path::PathBuf;

use anyhow::Context;
use kubelet_stub::{KubeletStub, StubConfig};
use tempfile::TempDir;

/// A running kubelet endpoint; stopped on drop, and its files deleted.
pub struct Kubelet {
    stub: KubeletStub,
    files: TempDir,
}

impl Kubelet {
    /// Serves this pod list on a free loopback port.
    ///
    /// # Errors
    /// No temporary directory, port or certificate is available.
    pub async fn start(node_name: &str, pods: Vec<u8>) -> anyhow::Result<Self> {
        let files = tempfile::Builder::new().prefix("cpuwarden-demo-").tempdir();
        let files = files.context("no directory for the kubelet's certificate")?;
        let config = StubConfig {
            node_name: node_name.to_owned(),
            directory: files.path().to_owned(),
            pods: pods.into(),
            read_only_port: false,
        };
        let stub = KubeletStub::start(config).await.context("cannot start the embedded kubelet")?;
        Ok(Self { stub, files })
    }

    /// Directory of its files.
    pub fn directory(&self) -> PathBuf {
        self.files.path().to_owned()
    }

    /// URL of the endpoint.
    pub fn url(&self) -> String {
        self.stub.url()
    }

    /// PEM file of the CA that signed its certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.stub.ca_file()
    }

    /// File with a token that it accepts.
    pub fn token_file(&self) -> PathBuf {
        self.stub.token_file()
    }
}
