//! Conversion of kernel counters to increments that the kernel can have counted. Pure functions.
//!
//! A counter of a cgroup that existed before the agent begins at its first value, so that a restart
//! of the agent does not count it again. Later values follow three rules. A small step back is
//! ignored: only new maxima count. A larger one is a reset, which adds nothing. An increment that
//! the node's CPUs cannot have made is dropped, until [`AGREEING`] values in a row agree.

use std::time::{Duration, Instant};

/// What a counter counts, which bounds its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nanoseconds of all CPUs, which the kernel counts while they pass.
    CpuTime,
    /// Nanoseconds of all CPUs, which the kernel counts when a throttle ends. A quota that is small
    /// or in debt may throttle a CPU for minutes.
    Throttle,
    /// Periods of a quota: the shortest is 1 ms.
    Periods,
}

impl Unit {
    /// Maximum increment in this time on this number of CPUs.
    fn within(self, time: Duration, cpus: u32) -> u64 {
        let (nanos, cpus) = (time.as_nanos(), u128::from(cpus.max(1)));
        let most = match self {
            Self::CpuTime | Self::Throttle => nanos * cpus,
            Self::Periods => nanos / 1_000_000,
        };
        u64::try_from(most).unwrap_or(u64::MAX)
    }
}

/// A step back by less than the maximum increment in this time is ignored: per-CPU values are
/// summed while they change.
const JITTER: Duration = Duration::from_secs(1);

/// Time between the clock of a reading and the reading itself, at most, if the agent gets no CPU.
const LATENESS: Duration = Duration::from_secs(10);

/// Number of values in a row that must agree before they replace a value that contradicts them.
pub(crate) const AGREEING: u8 = 3;

/// What is known when a counter is read.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    /// A time before the cgroup's creation, if its creation was reported: its counters then began
    /// at zero. `None`: it may be older than the agent, and its counters begin at their first value.
    pub(crate) created_after: Option<Instant>,
    /// Number of CPUs that the node may have.
    pub(crate) cpus: u32,
    /// Number of dropped increments.
    pub(crate) implausible: &'a mut u64,
}

/// One kernel counter of one cgroup.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    /// The value up to which the increments were counted, and the time since which the next one was
    /// counted by the kernel; `None` before the first.
    counted: Option<(u64, Instant)>,
    /// The last value if it was not counted.
    other: Option<Box<Other>>,
}

/// A value that was not counted.
#[derive(Debug, Clone, Copy)]
struct Other {
    value: u64,
    read: Instant,
    /// Number of values in a row that were too high and agree; 0 after a small step back.
    agreeing: u8,
}

impl Counter {
    /// The value of the last reading; `None` before the first.
    pub(crate) fn last(&self) -> Option<u64> {
        let other = self.other.as_ref().map(|other| other.value);
        other.or(self.counted.map(|(value, _)| value))
    }

    /// Returns the increment since the last value that was counted. The first value of a counter that
    /// may be older than the agent is the base of the later ones.
    pub(crate) fn advance(&mut self, value: u64, unit: Unit, context: &mut Context<'_>) -> u64 {
        let zero = context.created_after.map(|created| (0, created));
        let Some((counted, since)) = self.counted.or(zero) else {
            return self.rebase(value, context);
        };
        let now = context.now;
        if value < counted {
            if counted - value >= unit.within(JITTER, context.cpus) {
                return self.rebase(value, context);
            }
            self.other = Some(Box::new(Other { value, read: now, agreeing: 0 }));
            return 0;
        }
        if is_plausible(value - counted, since, unit, context) {
            let since = if unit == Unit::Throttle { since } else { now };
            *self = Self { counted: Some((value, since)), other: None };
            return value - counted;
        }
        let agreeing = match self.other.as_deref() {
            Some(last) if last.agreeing > 0 && last.leads_to(value, unit, context) => {
                last.agreeing + 1
            }
            _ => 1,
        };
        *context.implausible += u64::from(agreeing == 1);
        if agreeing == AGREEING {
            return self.rebase(value, context);
        }
        self.other = Some(Box::new(Other { value, read: now, agreeing }));
        0
    }

    /// Makes a value the base of the later ones.
    fn rebase(&mut self, value: u64, context: &Context<'_>) -> u64 {
        *self = Self { counted: Some((value, context.now)), other: None };
        0
    }
}

impl Other {
    /// Whether the node can have counted from this value to that one.
    fn leads_to(self, value: u64, unit: Unit, context: &Context<'_>) -> bool {
        let increment = value.checked_sub(self.value);
        increment.is_some_and(|increment| is_plausible(increment, self.read, unit, context))
    }
}

