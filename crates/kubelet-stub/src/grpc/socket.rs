//! A gRPC service on a Unix socket that can be closed and reopened as a new file.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use futures::stream;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::Router;

/// A served socket, closed on drop.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    serving: Mutex<Option<JoinHandle<()>>>,
}

impl Socket {
    /// Serves `service` at `path`.
    pub(super) fn serve<S>(path: &Path, service: S) -> std::io::Result<Self>
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        let socket = Self { path: path.to_owned(), serving: Mutex::default() };
        socket.open(service)?;
        Ok(socket)
    }

    /// Serves again at the same path, in a new file.
    pub(super) fn open<S>(&self, service: S) -> std::io::Result<()>
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        let listener = UnixListener::bind(&self.path)?;
        let task = tokio::spawn(accept(Server::builder().add_service(service), listener));
        *self.serving.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        Ok(())
    }

    /// Stops the server with all its connections and removes the file.
    pub(super) async fn close(&self) -> std::io::Result<()> {
        let task = self.serving.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
        std::fs::remove_file(&self.path)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(task) = self.serving.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

async fn accept(router: Router, listener: UnixListener) {
    let connections = stream::unfold(listener, |listener| async move {
        let connection = listener.accept().await.map(|(stream, _)| stream);
        Some((connection, listener))
    });
    // Ends only when the task is aborted.
    let _ = router.serve_with_incoming(connections).await;
}
