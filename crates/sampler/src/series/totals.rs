//! Addition of counter increments to totals.

use snapshot::CfsTotals;

/// Adds to a total that is `None` until its counter was first read.
pub(crate) fn add(total: &mut Option<u64>, delta: Option<u64>) {
    if let Some(delta) = delta {
        *total = Some(total.unwrap_or(0) + delta);
    }
}

/// Adds other CFS totals, or the increments of a cgroup's CFS counters.
pub(crate) fn add_cfs(totals: &mut CfsTotals, other: &CfsTotals) {
    totals.periods += other.periods;
    totals.throttled_periods += other.throttled_periods;
    totals.throttled_ns += other.throttled_ns;
    add(&mut totals.burst_periods, other.burst_periods);
    add(&mut totals.burst_ns, other.burst_ns);
}
