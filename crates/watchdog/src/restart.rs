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
struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST_PAUSE }
    }
}

impl Backoff {
    /// Pause before the restart of a part that failed after it had run for this time.
    fn pause_after(&mut self, run: Duration) -> Duration {
        let pause = if run > MAX_PAUSE { FIRST_PAUSE } else { self.next };
        self.next = (pause * 2).min(MAX_PAUSE);
        pause
    }
}

/// End of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The part was stopped.
    Stopped,
    /// The part could not start; it is tried again.
    Failed,
    /// The part panicked; it is started again.
    Panicked,
}

/// Calls `run` until the part is stopped. After each failed start and each panic, it calls `pause`,
/// which waits for a stop and returns whether it came. State that a panic of `run` leaves in `part`
/// must be valid for the next call.
pub fn restart_until_stopped<P>(
    part: &mut P,
    mut run: impl FnMut(&mut P) -> RunEnd,
    mut pause: impl FnMut(&mut P, RunEnd, Duration) -> bool,
) {
    let mut backoff = Backoff::default();
    loop {
        let began = Instant::now();
        let end = catch_unwind(AssertUnwindSafe(|| run(part))).unwrap_or(RunEnd::Panicked);
        if end == RunEnd::Stopped || pause(part, end, backoff.pause_after(began.elapsed())) {
            return;
        }
    }
}

/// Calls `body` until it returns or the other end of `stopped` is dropped; calls it again after
/// each panic. `panicked` is called after each panic. State that `body` leaves behind at a panic
/// must be valid for its next call.
pub fn keep_running(stopped: &Receiver<()>, mut panicked: impl FnMut(), mut body: impl FnMut()) {
    let run = |(): &mut ()| {
        body();
        RunEnd::Stopped
    };
    restart_until_stopped(&mut (), run, |(), _, pause| {
        panicked();
        stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout)
    });
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
    fn a_part_that_cannot_start_is_tried_again_after_longer_pauses() {
        let mut pauses = Vec::new();
        let run = |pauses: &mut Vec<_>| {
            if pauses.len() < 2 { RunEnd::Failed } else { RunEnd::Stopped }
        };
        restart_until_stopped(&mut pauses, run, |pauses, end, pause| {
            pauses.push((end, pause.as_secs()));
            false
        });
        assert_eq!(pauses, [(RunEnd::Failed, 1), (RunEnd::Failed, 2)]);
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
