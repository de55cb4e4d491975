//! Log of the stub's requests.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Path, with the query.
    pub path: String,
    /// Time of arrival.
    pub at: Instant,
    /// Status of the response; `None` until it is sent.
    pub status: Option<u16>,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    requests: Mutex<Vec<Request>>,
    count: watch::Sender<usize>,
    pod_requests: watch::Sender<usize>,
}

impl Log {
    /// Records a request's arrival; returns its number for [`Log::answered`].
    pub(crate) fn arrived(&self, path: &str) -> usize {
        let number = self.with(|requests| {
            requests.push(Request { path: path.to_owned(), at: Instant::now(), status: None });
            requests.len() - 1
        });
        self.count.send_modify(|count| *count += 1);
        if path.starts_with("/pods") {
            self.pod_requests.send_modify(|count| *count += 1);
        }
        number
    }

    pub(crate) fn answered(&self, number: usize, status: u16) {
        self.with(|requests| requests[number].status = Some(status));
    }

    pub(crate) fn list(&self) -> Vec<Request> {
        self.with(|requests| requests.clone())
    }

    #[cfg(feature = "full")]
    pub(crate) async fn wait_for_requests(&self, at_least: usize) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.count.subscribe().wait_for(|count| *count >= at_least).await;
    }

    pub(crate) async fn wait_for_pod_requests(&self, at_least: usize) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.pod_requests.subscribe().wait_for(|count| *count >= at_least).await;
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<Request>) -> T) -> T {
        work(&mut self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
