//! Too much trouble in a minute, and the pauses that follow it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time window in which trouble counts.
const WINDOW: Duration = Duration::from_secs(60);
/// Most trouble within the window that is tolerated. A daemon-reload or a kubelet restart rewrites
/// every cgroup, over several ticks, but each cgroup only once.
const BORNE: usize = 5;
/// Once this time has passed since the end of a pause, the next pause has the first length again.
const FORGIVEN: Duration = Duration::from_secs(30 * 60);

/// The times of one kind of trouble within the last minute.
#[derive(Debug, Default)]
pub struct Trouble(VecDeque<Instant>);

impl Trouble {
    /// Counts one.
    pub fn note(&mut self, now: Instant) {
        self.0.push_back(now);
    }

    /// Whether any is left within the last minute.
    pub fn is_recent(&mut self, now: Instant) -> bool {
        self.forget(now) > 0
    }

    /// Whether there are too many within the last minute.
    pub fn is_too_often(&mut self, now: Instant) -> bool {
        self.forget(now) > BORNE
    }

    /// Drops the times before the window and returns the number of the others.
    fn forget(&mut self, now: Instant) -> usize {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) > WINDOW;
        while self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0.len()
    }
}

/// Lengths of pauses: the first one, doubled for each further attempt up to the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PauseLengths {
    /// Length of the first pause.
    pub first: Duration,
    /// Length of the longest pause.
    pub longest: Duration,
}

/// A pause from writing, with the number of pauses before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    since: Instant,
    attempt: u32,
    lengths: PauseLengths,
}

impl Pause {
    /// A pause that begins now, after an earlier one.
    #[must_use]
    pub fn after(earlier: Option<Self>, lengths: PauseLengths, now: Instant) -> Self {
        let earlier = earlier.filter(|earlier| !earlier.is_forgiven(now));
        let attempt = earlier.map_or(0, |earlier| earlier.attempt.saturating_add(1));
        Self { since: now, attempt, lengths }
    }

    /// Length of the pause in minutes.
    #[must_use]
    pub fn minutes(&self) -> u64 {
        self.length().as_secs() / 60
    }

    /// End of the pause: time of the next attempt.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.since + self.length()
    }

    /// Whether the pause lasts.
    #[must_use]
    pub fn lasts(&self, now: Instant) -> bool {
        now < self.until()
    }

    /// Whether the next pause has the first length again.
    #[must_use]
    pub fn is_forgiven(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.until()) >= FORGIVEN
    }

    fn length(&self) -> Duration {
        self.lengths.first.saturating_mul(1 << self.attempt.min(8)).min(self.lengths.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_five_in_a_minute_are_too_many() {
        let (mut trouble, start) = (Trouble::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        for second in 0..6 {
            assert!(!trouble.is_too_often(at(second)), "second {second}");
            trouble.note(at(second));
        }
        assert!(trouble.is_too_often(at(60)));
        assert!(!trouble.is_too_often(at(61)));
        assert!(trouble.is_recent(at(65)) && !trouble.is_recent(at(66)));
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_are_forgiven() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let lengths = PauseLengths { first: minutes(1), longest: minutes(30) };
        let (mut now, mut pause) = (Instant::now(), None);
        let mut seen = Vec::new();
        for _ in 0..7 {
            let next = Pause::after(pause, lengths, now);
            assert!(next.lasts(now) && !next.lasts(next.until()));
            seen.push(next.minutes());
            (now, pause) = (next.until(), Some(next));
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(Pause::after(pause, lengths, now + FORGIVEN).minutes(), 1);
        let fixed = PauseLengths { first: minutes(10), longest: minutes(10) };
        assert_eq!(Pause::after(pause, fixed, now).minutes(), 10);
    }
}
