//! The port: limits the number of connections; hyper limits each request.
//!
//! Runs on its own thread with a lower priority than all others: however many clients connect,
//! neither the sampler nor the pod sources wait for it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics::Exposition;
use rustix::io::Errno;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;

use crate::auth::Auth;
use crate::browsers::Browsers;
use crate::page::Pages;
use crate::place::{Place, Places};
use crate::port::Port;
use crate::routes::{Access, router};
use crate::sources::Sources;
use crate::tls::Identity;
use crate::ui::{Ui, Views};

/// Timeout for a client's complete header. Also applies to idle connections and TLS handshakes.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// Maximum bytes of a request's header.
const HEADER_BYTES: usize = 16 << 10;
/// Maximum bytes of kernel memory for an unread page: the kernel's default is megabytes per
/// connection.
const SEND_BUFFER: u32 = 128 << 10;
/// Maximum number of connections that the kernel queues until they are accepted.
const BACKLOG: u32 = 1024;
/// Interval between checks for slow readers, while a connection is open.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Longest time between two calls of [`Parts::beat`].
pub const ROUND: Duration = Duration::from_secs(5);
/// Pause after an error of accept, for example without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The same if a connection was closed for the new one.
const CLOSE_PAUSE: Duration = Duration::from_millis(5);
/// Nice value of the thread: all other threads of the agent have priority.
const NICE: i32 = 5;
/// Number of rendering threads.
const RENDERERS: usize = 1;

/// A port that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("--listen: cannot listen on {address}: {source}; free the port or choose another")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// Opens the port. `[::]` accepts IPv6 and IPv4, and is `0.0.0.0` on a machine without IPv6. Must be
/// called inside a tokio runtime.
///
/// # Errors
/// The port is in use, or the address is not this machine's.
pub fn listen(address: SocketAddr) -> Result<std::net::TcpListener, ListenError> {
    try_listen(address)
        .or_else(|error| match ipv4_instead(address, &error) {
            Some(instead) => try_listen(instead),
            None => Err(error),
        })
        .map_err(|source| ListenError { address, source })
}

/// The address to listen at if the machine has no IPv6, `None` for another error.
fn ipv4_instead(address: SocketAddr, error: &std::io::Error) -> Option<SocketAddr> {
    let errno = Errno::from_io_error(error)?;
    // Without IPv6 in the kernel, and with disable_ipv6=1.
    let is_missing = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].contains(&errno);
    let is_any = address.ip() == Ipv6Addr::UNSPECIFIED;
    (is_any && is_missing).then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

fn try_listen(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        // Whatever net.ipv6.bindv6only says.
        SockRef::from(&socket).set_only_v6(false)?;
    }
    // Accepted connections inherit the buffer size.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Inputs of the endpoint.
pub struct Parts {
    /// The port, from [`listen`].
    pub listener: std::net::TcpListener,
    /// Certificate for HTTPS; `None` serves HTTP.
    pub identity: Option<Arc<Identity>>,
    /// Reviewer of access to the metrics; `None` allows everyone.
    pub auth: Option<Auth>,
    /// Whether to serve /metrics/cadvisor.
    pub cadvisor: bool,
    /// Names of this endpoint in addition to localhost and addresses, in lower case, for requests of
    /// this machine without a token.
    pub allowed_hosts: Vec<String>,
    /// Sources of the pages.
    pub sources: Sources,
    /// Creates the exposition, and another one after a rendering that panicked.
    pub new_exposition: Box<dyn Fn() -> Exposition + Send>,
    /// Time between two snapshots.
    pub interval: Duration,
    /// Sources of the page and of the JSON API; `None` serves neither.
    pub ui: Option<Ui>,
    /// Called while the server works, with the time in which the next call is due.
    pub beat: Box<dyn Fn(Duration) + Send>,
}

/// The running server. Stops after open requests, on [`Serving::stop`] or on drop.
pub struct Serving {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Serving {
    /// Starts the server's thread, `http`.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn start(parts: Parts) -> anyhow::Result<Self> {
        let Parts {
            listener,
            identity,
            auth,
            cadvisor,
            allowed_hosts,
            sources,
            new_exposition,
            interval,
            ui,
            beat,
        } = parts;
        let places = Places::new(Arc::clone(&sources.metrics));
        let pages = Pages::new(sources.clone(), new_exposition, interval);
        let views = ui.map(|ui| Arc::new(Views::new(ui, sources.clone(), auth.is_some())));
        let browsers = Browsers { hosts: allowed_hosts.into(), has_tokens: auth.is_some() };
        let access = Access { cadvisor, auth: auth.map(Arc::new), browsers };
        let router = router(sources, pages, &access, views.clone());
        let server = Server { listener, identity, places, router, beat, views };
        let (stop, stopped) = oneshot::channel();
        let (alive, ended) = oneshot::channel();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime
            .enable_all()
            .max_blocking_threads(RENDERERS)
            .thread_name("http-render")
            .build()?;
        let thread = std::thread::Builder::new().name("http".to_owned());
        thread.spawn(move || {
            // If not permitted, the thread keeps the priority of the others.
            let _ = rustix::process::nice(NICE);
            let served = runtime.block_on(server.serve(stopped));
            if let Err(error) = served {
                tracing::error!(error = format!("{error:#}"), "the endpoint stopped");
            }
            runtime.shutdown_background();
            let _ = alive.send(());
        })?;
        Ok(Self { stop, ended })
    }

