//! How often somebody else undoes what was written, and when that is too often to go on.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Within this time …
const WINDOW: Duration = Duration::from_secs(60);
/// … so many contested ticks are borne. A daemon-reload or a kubelet restart rewrites everything, but once.
const BORNE: usize = 5;

/// The contested ticks of the last minute.
#[derive(Debug, Default)]
pub(crate) struct Repairs(VecDeque<Instant>);

impl Repairs {
    /// Counts a tick in which something had to be repaired or a write did not hold; true when that is too often.
    pub(crate) fn contested(&mut self, now: Instant) -> bool {
        self.0.push_back(now);
        while self.0.front().is_some_and(|first| now.duration_since(*first) > WINDOW) {
            self.0.pop_front();
        }
        self.0.len() > BORNE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_in_a_minute_are_borne_and_more_are_not() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut repairs = Repairs::default();
        assert!((0..5).all(|second| !repairs.contested(at(second))));
        assert!(repairs.contested(at(5)));
    }

    #[test]
    fn old_ones_are_forgotten() {
        let start = Instant::now();
        let mut repairs = Repairs::default();
        assert!((0..100).all(|n| !repairs.contested(start + Duration::from_secs(13 * n))));
    }
}
