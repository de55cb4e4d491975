//! The place of a connection: whether its request is admitted, and what it is sent.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use metrics::AgentMetrics;
use tokio::sync::oneshot;

use crate::connections::{Connections, Id, Reason};

/// The table of connections, with metrics.
#[derive(Clone)]
pub(crate) struct Places {
    table: Arc<Mutex<Connections>>,
    metrics: Arc<AgentMetrics>,
}

impl Places {
    pub(crate) fn new(metrics: Arc<AgentMetrics>) -> Self {
        Self { table: Arc::default(), metrics }
    }

    pub(crate) fn open(&self, peer: IpAddr) -> (Place, oneshot::Receiver<()>) {
        let (cut, end) = oneshot::channel();
        let (id, victim) = self.table().open(peer.to_canonical(), Instant::now(), cut);
        self.count(victim);
        (Place { id, peer, places: self.clone() }, end)
    }

    /// Closes a waiting connection; returns whether there was one.
    pub(crate) fn make_room(&self) -> bool {
        let cut = self.table().make_room();
        self.count(cut);
        cut.is_some()
    }

    pub(crate) fn sweep(&self) {
        let cut = self.table().sweep(Instant::now());
        self.count(cut);
    }

    fn count(&self, cut: impl IntoIterator<Item = Reason>) {
        cut.into_iter().for_each(|reason| self.metrics.http_connection_cut(reason.as_str()));
    }

    fn table(&self) -> MutexGuard<'_, Connections> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's entry in the table; stored in the extensions of its requests.
#[derive(Clone)]
pub(crate) struct Place {
    id: Id,
    pub(crate) peer: IpAddr,
    places: Places,
}

impl Place {
    /// # Errors
    /// Too many connections read pages.
    fn admit(&self) -> Result<(), Reason> {
        let admitted = self.places.table().admit(self.id);
        self.places.count(match admitted {
            Ok(cut) => cut,
            Err(reason) => Some(reason),
        });
        admitted.map(drop)
    }

    /// The body of a response: the shared page, which counts as being read until its last byte is
    /// sent.
    pub(crate) fn body(&self, page: Bytes) -> Body {
        let cut =
            self.places.table().sending(self.id, page.as_ptr().addr(), page.len(), Instant::now());
        self.places.count(cut);
        Body::from(Bytes::from_owner(Sending { page, place: self.clone() }))
    }

    /// # Errors
    /// Too many event streams.
    fn admit_stream(&self) -> Result<(), Reason> {
        let admitted = self.places.table().admit_stream(self.id, Instant::now());
        self.places.count(admitted.err());
        admitted
    }

    /// Records that the client took an event.
    pub(crate) fn took_event(&self) {
        self.places.table().took_event(self.id, Instant::now());
    }

    /// Records that the stream has ended.
    pub(crate) fn end_stream(&self) {
        self.places.table().end_stream(self.id);
    }

    pub(crate) fn close(&self) {
        self.places.table().close(self.id);
    }
}

/// A page that is being sent.
struct Sending {
    page: Bytes,
    place: Place,
}

impl AsRef<[u8]> for Sending {
    fn as_ref(&self) -> &[u8] {
        &self.page
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.place.places.table().sent(self.place.id);
    }
}

/// Passes a request for a page on, if there is a place for its connection.
pub(crate) async fn admit(request: Request, next: Next) -> Response {
    match request.extensions().get::<Place>().map(Place::admit) {
        Some(Ok(())) => next.run(request).await,
        _ => too_many("too many connections\n"),
    }
}

/// The same for an event stream.
pub(crate) async fn admit_stream(request: Request, next: Next) -> Response {
    match request.extensions().get::<Place>().map(Place::admit_stream) {
        Some(Ok(())) => next.run(request).await,
        _ => too_many("too many event streams\n"),
    }
}

fn too_many(text: &'static str) -> Response {
    let headers = [(header::RETRY_AFTER, "1"), (header::CONNECTION, "close")];
    (StatusCode::SERVICE_UNAVAILABLE, headers, text).into_response()
}
