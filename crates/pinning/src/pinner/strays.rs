//! Schedule of the searches for processes outside their cpusets.

use std::time::{Duration, Instant};

/// Interval between searches when nothing changes.
const SEARCH_EVERY: Duration = Duration::from_secs(30);
/// Number of passes that search after a cpuset lost its last CPU: the kernel moves its processes
/// with a delay.
const PASSES_AFTER_LOSS: u32 = 10;

/// Passes that search for processes outside their cpusets.
#[derive(Debug, Default)]
pub(super) struct StraySearch {
    /// Time at which a walk or the interval last caused a search.
    caused_at: Option<Instant>,
    /// Number of passes left that search.
    passes: u32,
}

impl StraySearch {
    /// Searches in the next passes: CPU hotplug may have emptied a cpuset.
    pub(super) fn after_loss(&mut self) {
        self.passes = PASSES_AFTER_LOSS;
    }

    /// Searches in this pass if the tree was walked, or the last walk or search by time is too old.
    pub(super) fn refresh(&mut self, now: Instant, walked: bool) {
        let is_due =
            self.caused_at.is_none_or(|at| now.saturating_duration_since(at) >= SEARCH_EVERY);
        if walked || is_due {
            self.caused_at = Some(now);
            self.passes = self.passes.max(1);
        }
    }

    /// Whether this pass searches; the next one may not.
    pub(super) fn take(&mut self) -> bool {
        let searches = self.passes > 0;
        self.passes = self.passes.saturating_sub(1);
        searches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_searches_at_the_start_after_a_walk_and_every_interval() {
        let (mut search, now) = (StraySearch::default(), Instant::now());
        let mut searches = |seconds, walked| {
            search.refresh(now + Duration::from_secs(seconds), walked);
            search.take()
        };
        assert!(searches(0, false), "the first pass");
        assert!(!searches(29, false));
        assert!(searches(30, false), "the interval is over");
        assert!(!searches(31, false));
        assert!(searches(40, true), "a walk");
        assert!(!searches(69, false), "the interval starts at the walk");
    }

    #[test]
    fn a_loss_of_cpus_is_followed_by_ten_searches() {
        let (mut search, now) = (StraySearch::default(), Instant::now());
        search.refresh(now, false);
        assert!(search.take());
        search.after_loss();
        let passes = (0..12).map(|_| {
            search.refresh(now, false);
            search.take()
        });
        assert_eq!(passes.filter(|searches| *searches).count(), 10);
    }
}
