//! The port: so many connections at once, and none for long that is owed no answer.
//!
//! A peer that died without a word, or that dribbles a request, would else keep its connection and its memory for ever.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Far more than scrapers, probes and people need. Each takes up to 20 KB, and the chart's limit is 128 MiB.
const PLACES: usize = 2048;
/// Twice Prometheus' usual interval: its connection is kept from one scrape to the next.
const PATIENCE: Duration = Duration::from_secs(120);

/// Accepts connections while there are places; who comes then waits in the kernel's queue.
pub(crate) struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
    patience: Duration,
}

impl Door {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(PLACES)), patience: PATIENCE }
    }
}

impl Listener for Door {
    type Io = Connection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // The semaphore is never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (io, address) = Listener::accept(&mut self.listener).await;
        (Connection::new(io, self.patience, place), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when nothing was sent on it for a while: each answer gives it its time anew, and nothing else.
pub(crate) struct Connection<T> {
    io: T,
    patience: Duration,
    end: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl<T> Connection<T> {
    fn new(io: T, patience: Duration, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { io, patience, end: Box::pin(tokio::time::sleep(patience)), _place: place }
    }

    /// What did not come in time never comes.
    fn or_end<R>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => polled,
        }
    }

    fn sent(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(polled, Poll::Ready(Ok(_))) {
            self.end.as_mut().reset(Instant::now() + self.patience);
        }
        self.or_end(cx, polled)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Connection<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        self.or_end(cx, polled)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Connection<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.sent(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        self.sent(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::TimedOut;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{sleep, timeout};

    use super::*;

    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_request_that_never_ends_is_let_go_though_bytes_keep_coming() {
        let (mut client, server) = duplex(1 << 20);
        let mut server = Connection::new(server, SHORT, None);
        let dribble = tokio::spawn(async move {
            while client.write_all(b"x").await.is_ok() {
                sleep(SHORT / 20).await;
            }
        });
        let mut request = Vec::new();
        let ended = timeout(LONG, server.read_to_end(&mut request)).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), TimedOut);
        dribble.abort();
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_is_let_go() {
        let (_client, server) = duplex(8);
        let mut server = Connection::new(server, SHORT, None);
        let ended = timeout(LONG, server.write_all(&[0; 100])).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), TimedOut);
    }

    #[tokio::test]
    async fn each_answer_gives_a_connection_its_time_anew() {
        let (mut client, server) = duplex(1 << 10);
        let mut server = Connection::new(server, 4 * LONG, None);
        let begun = server.end.deadline();
        sleep(Duration::from_millis(2)).await;
        client.write_all(b"?").await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), b'?');
        assert_eq!(server.end.deadline(), begun, "a request alone gives none");
        server.write_all(b"!").await.unwrap();
        assert!(server.end.deadline() > begun);
    }

    #[tokio::test]
    async fn who_comes_when_all_places_are_taken_waits_for_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut door = Door { listener, places: Arc::new(Semaphore::new(1)), patience: LONG };
        let _clients = (TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap());
        let (first, _) = door.accept().await;
        timeout(SHORT, door.accept()).await.map(drop).expect_err("the only place is taken");
        drop(first);
        timeout(LONG, door.accept()).await.map(drop).expect("the place is free again");
    }
}
