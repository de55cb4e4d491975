//! Share of throttled periods in each window.

use snapshot::{CfsTotals, WindowHistogram};

/// Totals at the start of the window.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WindowStart {
    periods: u64,
    throttled_periods: u64,
}

impl WindowStart {
    /// Excludes periods from before the agent first read the counters.
    pub(crate) fn skip(&mut self, periods: u64, throttled_periods: u64) {
        self.periods += periods;
        self.throttled_periods += throttled_periods;
    }

    /// Closes a window at these totals; one without periods does not count. Returns whether it did.
    pub(crate) fn close(&mut self, totals: CfsTotals, histogram: &mut WindowHistogram) -> bool {
        let periods = totals.periods - self.periods;
        let throttled = totals.throttled_periods - self.throttled_periods;
        *self = Self { periods: totals.periods, throttled_periods: totals.throttled_periods };
        if periods > 0 {
            histogram.observe(throttled as f64 / periods as f64);
        }
        periods > 0
    }
}
