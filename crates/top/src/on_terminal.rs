//! The view on this process's terminal.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, anyhow};
use console::{Failure, stderr};
use tokio::task::JoinError;

use crate::app::App;
use crate::source::Source;
use crate::terminal;

/// Width of tables that are not written to a terminal.
const WIDTH: usize = 100;

/// Shows the view until the user leaves or `end` returns, and then returns its result. Messages on
/// standard error wait until the terminal is restored.
///
/// # Errors
/// The error of `end`, or standard output is not a terminal.
pub async fn show(
    mut app: App,
    mut source: impl Source + Send + 'static,
    end: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let _held = stderr::hold();
    let mut viewing = {
        let stop = Arc::clone(&stop);
        tokio::task::spawn_blocking(move || {
            terminal::run(&mut app, &mut source, || stop.load(Ordering::Relaxed))
        })
    };
    let ended = tokio::select! {
        viewed = &mut viewing => return outcome(viewed),
        ended = end => ended,
    };
    stop.store(true, Ordering::Relaxed);
    outcome(viewing.await).and(ended)
}

fn outcome(viewed: Result<std::io::Result<()>, JoinError>) -> Result<(), Failure> {
    let drawn = viewed.map_err(|_| anyhow!("the view ended by a panic; its message is above"))?;
    Ok(drawn.context("cannot draw on the terminal")?)
}

/// Width of tables on standard output: the terminal's, or 100 columns.
#[must_use]
pub fn columns() -> usize {
    terminal::columns().map(usize::from).filter(|&width| width > 0).unwrap_or(WIDTH)
}
