//! The console of Windows, which has no job control.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use ratatui::crossterm::{event, terminal};

/// The console that crossterm reads.
pub(crate) struct Input;

impl Input {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for a key, at most this long. A console that is closed ends the process.
    ///
    /// # Errors
    /// There is no console.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<()> {
        event::poll(time).map(drop)
    }
}

/// Does nothing: no shell could continue this process.
pub(crate) fn stop_job() -> io::Result<()> {
    Ok(())
}

/// Width of the console on standard output, if it is one.
pub(crate) fn columns() -> Option<u16> {
    let is_console = io::stdout().is_terminal();
    is_console.then(|| terminal::size().ok()).flatten().map(|(columns, _)| columns)
}
