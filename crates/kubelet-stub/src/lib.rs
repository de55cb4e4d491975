//! A kubelet's pod endpoints, in this process, over real TLS.
//!
//! It stands in for a kubelet in `cpuwarden demo` and in tests, and so it copies what a client can tell a kubelet by:
//! a certificate `CN=<node>@<epoch>` from a CA of its own whose only name is the node's, bearer tokens, 401 and 403 with
//! the kubelet's own words, `/pods`, `/configz` and `/healthz`. On top, tests order faults. It knows nothing of what
//! its clients do with a pod list, and never parses one.

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
use state::State;

/// What a stub is to be.
#[derive(Debug, Clone)]
pub struct StubConfig {
    /// Name of the node, and so of the certificate.
    pub node_name: String,
    /// Existing directory that receives `ca.crt` and `token`.
    pub directory: PathBuf,
    /// First answer to `/pods`: a `PodList` as JSON.
    pub pods: Bytes,
    /// Also open a read-only port, without TLS and without authorization.
    pub read_only_port: bool,
}

/// Why a stub did not start.
#[derive(Debug, thiserror::Error)]
pub enum StubError {
    /// A port could not be opened.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate for {name:?}")]
    Certificate {
        /// The name that it was to bear.
        name: String,
        /// Why.
        source: rcgen::Error,
    },
    /// rustls refused the certificate.
    #[error("cannot use the certificate")]
    Tls(#[from] rustls::Error),
    /// rustls refused the CA for client certificates.
    #[error("cannot verify client certificates")]
    Clients(#[from] rustls::server::VerifierBuilderError),
}

/// A running stub. It ends when this is dropped.
#[derive(Debug)]
pub struct KubeletStub {
    state: Arc<State>,
    secure: Port<Secure>,
    read_only: Option<Port<ReadOnly>>,
    directory: PathBuf,
    _stop: DropGuard,
}

impl KubeletStub {
    /// Starts a stub on free loopback ports. To be called inside a tokio runtime, which then serves it.
    ///
    /// # Errors
    /// When a port cannot be opened, a file not written, or the node's name is no DNS name.
    pub async fn start(config: StubConfig) -> Result<Self, StubError> {
        let authority = Authority::new(&config.node_name)?;
        let certificate = authority.issue(CertificateKind::Valid)?;
        let state = Arc::new(State::new(config.node_name, authority, certificate, config.pods));
        let stop = CancellationToken::new();
        let secure = Port::open(Secure(Arc::clone(&state)), stop.clone()).await?;
        let read_only = if config.read_only_port {
            Some(Port::open(ReadOnly(Arc::clone(&state)), stop.clone()).await?)
        } else {
            None
        };
        let stub = Self { state, secure, read_only, directory: config.directory, _stop: stop.drop_guard() };
        stub.write_ca()?;
        stub.write_token()?;
        Ok(stub)
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("https://{}", self.secure.address())
    }

    /// `http://127.0.0.1:<port>`, where a read-only port was asked for.
    pub fn read_only_url(&self) -> Option<String> {
        self.read_only.as_ref().map(|port| format!("http://{}", port.address()))
    }

    /// PEM file of the CA that signs the stub's certificates.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// Where [`KubeletStub::write_host_certificate`] writes.
    pub fn host_certificate(&self) -> PathBuf {
        self.directory.join("kubelet.crt")
    }

    /// File with the token that the stub accepts.
    pub fn token_file(&self) -> PathBuf {
        self.directory.join("token")
    }

    /// Makes a client certificate that is accepted instead of the token; files of the certificate and its key.
    ///
    /// # Errors
    /// When it cannot be made, or the directory not be written.
    pub fn client_certificate(&self) -> Result<(PathBuf, PathBuf), StubError> {
        let (certificate, key) = self.state.client_certificate()?;
        let files = (self.directory.join("client.crt"), self.directory.join("client.key"));
        replace(&files.0, certificate.as_bytes())?;
        replace(&files.1, key.as_bytes())?;
        Ok(files)
    }

    /// The node's name.
    pub fn node_name(&self) -> &str {
        &self.state.node_name
    }

    /// Replaces the answer to `/pods`.
    pub fn set_pods(&self, pods: impl Into<Bytes>) {
        self.state.pods.store(Arc::new(pods.into()));
    }

    /// Makes every following answer to `/pods` faulty; `None` heals.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.state.fault.store(Arc::new(fault));
    }

    /// What the token's holder may do from now on. At first: [`Grant::PODS`] and what else a 1.33 kubelet's monitoring
    /// role has.
    pub fn set_grants(&self, grants: &[Grant]) {
        self.state.grants.store(Arc::new(grants.to_vec()));
    }

    /// Whether the kubelet knows fine-grained subresources (1.33 and later, as at first) or asks for `nodes/proxy` only.
    pub fn set_fine_grained(&self, fine_grained: bool) {
        self.state.fine_grained.store(fine_grained, std::sync::atomic::Ordering::Relaxed);
    }

    /// Accepts only a new token from now on, without writing it: as between a rotation and the projected file.
    pub fn invalidate_token(&self) {
        self.state.new_token();
    }

    /// Rotates the token while the next request is under way: its old token is refused, and by then the file already has
    /// the new one.
    pub fn rotate_token_under_next_request(&self) {
        *self.state.rotate_into.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(self.token_file());
    }

    /// Writes the token that is accepted now, replacing the file by a rename, as the kubelet's projected volumes do.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write_token(&self) -> Result<(), StubError> {
        replace(&self.token_file(), self.state.token().as_bytes())
    }

    /// Presents another certificate on new connections, and closes the present ones.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn rotate_certificate(&self, kind: CertificateKind) -> Result<(), StubError> {
        self.state.rotate_certificate(kind)?;
        self.secure.close_connections();
        Ok(())
    }

    /// Writes the CA of the certificate that is presented now.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write_ca(&self) -> Result<(), StubError> {
        replace(&self.ca_file(), self.state.ca_pem().as_bytes())
    }

    /// Writes the certificate that is presented now and that of its CA, as a kubelet writes `kubelet.crt` where it signs
    /// its own certificate.
    ///
    /// # Errors
    /// When the directory cannot be written.
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
    /// When another process has taken them meanwhile.
    pub async fn listen_again(&self) -> Result<(), StubError> {
        self.secure.reopen().await?;
        match &self.read_only {
            Some(port) => port.reopen().await,
            None => Ok(()),
        }
    }

    /// All requests so far, in the order of their arrival, on both ports.
    pub fn requests(&self) -> Vec<Request> {
        self.state.log.list()
    }

    /// Waits until there were at least `count` requests to `/pods`.
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
