//! Accepts connections, also when the process has no descriptor left.

use std::fs::File;
use std::future::poll_fn;
use std::io::Result;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::{TcpListener, TcpStream};

/// Pause until accept is called again, without a free descriptor and without a client.
const PAUSE: Duration = Duration::from_millis(5);

/// A listening socket, with a descriptor in reserve for one connection.
pub(crate) struct Port {
    listener: TcpListener,
    reserve: Option<File>,
}

impl Port {
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The runtime cannot watch the socket.
    pub(crate) fn new(listener: std::net::TcpListener) -> Result<Self> {
        let mut port = Self { listener: TcpListener::from_std(listener)?, reserve: None };
        port.refill();
        Ok(port)
    }

    /// Opens the descriptor in reserve again, if possible.
    pub(crate) fn refill(&mut self) {
        if self.reserve.is_none() {
            self.reserve = File::open("/dev/null").ok();
        }
    }

    /// Waits for a client and accepts its connection. Nothing is lost if the future is dropped.
    ///
    /// accept(2) takes a descriptor before it looks for a client, so without one it also fails
    /// while no client waits. That is no error here: to make room for it, the server would close
    /// the connection that it has just accepted.
    ///
    /// # Errors
    /// A client waits, and its connection cannot be accepted: usually no descriptor is left, not
    /// even the one in reserve.
    pub(crate) async fn accept(&mut self) -> Result<(TcpStream, SocketAddr)> {
        loop {
            match self.listener.accept().await {
                Err(_) if self.reserve.take().is_some() => {
                    let at_once =
                        poll_fn(|context| Poll::Ready(self.listener.poll_accept(context)));
                    match at_once.await {
                        Poll::Ready(Ok(accepted)) => return Ok(accepted),
                        Poll::Ready(Err(_)) => {}
                        Poll::Pending => self.refill(),
                    }
                }
                Err(_) if !self.has_client() => tokio::time::sleep(PAUSE).await,
                accepted => return accepted,
            }
        }
    }

    fn has_client(&self) -> bool {
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }
}
