//! Ports: listening, TLS, and connections that can be cut.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::StubError;

/// A response body, complete or in pieces that may break off.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Request extension of connections with a client certificate of the stub's CA.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VerifiedCertificate;

/// The service behind a port.
pub(crate) trait Peer: Send + Sync + 'static {
    /// The certificate for the next connection; `None` for a port without TLS.
    fn tls(&self) -> Option<Arc<ServerConfig>>;

    /// Answers one request.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send;
}

#[derive(Debug)]
pub(crate) struct Port<P> {
    address: SocketAddr,
    peer: Arc<P>,
    stop: CancellationToken,
    /// Cuts the current connections; replaced after each use.
    cut: Arc<ArcSwap<CancellationToken>>,
    /// The accepting task; `None` while the port is closed.
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl<P: Peer> Port<P> {
    pub(crate) async fn open(peer: P, stop: CancellationToken) -> Result<Self, StubError> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = listen(any).await?;
        let address =
            listener.local_addr().map_err(|source| StubError::Listen { address: any, source })?;
        let cut = Arc::new(ArcSwap::from_pointee(stop.child_token()));
        let port = Self { address, peer: Arc::new(peer), stop, cut, accepting: Mutex::default() };
        port.accept_on(listener);
        Ok(port)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts the current connections; new ones are accepted.
    pub(crate) fn close_connections(&self) {
        self.cut.swap(Arc::new(self.stop.child_token())).cancel();
    }

    /// Closes the listening socket and all connections.
    pub(crate) async fn close(&self) {
        let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = accepting {
            task.abort();
            // The port is free only after the task has dropped its listener.
            let _ = task.await;
        }
        self.close_connections();
    }

    pub(crate) async fn reopen(&self) -> Result<(), StubError> {
        self.close().await;
        self.accept_on(listen(self.address).await?);
        Ok(())
    }

    fn accept_on(&self, listener: TcpListener) {
        let accepting = accept(listener, Arc::clone(&self.peer), Arc::clone(&self.cut));
        let stop = self.stop.clone();
        let task = tokio::spawn(async move {
            stop.run_until_cancelled(accepting).await;
        });
        *self.accepting.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StubError> {
    TcpListener::bind(address).await.map_err(|source| StubError::Listen { address, source })
}

async fn accept(listener: TcpListener, peer: Arc<impl Peer>, cut: Arc<ArcSwap<CancellationToken>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Usually out of descriptors, which are freed as connections end.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let connection = connection(stream, Arc::clone(&peer));
        let cut = cut.load_full();
        tokio::spawn(async move {
            cut.run_until_cancelled(connection).await;
        });
    }
}

async fn connection(stream: TcpStream, peer: Arc<impl Peer>) {
    match peer.tls() {
        None => serve(stream, peer, false).await,
        Some(tls) => {
            // A client that rejects the certificate disconnects here, which is expected.
            if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                serve(stream, peer, has_certificate).await;
            }
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Arc<impl Peer>,
    has_certificate: bool,
) {
    let service = service_fn(|mut request: Request<Incoming>| {
        let peer = Arc::clone(&peer);
        if has_certificate {
            request.extensions_mut().insert(VerifiedCertificate);
        }
        async move { Ok::<_, Infallible>(peer.answer(request).await) }
    });
    // An error means that the client disconnected or that a fault broke the body: both are
    // expected.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
