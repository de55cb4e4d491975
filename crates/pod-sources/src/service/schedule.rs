//! Schedule of the requests: the regular poll, requests for names in between, and the backoff while
//! a source is down. Pure: time and random numbers are arguments.

use std::time::{Duration, Instant};

use super::asks::{SPACING, SPACING_AT_ONCE};

/// First delay after a failure; doubles with each failure.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
/// Maximum delay between attempts on a failed source. Short, because the attempts are local and
/// cheap.
const BACKOFF_LONGEST: Duration = Duration::from_secs(15);
/// Maximum share of a delay that is randomly removed, so that the nodes of a fleet do not send
/// requests in step.
const JITTER: f64 = 0.2;

/// `delay` shortened by up to [`JITTER`]; `chance` is a random number in 0..1.
pub(super) fn jittered(delay: Duration, chance: f64) -> Duration {
    delay.mul_f64(1.0 - JITTER * chance)
}

/// Backoff of one source.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    pub(super) fn failed(&mut self, now: Instant, chance: f64) {
        let delay = BACKOFF_FIRST.saturating_mul(1 << self.failures.min(10)).min(BACKOFF_LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + jittered(delay, chance));
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Time before which the source is not tried.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

/// Schedule of the node's polls.
#[derive(Debug)]
pub(super) struct Schedule {
    interval: Duration,
    begun: Option<Instant>,
    regular: Instant,
}

impl Schedule {
    /// Creates the schedule; the first poll is due at once.
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, begun: None, regular: now }
    }

    /// Records the start of a request.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun = Some(now);
    }

    /// Records an answer.
    pub(super) fn answered(&mut self, now: Instant, chance: f64) {
        self.regular = now + jittered(self.interval, chance);
    }

    /// Records that no source answered; the next attempt is at `retry`.
    pub(super) fn failed(&mut self, retry: Instant) {
        self.regular = retry;
    }

    /// Time of the next request. Requests for names are at least [`SPACING`] apart; first requests
    /// for pods whose spec is needed `at_once` come sooner. `open` is false while all sources are
    /// down: such requests then wait for the backoff.
    pub(super) fn due(
        &self,
        ask: Option<Instant>,
        at_once: Option<Instant>,
        open: bool,
    ) -> Instant {
        let spaced = |at: Instant, spacing| self.begun.map_or(at, |begun| at.max(begun + spacing));
        let asks =
            [ask.map(|at| spaced(at, SPACING)), at_once.map(|at| spaced(at, SPACING_AT_ONCE))];
        asks.into_iter().flatten().filter(|_| open).fold(self.regular, Instant::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn jitter_only_shortens_and_by_a_fifth_at_most() {
        assert_eq!(jittered(INTERVAL, 0.0), INTERVAL);
        assert_eq!(jittered(INTERVAL, 1.0), secs(24));
    }

    #[test]
    fn polls_are_regular_without_requests_for_names() {
        let now = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, now);
        assert_eq!(schedule.due(None, None, true), now);
        schedule.begin(now);
        schedule.answered(now, 0.5);
        assert_eq!(schedule.due(None, None, true), now + secs(27));
    }

    #[test]
    fn requests_for_names_come_first_but_half_a_second_apart() {
        let now = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, now);
        schedule.begin(now);
        schedule.answered(now, 0.0);
        let ask = |millis| Some(now + Duration::from_millis(millis));
        assert_eq!(schedule.due(ask(100), None, true), now + SPACING);
        assert_eq!(schedule.due(ask(900), None, true), now + Duration::from_millis(900));
        assert_eq!(schedule.due(Some(now + secs(40)), None, true), now + INTERVAL);
    }

    #[test]
    fn requests_for_names_wait_while_every_source_is_down() {
        let now = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, now);
        schedule.begin(now);
        schedule.failed(now + secs(4));
        assert_eq!(schedule.due(Some(now), Some(now), false), now + secs(4));
        assert_eq!(schedule.due(Some(now), None, true), now + SPACING);
    }

    #[test]
    fn a_pod_that_is_created_does_not_wait_for_half_a_second() {
        let now = Instant::now();
        let mut schedule = Schedule::new(INTERVAL, now);
        schedule.begin(now);
        schedule.answered(now, 0.0);
        let at = Some(now + Duration::from_millis(10));
        assert_eq!(schedule.due(at, at, true), now + SPACING_AT_ONCE);
        let later = Some(now + Duration::from_millis(80));
        assert_eq!(schedule.due(at, later, true), now + Duration::from_millis(80));
    }

    #[test]
    fn backoff_doubles_up_to_a_bound_and_resets_after_success() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        assert!(backoff.is_over(now));
        let mut delays = Vec::new();
        for _ in 0..40 {
            backoff.failed(now, 0.0);
            delays.push(backoff.until().unwrap() - now);
        }
        assert_eq!(delays[..5], [secs(1), secs(2), secs(4), secs(8), secs(15)]);
        assert!(delays[5..].iter().all(|delay| *delay == BACKOFF_LONGEST));
        assert!(!backoff.is_over(now) && backoff.is_over(now + BACKOFF_LONGEST));
        backoff.succeeded();
        assert!(backoff.is_over(now));
        backoff.failed(now, 1.0);
        assert_eq!(backoff.until(), Some(now + Duration::from_millis(800)));
    }
}
