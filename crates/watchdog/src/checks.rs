//! The watchdog's own thread, which checks all parts once per second.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use super::{Beat, Part, Silent, Watchdog};

const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The running thread; dropping this stops it.
#[derive(Debug)]
pub struct Checking {
    _stop: mpsc::Sender<()>,
}

impl Checking {
    /// Starts the thread. `checked` is called after each check, with all watched parts and the
    /// silent ones among them.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn start(
        watchdog: Watchdog,
        checked: impl FnMut(&[Part], &[Silent]) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let beat = watchdog.watch(Part::Watchdog, CHECK_EVERY);
        let run = move || check_until_stopped(&watchdog, checked, &beat, &stopped);
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(run)?;
        Ok(Self { _stop: stop })
    }
}

fn check_until_stopped(
    watchdog: &Watchdog,
    mut checked: impl FnMut(&[Part], &[Silent]),
    beat: &Beat,
    stopped: &Receiver<()>,
) {
    while stopped.recv_timeout(CHECK_EVERY) == Err(RecvTimeoutError::Timeout) {
        checked(&watchdog.watched(), &watchdog.silent());
        beat.beat(CHECK_EVERY);
    }
}
