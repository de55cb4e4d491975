//! Windows of the tests.

use analysis::Window;

/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// A window of one second whose counters, if there are any, show no throttling.
pub(crate) fn window(used_ms: u64, periods: Option<u64>) -> Window {
    Window {
        used_ns: used_ms * MS,
        periods,
        throttled_periods: periods.map(|_| 0),
        length_ns: 1000 * MS,
        ..Window::default()
    }
}
