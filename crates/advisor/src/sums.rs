//! Sums over the windows of one container.

use analysis::Window;

/// Time constant of the fading sums, seconds: equal to the window of the history.
const MEMORY_SECONDS: f64 = 6.0 * 3600.0;
/// Sums that fade over time.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) seconds: f64,
    /// CPU time, seconds.
    pub(crate) used: f64,
    pub(crate) periods: f64,
    /// Periods throttled by its own quota.
    pub(crate) throttled: f64,
    /// Periods throttled by its own quota, or by that of its pod if it is the only container.
    pub(crate) throttled_with_pod: f64,
    pub(crate) ancestor_throttled: f64,
    /// Time lost to other pods, core-seconds.
    pub(crate) lost: f64,
}

impl Sums {
    /// `own_throttled`: periods throttled by its own quota.
    pub(crate) fn add(&mut self, window: &Window, own_throttled: u64, ancestor_ns: u64) {
        let seconds = window.length_ns as f64 / 1e9;
        let keep = (-seconds / MEMORY_SECONDS).exp();
        let fade = |sum: &mut f64, gain: f64| *sum = *sum * keep + gain;
        fade(&mut self.seconds, seconds);
        fade(&mut self.used, window.used_ns as f64 / 1e9);
        fade(&mut self.periods, window.periods.unwrap_or(0) as f64);
        fade(&mut self.throttled, own_throttled as f64);
        fade(&mut self.throttled_with_pod, window.throttled_periods.unwrap_or(0) as f64);
        fade(&mut self.lost, window.lost_ns as f64 / 1e9);
        fade(&mut self.ancestor_throttled, ancestor_ns as f64 / 1e9);
    }

    /// Forgets the periods, which were those of another limit.
    pub(crate) fn forget_periods(&mut self) {
        (self.periods, self.throttled, self.throttled_with_pod) = (0.0, 0.0, 0.0);
    }
}

pub(crate) fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
