//! Counters of a container, and the rates between two readings.

use snapshot::ContainerRow;

use api::Rates;

/// Cumulative counters of one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    usage_ns: Option<u64>,
    throttled_periods: Option<u64>,
    /// Length of the periods, microseconds.
    period_usec: Option<u64>,
    throttled_own_ns: Option<u64>,
    throttled_ancestor_ns: Option<u64>,
    neighbor_ns: Option<u64>,
    own_ns: Option<u64>,
    system_ns: Option<u64>,
    smt_ns: Option<u64>,
    contention_ns: Option<u64>,
}

impl Counters {
    /// Reads the counters of a row. `traced` says whether waits are traced: then a container
    /// without an entry has not waited.
    pub(crate) fn of(row: &ContainerRow, traced: bool) -> Self {
        let waits = row.waits.as_deref().copied().or(traced.then(Default::default));
        Self {
            usage_ns: row.usage_ns,
            throttled_periods: row.cfs.map(|cfs| cfs.throttled_periods),
            period_usec: row.period_usec(),
            throttled_own_ns: row.cfs.map(|cfs| cfs.throttled_ns),
            throttled_ancestor_ns: row.throttled_ancestor_ns,
            neighbor_ns: waits.map(|waits| waits.neighbor_ns),
            own_ns: waits.map(|waits| waits.self_ns),
            system_ns: waits.map(|waits| waits.system_ns),
            smt_ns: waits.and_then(|waits| waits.smt).map(|smt| smt.other_ns),
            contention_ns: row.contention_lower_ns,
        }
    }

    /// Rates from `self` to `now`, `seconds` later.
    pub(crate) fn rates_until(&self, now: &Self, seconds: f64) -> Rates {
        let rate = |pick: fn(&Self) -> Option<u64>| {
            Some(pick(now)?.saturating_sub(pick(self)?) as f64 / 1e9 / seconds)
        };
        let throttled_periods = now.throttled_periods.zip(self.throttled_periods);
        let share = throttled_periods.zip(now.period_usec).map(|((now, before), usec)| {
            // A period that began before the frame may end in it.
            (now.saturating_sub(before) as f64 * usec as f64 / 1e6 / seconds).min(1.0)
        });
        Rates {
            usage_cores: rate(|counters| counters.usage_ns),
            throttled_share: share,
            throttled_own: rate(|counters| counters.throttled_own_ns),
            throttled_ancestor: rate(|counters| counters.throttled_ancestor_ns),
            neighbor: rate(|counters| counters.neighbor_ns),
            own: rate(|counters| counters.own_ns),
            system: rate(|counters| counters.system_ns),
            smt: rate(|counters| counters.smt_ns),
            contention: rate(|counters| counters.contention_ns),
        }
    }
}
