//! The watchdog's own thread, which checks all parts once per second.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::{Beat, Part, Silent, Watchdog, Worker};

const INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread. `checked` is called after each check, with all watched parts and the silent
/// ones among them.
///
/// # Errors
/// The system cannot create a thread.
pub fn start_checks(
    watchdog: Watchdog,
    checked: impl FnMut(&[Part], &[Silent]) + Send + 'static,
) -> io::Result<Worker> {
    let beat = watchdog.watch(Part::Watchdog, INTERVAL);
    Worker::spawn("watchdog", move |stopped| {
        check_until_stopped(&watchdog, checked, &beat, stopped);
    })
}

fn check_until_stopped(
    watchdog: &Watchdog,
    mut checked: impl FnMut(&[Part], &[Silent]),
    beat: &Beat,
    stopped: &Receiver<()>,
) {
    while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        checked(&watchdog.watched(), &watchdog.silent());
        beat.beat(INTERVAL);
    }
}
