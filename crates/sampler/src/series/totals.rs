//! Addition of counter increments to totals.

use crate::cgroup::Gains;
use crate::snapshot::CfsTotals;

/// Adds to a total that is `None` until its counter was first read.
pub(crate) fn add(total: &mut Option<u64>, gain: Option<u64>) {
    if let Some(gain) = gain {
        *total = Some(total.unwrap_or(0) + gain);
    }
}

impl CfsTotals {
    pub(crate) fn gain(&mut self, gains: &Gains) {
        self.periods += gains.periods.unwrap_or(0);
        self.throttled_periods += gains.throttled_periods.unwrap_or(0);
        self.throttled_ns += gains.throttled_ns.unwrap_or(0);
        add(&mut self.burst_periods, gains.burst_periods);
        add(&mut self.burst_ns, gains.burst_ns);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.periods += other.periods;
        self.throttled_periods += other.throttled_periods;
        self.throttled_ns += other.throttled_ns;
        add(&mut self.burst_periods, other.burst_periods);
        add(&mut self.burst_ns, other.burst_ns);
    }
}
