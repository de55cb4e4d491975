//! Share of throttled periods in each window.

use crate::snapshot::{CfsTotals, WINDOW_BUCKETS, WindowHistogram};

/// Totals at the start of the window.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WindowMark {
    periods: u64,
    throttled_periods: u64,
}

impl WindowMark {
    /// Excludes periods from before the agent first read the counters.
    pub(crate) fn skip(&mut self, periods: u64, throttled_periods: u64) {
        self.periods += periods;
        self.throttled_periods += throttled_periods;
    }

    /// Closes a window at these totals; windows without periods do not count.
    pub(crate) fn close(&mut self, totals: CfsTotals, histogram: &mut WindowHistogram) {
        let periods = totals.periods - self.periods;
        let throttled = totals.throttled_periods - self.throttled_periods;
        *self = Self { periods: totals.periods, throttled_periods: totals.throttled_periods };
        if periods > 0 {
            histogram.observe(throttled as f64 / periods as f64);
        }
    }
}

impl WindowHistogram {
    /// Counts one window with this share of throttled periods (0..=1); larger shares count as 1.
    pub fn observe(&mut self, share: f64) {
        let share = share.min(1.0);
        let bucket = WINDOW_BUCKETS.iter().position(|&bound| share <= bound).unwrap_or(WINDOW_BUCKETS.len() - 1);
        self.counts[bucket] += 1;
        self.sum += share;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }
}
