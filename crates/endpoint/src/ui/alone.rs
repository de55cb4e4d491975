//! Computations that take long: one at a time, on a thread of their own.

use std::io;
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use tokio::sync::{Mutex, oneshot};

/// Runs one computation after the other; clones share the turn. The rendering thread stays free for
/// /metrics, the event stream and all other answers.
#[derive(Clone, Default)]
pub(super) struct Alone(Arc<Mutex<()>>);

impl Alone {
    /// Waits for its turn, and for the result. The turn lasts as long as the computation, also if
    /// the client does not wait for it.
    ///
    /// # Errors
    /// The system cannot create a thread, or the computation panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let turn = Arc::clone(&self.0).lock_owned().await;
        let (done, result) = oneshot::channel();
        let computing = move || {
            let result = compute();
            drop(turn);
            let _ = done.send(result);
        };
        let thread: io::Result<_> =
            thread::Builder::new().name("http-view".to_owned()).spawn(computing);
        thread.context("cannot start a thread")?;
        result.await.context("the computation panicked")
    }
}
