//! A throttle that stands. Pure functions.
//!
//! The kernel counts the periods of a throttle as they pass, but its time when it ends. A run queue
//! whose runtime is far below zero, after a long call of the kernel, stays throttled until later
//! periods have paid the debt. If nothing runs over several periods, each of them is throttled and
//! no throttle ends, then a run queue is throttled all the time. This time is counted at once, and
//! taken off what the kernel counts later. Other run queues may be throttled too, so it is a lower
//! bound.

use std::time::Duration;

use snapshot::CfsTotals;

use crate::reading::Value;

/// Minimum number of periods. From Linux 6.18 a period also counts as throttled if the quota ends
/// with the last work before a sleep.
const PERIODS: u64 = 2;

/// Throttled time that the kernel has not counted yet.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Since the throttle was first seen to stand: throttled periods, time, and the part of it that
    /// was counted.
    periods: u64,
    time: Duration,
    counted: Duration,
    /// Counted of this and of earlier throttles, and not by the kernel.
    ahead_ns: u64,
}

impl Standing {
    /// Returns the throttled time to count, from the increments of the counters `elapsed` after the
    /// previous reading.
    pub(super) fn advance(
        &mut self,
        cfs: &CfsTotals,
        usage_ns: Value<u64>,
        period: Duration,
        elapsed: Duration,
    ) -> u64 {
        if cfs.throttled_ns > 0 || usage_ns != Value::Read(0) {
            *self = Self { ahead_ns: self.ahead_ns, ..Self::default() };
            let known_ns = self.ahead_ns.min(cfs.throttled_ns);
            self.ahead_ns -= known_ns;
            return cfs.throttled_ns - known_ns;
        }
        self.periods = self.periods.saturating_add(cfs.throttled_periods);
        self.time += elapsed;
        let throttled = period.saturating_mul(u32::try_from(self.periods).unwrap_or(u32::MAX));
        if throttled.saturating_add(period) < self.time {
            *self = Self { ahead_ns: self.ahead_ns, ..Self::default() };
            return 0;
        }
        if self.periods < PERIODS {
            return 0;
        }
        let stood = throttled.min(self.time);
        let gained = stood.saturating_sub(self.counted);
        self.counted = self.counted.max(stood);
        let gained_ns = u64::try_from(gained.as_nanos()).unwrap_or(u64::MAX);
        self.ahead_ns = self.ahead_ns.saturating_add(gained_ns);
        gained_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(100);
    const MS: u64 = 1_000_000;

    /// Time that is counted for readings once per second: milliseconds of usage, throttled periods
    /// and throttled milliseconds.
    fn counted<const N: usize>(readings: [(u64, u64, u64); N]) -> [u64; N] {
        let mut standing = Standing::default();
        readings.map(|(usage_ms, throttled_periods, throttled_ms)| {
            let cfs = CfsTotals {
                throttled_periods,
                throttled_ns: throttled_ms * MS,
                ..CfsTotals::default()
            };
            let usage_ns = Value::Read(usage_ms * MS);
            standing.advance(&cfs, usage_ns, PERIOD, Duration::from_secs(1)) / MS
        })
    }

    /// As Linux 6.18 counts a read of 800 MB from /dev/urandom with a limit of 20 ms per 100 ms.
    #[test]
    fn a_debt_counts_while_it_stands_and_not_again_when_it_ends() {
        let found = counted([
            (990, 10, 0),
            (564, 10, 0),
            (0, 11, 0),
            (0, 10, 0),
            (0, 9, 0),
            (20, 7, 3_900),
            (20, 10, 800),
        ]);
        assert_eq!(found, [0, 0, 1_000, 1_000, 1_000, 900, 800]);
    }

    #[test]
    fn a_throttled_period_in_which_nothing_waits_is_no_throttle() {
        assert_eq!(counted([(20, 1, 0), (0, 1, 0), (0, 0, 0), (20, 1, 70)]), [0, 0, 0, 70]);
    }

    #[test]
    fn periods_are_longer_than_the_time_between_readings() {
        let mut standing = Standing::default();
        let of = |throttled_periods| CfsTotals { throttled_periods, ..CfsTotals::default() };
        let found = [0, 0, 1, 0, 1, 0, 1].map(|periods| {
            let ms = Duration::from_millis(50);
            standing.advance(&of(periods), Value::Read(0), PERIOD, ms) / MS
        });
        assert_eq!(found, [0, 0, 0, 0, 200, 0, 100]);
    }

    #[test]
    fn an_idle_time_before_a_throttle_is_no_throttle() {
        assert_eq!(counted([(0, 0, 0), (0, 0, 0), (0, 10, 0), (0, 10, 0)]), [0, 0, 1_000, 1_000]);
    }

    #[test]
    fn no_time_is_counted_that_the_kernel_does_not_count() {
        // Ended by a higher quota: the last period was not throttled to its end.
        assert_eq!(counted([(0, 10, 0), (30, 0, 960), (30, 1, 50)]), [1_000, 0, 10]);
    }

    #[test]
    fn without_the_usage_nothing_stands() {
        let cfs = CfsTotals { throttled_periods: 10, ..CfsTotals::default() };
        for usage_ns in [Value::NotRead, Value::Failed, Value::Absent] {
            let second = Duration::from_secs(1);
            assert_eq!(Standing::default().advance(&cfs, usage_ns, PERIOD, second), 0);
        }
    }

    #[test]
    fn a_count_that_no_period_has_is_bounded_by_the_time() {
        let cfs = CfsTotals { throttled_periods: u64::MAX, ..CfsTotals::default() };
        let second = Duration::from_secs(1);
        let mut standing = Standing::default();
        let found = [0; 2].map(|_| standing.advance(&cfs, Value::Read(0), PERIOD, second) / MS);
        assert_eq!(found, [1_000, 1_000]);
    }
}
