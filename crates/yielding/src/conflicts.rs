//! Conflicts with other writers, and the pause after too many of them.

use std::time::{Duration, Instant};

use state_dir::{Pause, PauseLengths, Trouble};

/// Time for which a feature only observes after too many conflicts.
const PAUSE: Duration = Duration::from_secs(600);

/// Conflicts of one feature, or about one cgroup.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    passes: Trouble,
    pause: Option<Pause>,
}

impl Conflicts {
    /// Whether a pause lasts.
    pub(crate) fn is_paused(&self, now: Instant) -> bool {
        self.pause.is_some_and(|pause| pause.lasts(now))
    }

    /// Records a pass in which another writer had changed a setting. Too many of them start a
    /// pause.
    pub(crate) fn note(&mut self, now: Instant) {
        self.passes.note(now);
        if self.passes.is_too_often(now) {
            let lengths = PauseLengths { first: PAUSE, longest: PAUSE };
            *self = Self { pause: Some(Pause::after(None, lengths, now)), ..Self::default() };
        }
    }
}
