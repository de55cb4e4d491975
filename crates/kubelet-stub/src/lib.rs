//! A kubelet's pod endpoints, in this process, over real TLS.
//!
//! Stands in for a kubelet in `cpuwarden demo` and in tests, so it copies everything by which a
//! client recognizes a kubelet: a certificate `CN=<node>@<epoch>` from its own CA with the node's
//! name as its only name, bearer tokens, 401 and 403 with the kubelet's own text, `/pods`,
//! `/configz` and `/healthz`. Tests can also inject faults. It never parses a pod list.

mod answer;
#[cfg(feature = "full")]
pub mod apiserver;
#[cfg(feature = "full")]
mod events;
mod fault;
#[cfg(feature = "full")]
pub mod grpc;
mod log;
mod pki;
#[cfg(feature = "full")]
mod reviews;
mod serve;
mod state;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use fault::Fault;
pub use log::Request;
pub use pki::CertificateKind;
pub use state::Grant;

use answer::{ReadOnly, Secure};
use pki::Authority;
use serve::Port;
use state::KubeletState;

/// Configuration of a stub.
#[derive(Debug, Clone)]
pub struct StubConfig {
    /// Name of the node, and of the certificate.
    pub node_name: String,
    /// Existing directory to which `ca.crt` and `token` are written.
    pub directory: PathBuf,
    /// Initial response to `/pods`: a `PodList` as JSON.
    pub pods: Bytes,
    /// Whether to also open a read-only port, without TLS and authorization.
    pub read_only_port: bool,
}

/// Reason why a stub did not start.
#[derive(Debug, thiserror::Error)]
pub enum StubError {
    /// A port could not be opened.
    #[error("cannot listen on {address}")]
    Listen {
        /// Address of the port.
        address: SocketAddr,
        /// Underlying error.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: std::io::Error,
    },
    /// A certificate could not be created.
    #[error("cannot make a certificate for {name:?}")]
    Certificate {
        /// Name on the certificate.
        name: String,
        /// Underlying error.
        source: rcgen::Error,
    },
    /// rustls rejected the certificate.
    #[error("cannot use the certificate")]
    Tls(#[from] rustls::Error),
    /// rustls rejected the CA for client certificates.
    #[error("cannot verify client certificates")]
    Clients(#[from] rustls::server::VerifierBuilderError),
}

/// A running stub, stopped on drop.
#[derive(Debug)]
pub struct KubeletStub {
    state: Arc<KubeletState>,
    secure: Port<Secure>,
    read_only: Option<Port<ReadOnly>>,
    directory: PathBuf,
    _stop: DropGuard,
}

impl KubeletStub {
    /// Starts a stub on free loopback ports. Must be called inside a tokio runtime, which then
    /// serves it.
    ///
    /// # Errors
    /// If a port cannot be opened, a file cannot be written, or the node's name is not a DNS name.
    pub async fn start(config: StubConfig) -> Result<Self, StubError> {
        let authority = Authority::new(&config.node_name)?;
        let certificate = authority.issue(CertificateKind::Valid)?;
        let state =
            Arc::new(KubeletState::new(config.node_name, authority, certificate, config.pods));
        let stop = CancellationToken::new();
        let secure = Port::open(Secure(Arc::clone(&state)), stop.clone()).await?;
        let read_only = if config.read_only_port {
            Some(Port::open(ReadOnly(Arc::clone(&state)), stop.clone()).await?)
        } else {
            None
        };
        let stub = Self {
            state,
            secure,
            read_only,
            directory: config.directory,
            _stop: stop.drop_guard(),
        };
        stub.write_ca()?;
        stub.write_token()?;
        Ok(stub)
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("https://{}", self.secure.address())
    }

    /// `http://127.0.0.1:<port>`, if the read-only port is open.
    pub fn read_only_url(&self) -> Option<String> {
        self.read_only.as_ref().map(|port| format!("http://{}", port.address()))
    }

    /// Path of the PEM file of the CA that signs the stub's certificates.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// Path of the file that [`KubeletStub::write_host_certificate`] writes.
    pub fn host_certificate(&self) -> PathBuf {
        self.directory.join("kubelet.crt")
    }

    /// File with the token that the stub accepts.
    pub fn token_file(&self) -> PathBuf {
        self.directory.join("token")
    }

    /// Creates a client certificate that is accepted instead of the token. Returns the paths of the
    /// certificate and its key.
    ///
    /// # Errors
    /// If it cannot be created or the directory cannot be written.
    pub fn client_certificate(&self) -> Result<(PathBuf, PathBuf), StubError> {
        let (certificate, key) = self.state.client_certificate()?;
        let files = (self.directory.join("client.crt"), self.directory.join("client.key"));
        replace(&files.0, certificate.as_bytes())?;
        replace(&files.1, key.as_bytes())?;
        Ok(files)
    }

    /// Name of the node.
    pub fn node_name(&self) -> &str {
        &self.state.node_name
    }

    /// Replaces the response to `/pods`.
    pub fn set_pods(&self, pods: impl Into<Bytes>) {
        self.state.pods.store(Arc::new(pods.into()));
    }

    /// Injects a fault into all further responses to `/pods`; `None` ends it.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.state.fault.store(Arc::new(fault));
    }

    /// Sets the permissions of the token's holder. Initially [`Grant::PODS`] and the rest of a 1.33
    /// kubelet's monitoring role.
    pub fn set_grants(&self, grants: &[Grant]) {
        self.state.grants.store(Arc::new(grants.to_vec()));
    }

    /// Sets whether the kubelet supports fine-grained subresources (since 1.33, the default) or
    /// checks only `nodes/proxy`.
    pub fn set_fine_grained(&self, fine_grained: bool) {
        self.state.fine_grained.store(fine_grained, std::sync::atomic::Ordering::Relaxed);
    }

    /// Accepts only a new token from now on, without writing it: the state between a rotation and
    /// the update of the projected file.
    pub fn invalidate_token(&self) {
        self.state.new_token();
    }

    /// Rotates the token during the next request: its old token is rejected, and the file already
    /// has the new one by then.
    pub fn rotate_token_under_next_request(&self) {
        *self.state.rotate_into.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(self.token_file());
    }

    /// Writes the accepted token and replaces the file by a rename, as the kubelet's projected
    /// volumes do.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn write_token(&self) -> Result<(), StubError> {
        replace(&self.token_file(), self.state.token().as_bytes())
    }

