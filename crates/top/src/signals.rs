//! Signals that end a command early.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP.
#[derive(Debug)]
pub struct Signals([Signal; 3]);

impl Signals {
    /// Handles the signals from now on.
    ///
    /// # Errors
    /// The system rejects a handler.
    pub fn new() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("cannot handle signals");
        Ok(Self([
            on(SignalKind::interrupt())?,
            on(SignalKind::terminate())?,
            on(SignalKind::hangup())?,
        ]))
    }

    /// Returns at the first signal.
    pub async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
