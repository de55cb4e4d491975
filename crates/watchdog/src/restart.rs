//! Restarts a part that panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Pause before the first restart; doubled for each further one, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Calls `body` until it returns or the other end of `stopped` is dropped; calls it again after
/// each panic. `panicked` is called after each panic. State that `body` leaves behind at a panic
/// must be valid for its next call.
pub fn keep_running(stopped: &Receiver<()>, mut panicked: impl FnMut(), mut body: impl FnMut()) {
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        if catch_unwind(AssertUnwindSafe(&mut body)).is_ok() {
            return;
        }
        panicked();
        if began.elapsed() > MAX_PAUSE {
            pause = FIRST_PAUSE;
        }
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

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
