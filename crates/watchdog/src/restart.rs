//! Restarts a part that panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Pause before the first restart; doubled for each further one, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A part that has run for longer than this starts again after [`FIRST_PAUSE`].
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Pauses before the restarts of a part: 1 s, doubled up to 60 s, and 1 s again after a run of more
/// than 60 s.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST_PAUSE }
    }
}

impl Backoff {
    /// Pause before the restart of a part that failed after it had run for this time.
    pub fn pause_after(&mut self, run: Duration) -> Duration {
        let pause = if run > MAX_PAUSE { FIRST_PAUSE } else { self.next };
        self.next = (pause * 2).min(MAX_PAUSE);
        pause
    }
}

/// Calls `body` until it returns or the other end of `stopped` is dropped; calls it again after
/// each panic. `panicked` is called after each panic. State that `body` leaves behind at a panic
/// must be valid for its next call.
pub fn keep_running(stopped: &Receiver<()>, mut panicked: impl FnMut(), mut body: impl FnMut()) {
    let mut backoff = Backoff::default();
    loop {
        let began = Instant::now();
        if catch_unwind(AssertUnwindSafe(&mut body)).is_ok() {
            return;
        }
        panicked();
        let pause = backoff.pause_after(began.elapsed());
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_start_again_after_a_long_run() {
        let mut backoff = Backoff::default();
        let mut pauses = |runs: &[u64]| -> Vec<u64> {
            let pause = |run: &u64| backoff.pause_after(Duration::from_secs(*run)).as_secs();
            runs.iter().map(pause).collect()
        };
        assert_eq!(pauses(&[0, 60, 0, 0, 0, 0, 0, 0]), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pauses(&[61, 0]), [1, 2]);
    }

    #[test]
    fn a_body_that_panics_is_called_again_and_the_panic_is_counted() {
        let (_stop, stopped) = mpsc::channel();
        let (mut calls, mut panics) = (0, 0);
        keep_running(
            &stopped,
            || panics += 1,
            || {
                calls += 1;
                assert!(calls > 1, "on purpose");
            },
        );
        assert_eq!((calls, panics), (2, 1));
    }

    #[test]
    fn a_stop_ends_the_pause_before_a_restart() {
        let (stop, stopped) = mpsc::channel();
        drop(stop);
        let mut calls = 0;
        keep_running(
            &stopped,
            || {},
            || {
                calls += 1;
                panic!("on purpose");
            },
        );
        assert_eq!(calls, 1);
    }
}
