//! The work of a window as it would have run without a quota, per period.

use crate::window::DEFAULT_PERIOD_NS;

/// Work below this counts as none, nanoseconds.
pub(crate) const EPSILON_NS: f64 = 1e3;

/// Shortest and longest period that is replayed, nanoseconds. The kernel accepts 1 ms to 1 s, but a
/// usage trace cannot resolve less than 10 ms.
const PERIODS_NS: (u64, u64) = (10_000_000, 1_000_000_000);

/// Maximum length of the pattern, nanoseconds; a longer window repeats a shorter pattern.
const MAX_PATTERN_NS: u64 = 1_600_000_000;

/// A window divided into periods.
///
/// The period is adjusted slightly, so that a whole number of periods fits the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slots {
    /// Number of periods in the pattern.
    pub(crate) pattern: u32,
    /// Number of repetitions of the pattern in the window.
    pub(crate) repeats: u32,
    /// Length of one period, nanoseconds.
    pub(crate) length_ns: f64,
    /// Whether the container's own period is shorter than the shortest period that is replayed.
    pub(crate) is_coarse: bool,
}

impl Slots {
    pub(crate) fn of(window_ns: u64, period_ns: u64) -> Self {
        let own_ns = if period_ns == 0 { DEFAULT_PERIOD_NS } else { period_ns };
        let period_ns = own_ns.clamp(PERIODS_NS.0, PERIODS_NS.1);
        let repeats = window_ns.div_ceil(MAX_PATTERN_NS).max(1);
        let pattern_ns = window_ns as f64 / repeats as f64;
        let pattern = (pattern_ns / period_ns as f64).round().max(1.0);
        let length_ns = (pattern_ns / pattern).max(1.0);
        Self {
            pattern: pattern as u32,
            repeats: repeats as u32,
            length_ns,
            is_coarse: own_ns < period_ns,
        }
    }

    /// Number of periods in the window.
    pub(crate) fn count(self) -> u32 {
        self.pattern * self.repeats
    }

    /// Length of the pattern, nanoseconds.
    pub(crate) fn pattern_ns(self) -> f64 {
        f64::from(self.pattern) * self.length_ns
    }
}

/// Precision of the arrival times of a window's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A usage trace resembles the window, or there was no work.
    Traced,
    /// Only the counters of the whole window are known.
    Unknown,
    /// A quota moved the work, and may have hidden some.
    Throttled,
}

/// A window's work as a fluid.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Demand {
    /// Arriving CPU time per period of the pattern, nanoseconds.
    work_ns: Box<[f64]>,
    /// Number of threads that run in parallel while there is work.
    pub(crate) parallelism: f64,
    pub(crate) slots: Slots,
    /// Maximum of arriving CPU time in a period, nanoseconds.
    pub(crate) most_ns: f64,
    /// CPU time of the whole window, nanoseconds.
    pub(crate) total_ns: f64,
    /// Number of periods the kernel would count without throttling, starting with a stopped timer.
    periods: u32,
    pub(crate) arrival: Arrival,
}

impl Demand {
    /// A demand with the given work per period of the pattern.
    pub(crate) fn new(work_ns: Box<[f64]>, parallelism: f64, slots: Slots) -> Self {
        let most_ns = work_ns.iter().copied().fold(0.0, f64::max);
        let arrival = if slots.is_coarse && most_ns > EPSILON_NS {
            Arrival::Unknown
        } else {
            Arrival::Traced
        };
        let total_ns = work_ns.iter().sum::<f64>() * f64::from(slots.repeats);
        let mut demand =
            Self { work_ns, parallelism, slots, most_ns, total_ns, periods: 0, arrival };
        // After a period with work the timer fires once more, finds nothing to do, and stops.
        let is_counted =
            |slot: &u32| demand.is_active(*slot) || *slot > 0 && demand.is_active(*slot - 1);
        demand.periods = (0..slots.count()).filter(is_counted).count() as u32;
        demand
    }

    /// A demand without new work.
    pub(crate) fn none(slots: Slots) -> Self {
        let work_ns = Box::default();
        Self {
            work_ns,
            parallelism: 1.0,
            slots,
            most_ns: 0.0,
            total_ns: 0.0,
            periods: 0,
            arrival: Arrival::Traced,
        }
    }

    /// A demand spread evenly over all periods.
    pub(crate) fn steady(work_ns: f64, parallelism: f64, slots: Slots) -> Self {
        let each_ns = work_ns / f64::from(slots.count());
        Self::new(vec![each_ns; slots.pattern as usize].into(), parallelism, slots)
    }

    /// A demand that arrives as equal bursts at equal distances, the first one starting at this phase
    /// (0..1) of the first period.
    pub(crate) fn bursts(
        work_ns: f64,
        parallelism: f64,
        slots: Slots,
        phase: f64,
        count: u32,
    ) -> Self {
        let mut periods = vec![0.0; slots.pattern as usize];
        let each_ns = work_ns / f64::from(slots.repeats) / f64::from(count);
        for burst in 0..count {
            let start = phase + f64::from(burst * slots.pattern) / f64::from(count);
            let (mut left_ns, mut time_ns) = (each_ns, (1.0 - start.fract()) * slots.length_ns);
            for work_ns in periods.iter_mut().skip(start as usize) {
                let part_ns = left_ns.min(parallelism * time_ns);
                *work_ns += part_ns;
                left_ns -= part_ns;
                time_ns = slots.length_ns;
            }
            if let Some(last) = periods.last_mut() {
                *last += left_ns;
            }
        }
        Self::new(periods.into(), parallelism, slots)
    }

    /// Arriving work of one period, nanoseconds.
    pub(crate) fn work_ns(&self, slot: u32) -> f64 {
        self.work_ns.get((slot % self.slots.pattern) as usize).copied().unwrap_or(0.0)
    }

    /// Whether work arrives in this period.
    pub(crate) fn is_active(&self, slot: u32) -> bool {
        self.work_ns(slot) > EPSILON_NS
    }

    /// Number of periods the kernel counts without throttling. `is_timer_on`: whether the previous
    /// period had work.
    pub(crate) fn periods(&self, is_timer_on: bool) -> u32 {
        self.periods + u32::from(is_timer_on && !self.is_active(0))
    }
}
