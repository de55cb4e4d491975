//! The one-second windows of the counters.

use std::time::{Duration, Instant};

/// Length of a window, unless ticks are longer.
pub const WINDOW: Duration = Duration::from_secs(1);

/// Whether a tick ends the window that began at `began`: after one second, or at each tick if ticks
/// are longer.
#[must_use]
pub fn ends_window(began: Instant, tick: Instant, interval: Duration) -> bool {
    // Half a tick of tolerance: a tick that comes slightly early must not merge two windows.
    tick.saturating_duration_since(began) + interval.min(WINDOW) / 2 >= WINDOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "only a clock makes an instant")]
    fn a_window_ends_after_a_second_less_half_a_tick() {
        let ms = Duration::from_millis;
        let ends = |passed, interval| {
            let began = Instant::now();
            ends_window(began, began + ms(passed), ms(interval))
        };
        assert!(!ends(949, 100) && ends(950, 100));
        assert!(!ends(499, 1000) && ends(500, 1000));
        assert!(!ends(499, 5000) && ends(5000, 5000), "the tolerance is half a window at most");
    }
}
