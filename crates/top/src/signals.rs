//! Signals that end a command early.

use std::io;

use anyhow::Context as _;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};

#[cfg(unix)]
type Handled = (Signal, Signal, Signal);
#[cfg(windows)]
type Handled = (CtrlC, CtrlBreak, CtrlClose);

/// SIGINT, SIGTERM and SIGHUP; on Windows Ctrl-C, Ctrl-Break and a console that is closed.
#[derive(Debug)]
pub struct Signals(Handled);

impl Signals {
    /// Handles the signals from now on.
    ///
    /// # Errors
    /// The system rejects a handler.
    pub fn new() -> anyhow::Result<Self> {
        handle().context("cannot handle signals").map(Self)
    }

    /// Returns at the first signal.
    pub async fn any(&mut self) {
        let (first, second, third) = &mut self.0;
        tokio::select! {
            _ = first.recv() => {}
            _ = second.recv() => {}
            _ = third.recv() => {}
        }
    }
}

#[cfg(unix)]
fn handle() -> io::Result<Handled> {
    let [interrupt, terminate, hangup] =
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    Ok((signal(interrupt)?, signal(terminate)?, signal(hangup)?))
}

#[cfg(windows)]
fn handle() -> io::Result<Handled> {
    Ok((ctrl_c()?, ctrl_break()?, ctrl_close()?))
}
