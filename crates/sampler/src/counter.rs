//! Conversion of kernel counters to totals that never decrease. Pure functions.

/// Last value of one kernel counter of one cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LastValue(Option<u64>);

impl LastValue {
    /// The last value read.
    pub(crate) fn last(self) -> Option<u64> {
        self.0
    }

    /// Returns the increment since the last value. At the first value, or if the counter decreased,
    /// returns the whole value: a new cgroup has started at zero.
    pub(crate) fn advance(&mut self, now: u64) -> u64 {
        match self.0.replace(now) {
            Some(last) if now >= last => now - last,
            _ => now,
        }
    }
}

/// A counter that may decrease, or be read slightly ahead of another: only new maxima count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HighWater(Option<u64>);

impl HighWater {
    pub(crate) fn advance(&mut self, now: u64) -> u64 {
        let highest = self.0.unwrap_or(0);
        self.0 = Some(highest.max(now));
        now.saturating_sub(highest)
    }
}

/// Maximum lead between two counters of the same wait, nanoseconds: periods last at most one
/// second, and a throttle is counted when it ends.
const SLIP_NS: u64 = 1_000_000_000;

/// Ancestors' throttling in excess of the cgroup's own at the same time. The kubelet gives a pod
/// the sum of its containers' limits, so both quotas run out together, and each counter counts the
/// whole wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AncestorThrottle {
    /// Own throttling not yet matched by the ancestors' count.
    own_ns: u64,
}

impl AncestorThrottle {
    /// Returns the excess, from the increments of the own and the ancestors' count.
    pub(crate) fn advance(&mut self, own_ns: u64, ancestors_ns: u64) -> u64 {
        let own_ns = self.own_ns + own_ns;
        let both_ns = own_ns.min(ancestors_ns);
        self.own_ns = (own_ns - both_ns).min(SLIP_NS);
        ancestors_ns - both_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_total_is_the_sum_of_what_each_cgroup_counted(
            runs in proptest::collection::vec(proptest::collection::vec(0u64..1_000_000, 1..20), 1..10)
        ) {
            // Each run is a cgroup's increments. A new cgroup starts at zero. As in the kernel, it
            // is detected only if its first value is below the last value of the previous run.
            let mut counter = LastValue::default();
            let mut total = 0u64;
            let mut truth = 0u64;
            for run in &runs {
                let mut value = 0u64;
                let fresh = std::mem::take(&mut counter);
                prop_assert!(fresh == LastValue::default() || fresh.0.is_some());
                for step in run {
                    value += step;
                    total += counter.advance(value);
                }
                truth += value;
            }
            prop_assert_eq!(total, truth);
        }

        #[test]
        fn a_total_never_decreases(values in proptest::collection::vec(any::<u32>(), 0..50)) {
            let mut counter = LastValue::default();
            let mut last = None;
            for value in values.into_iter().map(u64::from) {
                let delta = counter.advance(value);
                match last {
                    Some(last) if value >= last => prop_assert_eq!(delta, value - last),
                    _ => prop_assert_eq!(delta, value),
                }
                last = Some(value);
            }
        }

        #[test]
        fn a_high_water_mark_increases_by_its_maximum(values in proptest::collection::vec(0u64..1000, 1..50)) {
            let mut counter = HighWater::default();
            let total: u64 = values.iter().map(|&value| counter.advance(value)).sum();
            prop_assert_eq!(total, *values.iter().max().unwrap());
        }
    }

    #[test]
    fn one_wait_that_two_quotas_count_is_not_counted_twice() {
        let mut ancestors = AncestorThrottle::default();
        let excess = [(80, 0), (80, 160), (0, 80), (80, 80), (80, 0), (0, 300)]
            .map(|(own, all)| ancestors.advance(own, all));
        assert_eq!(excess, [0, 0, 80, 0, 0, 220]);
    }

    #[test]
    fn old_own_throttling_hides_little_new_ancestor_throttling() {
        let mut ancestors = AncestorThrottle::default();
        assert_eq!(ancestors.advance(100 * SLIP_NS, 0), 0);
        assert_eq!(ancestors.advance(0, 3 * SLIP_NS), 2 * SLIP_NS);
    }
}
