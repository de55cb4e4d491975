//! Conflicts with other writers, and the pause after too many of them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time for which a foreign write counts, and how many are too many.
const CONFLICT_WINDOW: Duration = Duration::from_secs(60);
const MAX_CONFLICTS: usize = 5;
/// Time for which a feature only observes after too many conflicts.
const CONFLICT_PAUSE: Duration = Duration::from_secs(600);

/// Conflicts of one feature.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    /// Passes with repairs within [`CONFLICT_WINDOW`].
    passes: VecDeque<Instant>,
    paused_until: Option<Instant>,
}

impl Conflicts {
    /// Whether the feature pauses.
    pub(crate) fn is_paused(&mut self, now: Instant) -> bool {
        self.paused_until = self.paused_until.filter(|&until| now < until);
        self.paused_until.is_some()
    }

    /// Records a pass in which another writer had changed a setting. Too many of them start a
    /// pause.
    pub(crate) fn note(&mut self, now: Instant) {
        self.passes.push_back(now);
        let is_old = |at: &Instant| now.saturating_duration_since(*at) > CONFLICT_WINDOW;
        while self.passes.front().is_some_and(is_old) {
            self.passes.pop_front();
        }
        if self.passes.len() > MAX_CONFLICTS {
            self.passes.clear();
            self.paused_until = Some(now + CONFLICT_PAUSE);
        }
    }
}