    /// Presents another certificate on new connections, and closes the existing ones.
    ///
    /// # Errors
    /// If no certificate can be created.
    pub fn rotate_certificate(&self, kind: CertificateKind) -> Result<(), StubError> {
        self.state.rotate_certificate(kind)?;
        self.secure.close_connections();
        Ok(())
    }

    /// Writes the CA of the current certificate.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn write_ca(&self) -> Result<(), StubError> {
        replace(&self.ca_file(), self.state.ca_pem().as_bytes())
    }

    /// Writes the certificate that is presented now and that of its CA, as a kubelet writes
    /// `kubelet.crt` where it signs its own certificate.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn write_host_certificate(&self) -> Result<(), StubError> {
        replace(&self.host_certificate(), self.state.certificate.load().as_bytes())
    }

    /// Closes the ports and every connection: connecting is refused from now on.
    pub async fn stop_listening(&self) {
        self.secure.close().await;
        if let Some(port) = &self.read_only {
            port.close().await;
        }
    }

    /// Opens the same ports again.
    ///
    /// # Errors
    /// If another process has taken them meanwhile.
    pub async fn listen_again(&self) -> Result<(), StubError> {
        self.secure.reopen().await?;
        match &self.read_only {
            Some(port) => port.reopen().await,
            None => Ok(()),
        }
    }

    /// All requests so far on both ports, in order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.state.log.list()
    }

    /// Waits for at least `count` requests to `/pods` in total.
    pub async fn pod_requests(&self, count: usize) {
        self.state.log.wait_for_pod_requests(count).await;
    }
}

pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), StubError> {
    let failed = |source| StubError::Write { path: path.to_owned(), source };
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, content).map_err(failed)?;
    std::fs::rename(&fresh, path).map_err(failed)
}