/// Whether the node can have counted this much since then.
fn is_plausible(increment: u64, since: Instant, unit: Unit, context: &Context<'_>) -> bool {
    let time = context.now.saturating_duration_since(since) + LATENESS;
    increment <= unit.within(time, context.cpus)
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

    const SECOND_NS: u64 = 1_000_000_000;
    const CPUS: u32 = 4;

    /// A counter that is read once per second.
    struct Read {
        counter: Counter,
        unit: Unit,
        now: Instant,
        created_after: Option<Instant>,
        implausible: u64,
    }

    impl Read {
        fn created(unit: Unit) -> Self {
            let now = Instant::now();
            let counter = Counter::default();
            Self { counter, unit, now, created_after: Some(now), implausible: 0 }
        }

        fn existing() -> Self {
            Self { created_after: None, ..Self::created(Unit::CpuTime) }
        }

        fn advance(&mut self, value: u64) -> u64 {
            self.now += Duration::from_secs(1);
            let Self { counter, unit, now, created_after, implausible } = self;
            let (now, created_after) = (*now, *created_after);
            let mut context = Context { now, created_after, cpus: CPUS, implausible };
            counter.advance(value, *unit, &mut context)
        }

        /// Increments for these values, in seconds.
        fn seconds<const N: usize>(&mut self, values: [u64; N]) -> [u64; N] {
            values.map(|value| self.advance(value * SECOND_NS) / SECOND_NS)
        }
    }

    #[test]
    fn a_counter_that_existed_begins_at_its_first_value() {
        assert_eq!(Read::existing().seconds([2_600_000, 2_600_001, 2_600_005]), [0, 1, 4]);
        let mut created = Read::created(Unit::CpuTime);
        assert_eq!(created.seconds([3, 4]), [3, 1]);
    }

    #[test]
    fn a_small_step_back_is_ignored_and_a_large_one_is_a_reset() {
        let mut read = Read::existing();
        assert_eq!(read.seconds([100, 97, 99, 102]), [0, 0, 0, 2]);
        assert_eq!(read.counter.last(), Some(102 * SECOND_NS));
        assert_eq!(read.seconds([98, 99, 0, 3]), [0, 1, 0, 3]);
        assert_eq!(read.implausible, 0);
    }

    #[test]
    fn a_jump_that_no_cpus_can_have_made_is_dropped() {
        let mut read = Read::existing();
        assert_eq!(read.seconds([100, 1_700_000_000, 102, 103]), [0, 0, 2, 1]);
        assert_eq!(read.implausible, 1);
        // Values that contradict each other never become the base.
        assert_eq!(read.seconds([5000, 9000, 6000, 106]), [0, 0, 0, 3]);
        assert_eq!(read.implausible, 4);
        // Three that agree do.
        assert_eq!(read.seconds([5000, 5001, 5001, 5004]), [0, 0, 0, 3]);
        assert_eq!(read.implausible, 5);
    }

    #[test]
    fn a_late_reading_is_no_jump() {
        let mut read = Read::existing();
        read.advance(0);
        read.now += Duration::from_secs(3600);
        let hour = u64::from(CPUS) * 3600 * SECOND_NS;
        assert_eq!((read.advance(hour), read.implausible), (hour, 0));
    }

    #[test]
    fn a_long_throttle_counts_when_it_ends() {
        let mut read = Read::created(Unit::Throttle);
        let rises = [1; 300].map(|step| read.advance(step * SECOND_NS));
        assert_eq!(rises[0], SECOND_NS);
        assert_eq!(read.seconds([301, 302]), [300, 1]);
        assert_eq!(read.seconds([1_700_000_000, 303]), [0, 1]);
    }

    #[test]
    fn periods_are_bounded_by_the_shortest() {
        let mut read = Read::created(Unit::Periods);
        let increments = [900, 1900, 1_000_000, 1950].map(|value| read.advance(value));
        assert_eq!((increments, read.implausible), ([900, 1000, 0, 50], 1));
    }

    proptest! {
        #[test]
        fn growth_within_the_cpus_is_counted_exactly(
            base in 0..u64::MAX / 2,
            steps in proptest::collection::vec(0..=u64::from(CPUS) * SECOND_NS, 1..50),
        ) {
            let mut read = Read::existing();
            let (mut value, mut total) = (base, read.advance(base));
            for step in &steps {
                value += step;
                total += read.advance(value);
            }
            prop_assert_eq!((total, read.implausible), (steps.iter().sum(), 0));
        }

        #[test]
        fn no_sequence_of_values_counts_more_than_the_cpus_have(
            created in any::<bool>(),
            values in proptest::collection::vec(
                prop_oneof![any::<u64>(), 0..100 * SECOND_NS, Just(u64::MAX), Just(0)],
                0..60,
            ),
        ) {
            let mut read =
                if created { Read::created(Unit::CpuTime) } else { Read::existing() };
            let mut since_counted = Duration::ZERO;
            for value in values {
                since_counted += Duration::from_secs(1);
                let increment = read.advance(value);
                prop_assert!(increment <= Unit::CpuTime.within(since_counted + LATENESS, CPUS));
                if increment > 0 {
                    since_counted = Duration::ZERO;
                }
                prop_assert_eq!(read.counter.last(), Some(value));
            }
        }

        #[test]
        fn one_wrong_value_costs_nothing(
            steps in proptest::collection::vec(0..=u64::from(CPUS) * SECOND_NS, 2..30),
            at in any::<prop::sample::Index>(),
            wrong in 1_000_000 * SECOND_NS..u64::MAX,
        ) {
            let mut read = Read::existing();
            let (mut value, mut total) = (0, read.advance(0));
            let at = at.index(steps.len());
            for (number, step) in steps.iter().enumerate() {
                value += step;
                if number == at {
                    total += read.advance(wrong);
                }
                total += read.advance(value);
            }
            prop_assert_eq!((total, read.implausible), (value, 1));
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
