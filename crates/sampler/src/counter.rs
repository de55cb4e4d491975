//! Kernel counters to totals that never go back. Pure.

/// The last value of one kernel counter of one cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark(Option<u64>);

impl Mark {
    /// It was read before.
    pub(crate) fn is_known(self) -> bool {
        self.0.is_some()
    }

    /// The value that was read last.
    pub(crate) fn last(self) -> Option<u64> {
        self.0
    }

    /// What the counter has gained since the last value; all of it at the first one, and when it went back: then the
    /// cgroup behind it is a new one that began at zero.
    pub(crate) fn advance(&mut self, now: u64) -> u64 {
        match self.0.replace(now) {
            Some(last) if now >= last => now - last,
            _ => now,
        }
    }
}

/// A value that is exact in the long run but may be read a little ahead: only its new maxima count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HighWater(u64);

impl HighWater {
    pub(crate) fn advance(&mut self, now: u64) -> u64 {
        let gained = now.saturating_sub(self.0);
        self.0 = self.0.max(now);
        gained
    }
}

/// How much one of two counters of one wait may be read ahead of the other: periods of a second at most, and a throttle
/// is credited when it ends.
const SLIP_NS: u64 = 1_000_000_000;

/// What ancestors deny beyond what the cgroup's own quota denies at the same time. The kubelet gives a pod the sum of its
/// containers' limits, so both run out together, and each counts the whole wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// Own, not yet met by the ancestors' count.
    own_ns: u64,
}

impl Beyond {
    /// From what the own count and the ancestors' have gained.
    pub(crate) fn advance(&mut self, own_ns: u64, ancestors_ns: u64) -> u64 {
        let own_ns = self.own_ns + own_ns;
        let both_ns = own_ns.min(ancestors_ns);
        self.own_ns = (own_ns - both_ns).min(SLIP_NS);
        ancestors_ns - both_ns
    }
}

/// Exact usage, split in the proportion of user and system time so that the parts add up to it and never go back: what
/// the kernel itself does where it counts in nanoseconds (kernel/sched/cputime.c `cputime_adjust`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuSplit {
    user_ns: u64,
    system_ns: u64,
}

impl CpuSplit {
    /// The usage that was split last.
    pub(crate) fn usage_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }

    /// (user, system) nanoseconds; their sum is `usage_ns`.
    pub(crate) fn split(&mut self, usage_ns: u64, user: u64, system: u64) -> (u64, u64) {
        if usage_ns < self.usage_ns() {
            *self = Self::default();
        }
        let whole = u128::from(user) + u128::from(system);
        let wanted = match whole {
            0 => 0,
            _ => u64::try_from(u128::from(usage_ns) * u128::from(system) / whole).unwrap_or(usage_ns),
        };
        self.system_ns = wanted.clamp(self.system_ns, usage_ns - self.user_ns);
        self.user_ns = usage_ns - self.system_ns;
        (self.user_ns, self.system_ns)
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
            // Each run is a cgroup's increments. A new cgroup starts at zero; it is told by the value going back, so
            // only a run whose first value is below the last one's end can be told, as in the kernel.
            let mut mark = Mark::default();
            let mut total = 0u64;
            let mut truth = 0u64;
            for run in &runs {
                let mut value = 0u64;
                let fresh = std::mem::take(&mut mark);
                prop_assert!(fresh == Mark::default() || fresh.0.is_some());
                for step in run {
                    value += step;
                    total += mark.advance(value);
                }
                truth += value;
            }
            prop_assert_eq!(total, truth);
        }

        #[test]
        fn whatever_a_counter_does_its_total_never_shrinks(values in proptest::collection::vec(any::<u32>(), 0..50)) {
            let mut mark = Mark::default();
            let mut last = None;
            for value in values.into_iter().map(u64::from) {
                let gained = mark.advance(value);
                match last {
                    Some(last) if value >= last => prop_assert_eq!(gained, value - last),
                    _ => prop_assert_eq!(gained, value),
                }
                last = Some(value);
            }
        }

        #[test]
        fn the_parts_of_usage_add_up_and_never_go_back(
            steps in proptest::collection::vec((0u64..2_000_000_000, 0u64..200, 0u64..200), 1..40)
        ) {
            let (mut split, mut usage, mut user, mut system) = (CpuSplit::default(), 0, 0, 0);
            let mut last = (0, 0);
            for (ns, user_ticks, system_ticks) in steps {
                usage += ns;
                user += user_ticks;
                system += system_ticks;
                let now = split.split(usage, user, system);
                prop_assert_eq!(now.0 + now.1, usage);
                prop_assert!(now.0 >= last.0 && now.1 >= last.1, "{:?} after {:?}", now, last);
                last = now;
            }
        }

        #[test]
        fn a_high_water_mark_gains_its_maximum(values in proptest::collection::vec(0u64..1000, 1..50)) {
            let mut mark = HighWater::default();
            let gained: u64 = values.iter().map(|&value| mark.advance(value)).sum();
            prop_assert_eq!(gained, *values.iter().max().unwrap());
        }
    }

    #[test]
    fn one_wait_that_two_quotas_count_is_not_counted_twice() {
        let mut beyond = Beyond::default();
        let gained =
            [(80, 0), (80, 160), (0, 80), (80, 80), (80, 0), (0, 300)].map(|(own, all)| beyond.advance(own, all));
        assert_eq!(gained, [0, 0, 80, 0, 0, 220]);
    }

    #[test]
    fn what_its_own_quota_denied_long_ago_hides_little_of_what_ancestors_deny_now() {
        let mut beyond = Beyond::default();
        assert_eq!(beyond.advance(100 * SLIP_NS, 0), 0);
        assert_eq!(beyond.advance(0, 3 * SLIP_NS), 2 * SLIP_NS);
    }

    #[test]
    fn a_usage_that_went_back_is_split_anew() {
        let mut split = CpuSplit::default();
        assert_eq!(split.split(1000, 1, 1), (500, 500));
        assert_eq!(split.split(100, 0, 1), (0, 100));
    }
}
