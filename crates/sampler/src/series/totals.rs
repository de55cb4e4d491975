//! Addition of counter increments to totals.

use snapshot::CfsTotals;

use crate::cgroup::Deltas;

/// Adds to a total that is `None` until its counter was first read.
pub(crate) fn add(total: &mut Option<u64>, delta: Option<u64>) {
    if let Some(delta) = delta {
        *total = Some(total.unwrap_or(0) + delta);
    }
}

/// Adds the increments of a cgroup's CFS counters.
pub(crate) fn add_deltas(totals: &mut CfsTotals, deltas: &Deltas) {
    totals.periods += deltas.periods.unwrap_or(0);
    totals.throttled_periods += deltas.throttled_periods.unwrap_or(0);
    totals.throttled_ns += deltas.throttled_ns.unwrap_or(0);
    add(&mut totals.burst_periods, deltas.burst_periods);
    add(&mut totals.burst_ns, deltas.burst_ns);
}

/// Adds other CFS totals.
pub(crate) fn add_cfs(totals: &mut CfsTotals, other: &CfsTotals) {
    totals.periods += other.periods;
    totals.throttled_periods += other.throttled_periods;
    totals.throttled_ns += other.throttled_ns;
    add(&mut totals.burst_periods, other.burst_periods);
    add(&mut totals.burst_ns, other.burst_ns);
}