    /// Stops accepting connections and waits for open requests.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.ended.await;
    }
}

/// State of the server's thread.
struct Server {
    listener: std::net::TcpListener,
    identity: Option<Arc<Identity>>,
    places: Places,
    router: Router,
    beat: Box<dyn Fn(Duration) + Send>,
    views: Option<Arc<Views>>,
}

impl Server {
    async fn serve(self, mut stopped: oneshot::Receiver<()>) -> anyhow::Result<()> {
        let Self { listener, identity, places, router, beat, views } = self;
        let sending = views.clone().map(|views| tokio::spawn(views.send_events()));
        let mut port = Port::new(listener).context("cannot use the port")?;
        let (stop, stopping) = watch::channel(false);
        let mut connections = JoinSet::new();
        let (mut sweep, mut alive) = (interval(SWEEP_EVERY), interval(ROUND));
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                accepted = port.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let acceptor = identity.as_ref().map(|identity| TlsAcceptor::from(identity.current()));
                        // An IPv6 socket also accepts IPv4 clients, as mapped addresses.
                        let (place, cut) = places.open(peer.ip().to_canonical());
                        let connection = Connection { place, router: router.clone(), stopping: stopping.clone() };
                        connections.spawn(connection.run(stream, acceptor, cut));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "cannot accept a connection");
                        let has_room = places.make_room();
                        tokio::time::sleep(if has_room { CLOSE_PAUSE } else { ACCEPT_PAUSE }).await;
                    }
                },
                _ = sweep.tick(), if !connections.is_empty() => places.sweep(),
                _ = alive.tick() => {
                    port.refill();
                    beat(ROUND);
                }
                Some(_) = connections.join_next() => port.refill(),
                _ = &mut stopped => break,
            }
        }
        drop(port);
        let _ = stop.send(true);
        // Streams would keep their connections open.
        if let Some(sending) = sending {
            sending.abort();
        }
        if let Some(views) = views {
            views.end_streams();
        }
        while connections.join_next().await.is_some() {}
        Ok(())
    }
}

/// One connection.
struct Connection {
    place: Place,
    router: Router,
    stopping: watch::Receiver<bool>,
}

impl Connection {
    /// Serves the connection until it ends or is closed.
    async fn run(
        self,
        stream: TcpStream,
        acceptor: Option<TlsAcceptor>,
        cut: oneshot::Receiver<()>,
    ) {
        let place = self.place.clone();
        tokio::select! {
            () = self.serve(stream, acceptor) => {}
            _ = cut => {}
        }
        place.close();
    }

    async fn serve(self, stream: TcpStream, acceptor: Option<TlsAcceptor>) {
        // A header and a page are each written at once.
        let _ = stream.set_nodelay(true);
        match acceptor {
            None => self.answer(stream).await,
            // Errors here are the client's: it does not trust the certificate, or does not speak
            // TLS.
            Some(acceptor) => {
                if let Ok(Ok(stream)) =
                    tokio::time::timeout(HEADER_TIME, acceptor.accept(stream)).await
                {
                    self.answer(stream).await;
                }
            }
        }
    }

    async fn answer(mut self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let (router, place) = (TowerToHyperService::new(self.router), self.place);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(place.clone());
            router.call(request)
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME);
        builder.max_header_size(HEADER_BYTES).max_buf_size(2 * HEADER_BYTES);
        // Pages are shared and never copied.
        builder.writev(true);
        let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            // Errors here are the client's.
            _ = connection.as_mut() => return,
            () = stopped(&mut self.stopping) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server is gone.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn the_address_of_both_families_accepts_both() {
        let listener = listen("[::]:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        // Not on a machine without IPv6.
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            assert!(TcpStream::connect((Ipv6Addr::LOCALHOST, port)).is_ok());
        }
    }

    #[test]
    fn only_a_missing_ipv6_is_replaced_by_ipv4() {
        let instead = |address: &str, errno: Errno| {
            let instead = ipv4_instead(address.parse().unwrap(), &errno.into());
            instead.map(|instead| instead.to_string())
        };
        let ipv4 = Some("0.0.0.0:9753".to_owned());
        assert_eq!(instead("[::]:9753", Errno::AFNOSUPPORT), ipv4);
        assert_eq!(instead("[::]:9753", Errno::ADDRNOTAVAIL), ipv4);
        assert_eq!(instead("[::]:9753", Errno::ADDRINUSE), None);
        assert_eq!(instead("[fd00::1]:9753", Errno::ADDRNOTAVAIL), None);
        assert_eq!(instead("127.0.0.1:9753", Errno::ADDRNOTAVAIL), None);
    }
}
