//! Signals that mean nothing to the agent. Without a handler each of them would end it.

use anyhow::Context as _;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Timers, limits on resources, and what an operator may send by mistake. A write beyond the limit
/// of file sizes then is an error.
const IGNORED: [Signal; 8] = [
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::XCPU,
    Signal::XFSZ,
];

/// Ignores these signals from now on. Must be called inside a tokio runtime, whose handlers stay.
pub(crate) fn ignore() -> anyhow::Result<()> {
    for ignored in IGNORED {
        // The stream may go: the handler stays.
        drop(signal(SignalKind::from_raw(ignored.as_raw())).context("cannot handle signals")?);
    }
    Ok(())
}
