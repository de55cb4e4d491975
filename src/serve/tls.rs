//! HTTPS: connections after their handshake, with a certificate that is read again when its file changes.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::{TlsFiles, chain};
use crate::exit::Failure;
use crate::serve::door::{Connection, Door};

/// A client that has not finished its handshake by then is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that may wait to be served.
const BACKLOG: usize = 16;

/// A port that speaks TLS.
pub(crate) struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<Connection<TcpStream>>, SocketAddr)>,
    address: SocketAddr,
}

impl TlsListener {
    /// Reads the certificate and begins to accept. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// When certificate and key cannot be used.
    pub(crate) fn new(listener: Door, files: TlsFiles) -> Result<Self, Failure> {
        let identity = Identity::load(files)?;
        let address = listener.local_addr().map_err(|error| Failure::internal(&error.into()))?;
        let (sender, ready) = mpsc::channel(BACKLOG);
        tokio::spawn(accept(listener, identity, sender));
        Ok(Self { ready, address })
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<Connection<TcpStream>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The accepting task lives as long as this receiver.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// Hands over each connection after its handshake, until nobody takes them any more.
async fn accept(
    mut listener: Door,
    mut identity: Identity,
    sender: mpsc::Sender<(TlsStream<Connection<TcpStream>>, SocketAddr)>,
) {
    loop {
        let (stream, address) = tokio::select! {
            connection = listener.accept() => connection,
            () = sender.closed() => return,
        };
        let (acceptor, sender) = (TlsAcceptor::from(identity.current()), sender.clone());
        tokio::spawn(async move {
            // What fails here is the client's: it does not trust the certificate, or speaks no TLS.
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                let _ = sender.send((stream, address)).await;
            }
        });
    }
}

/// The certificate as it was read, and what its files looked like then.
struct Identity {
    files: TlsFiles,
    stamp: Stamp,
    config: Arc<ServerConfig>,
}

/// Inode and time of change of both files. A Secret's volume is updated by swapping a link, which changes the inode.
type Stamp = [Option<(u64, i64, i64)>; 2];

impl Identity {
    fn load(files: TlsFiles) -> Result<Self, Failure> {
        let stamp = stamp(&files);
        let config = server_config(&files).map_err(Failure::config)?;
        Ok(Self { files, stamp, config })
    }

    /// The certificate of now. One that cannot be used leaves the last good one in force.
    fn current(&mut self) -> Arc<ServerConfig> {
        let stamp = stamp(&self.files);
        if stamp != self.stamp {
            self.stamp = stamp;
            match server_config(&self.files) {
                Ok(config) => {
                    tracing::info!("the endpoint's certificate has changed");
                    self.config = config;
                }
                Err(error) => tracing::warn!(%error, "the endpoint's new certificate cannot be used"),
            }
        }
        Arc::clone(&self.config)
    }
}

fn stamp(files: &TlsFiles) -> Stamp {
    [&files.certificate, &files.key].map(|path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
    })
}

fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let TlsFiles { certificate, key } = files;
    let failed = |flag: &str, path: &Path, error: &dyn std::error::Error| {
        format!("{flag}: {}: {}", path.display(), chain(error))
    };
    let bad_certificate = |error: &dyn std::error::Error| failed("--tls-cert", certificate, error);
    let certificates = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| bad_certificate(&error))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| failed("--tls-key", key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key));
    config.map(Arc::new).map_err(|error| bad_certificate(&error))
}
