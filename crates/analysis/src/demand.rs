//! The work of a window as it would have run without a quota, period by period.

use crate::window::DEFAULT_PERIOD_NS;

/// Work that counts as nothing, nanoseconds.
pub(crate) const EPSILON_NS: f64 = 1e3;

/// Shortest and longest period that is replayed, nanoseconds: the kernel takes 1 ms to 1 s, but a usage trace tells
/// nothing below 10 ms.
const PERIODS_NS: (u64, u64) = (10_000_000, 1_000_000_000);

/// Longest part of a window that has a pattern of its own, nanoseconds; a longer window repeats a shorter pattern.
const LONGEST_PATTERN_NS: u64 = 1_600_000_000;

/// A window cut into periods.
///
/// A period is made a little longer or shorter than the container's own, so that a whole number fits the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slots {
    /// Periods of the pattern.
    pub(crate) pattern: u32,
    /// Number of repetitions in the window.
    pub(crate) repeats: u32,
    /// Length of one period, nanoseconds.
    pub(crate) length_ns: f64,
    /// The container's own period is shorter than the shortest that is replayed.
    pub(crate) is_coarse: bool,
}

impl Slots {
    pub(crate) fn of(window_ns: u64, period_ns: u64) -> Self {
        let own_ns = if period_ns == 0 { DEFAULT_PERIOD_NS } else { period_ns };
        let period_ns = own_ns.clamp(PERIODS_NS.0, PERIODS_NS.1);
        let repeats = window_ns.div_ceil(LONGEST_PATTERN_NS).max(1);
        let pattern_ns = window_ns as f64 / repeats as f64;
        let pattern = (pattern_ns / period_ns as f64).round().max(1.0);
        let length_ns = (pattern_ns / pattern).max(1.0);
        Self { pattern: pattern as u32, repeats: repeats as u32, length_ns, is_coarse: own_ns < period_ns }
    }

    /// Periods of the window.
    pub(crate) fn count(self) -> u32 {
        self.pattern * self.repeats
    }

    /// Length of the pattern, nanoseconds.
    pub(crate) fn pattern_ns(self) -> f64 {
        f64::from(self.pattern) * self.length_ns
    }
}

/// How precisely the arrival times of a window's work are known.
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
    /// CPU time that comes up in each period of the pattern, nanoseconds.
    work_ns: Box<[f64]>,
    /// Threads that run at once, while any does.
    pub(crate) parallelism: f64,
    pub(crate) slots: Slots,
    /// The most that comes up in a period, nanoseconds.
    pub(crate) most_ns: f64,
    /// CPU time of the whole window, nanoseconds.
    pub(crate) total_ns: f64,
    /// Periods that the kernel would count if nothing were throttled, and the timer stood still before.
    periods: u32,
    pub(crate) arrival: Arrival,
}

impl Demand {
    /// As much work in each period of the pattern.
    pub(crate) fn new(work_ns: Box<[f64]>, parallelism: f64, slots: Slots) -> Self {
        let most_ns = work_ns.iter().copied().fold(0.0, f64::max);
        let arrival = if slots.is_coarse && most_ns > EPSILON_NS { Arrival::Unknown } else { Arrival::Traced };
        let total_ns = work_ns.iter().sum::<f64>() * f64::from(slots.repeats);
        let mut demand = Self { work_ns, parallelism, slots, most_ns, total_ns, periods: 0, arrival };
        // After a period with work the timer fires once with nothing to do, and stops.
        let is_counted = |slot: &u32| demand.is_active(*slot) || *slot > 0 && demand.is_active(*slot - 1);
        demand.periods = (0..slots.count()).filter(is_counted).count() as u32;
        demand
    }

    /// No new work.
    pub(crate) fn none(slots: Slots) -> Self {
        let work_ns = Box::default();
        Self { work_ns, parallelism: 1.0, slots, most_ns: 0.0, total_ns: 0.0, periods: 0, arrival: Arrival::Traced }
    }

    /// The same in every period.
    pub(crate) fn steady(work_ns: f64, parallelism: f64, slots: Slots) -> Self {
        let each_ns = work_ns / f64::from(slots.count());
        Self::new(vec![each_ns; slots.pattern as usize].into(), parallelism, slots)
    }

    /// All at once, from this share of the first period on.
    pub(crate) fn burst(work_ns: f64, parallelism: f64, slots: Slots, phase: f64) -> Self {
        let mut periods = vec![0.0; slots.pattern as usize];
        let (mut left_ns, mut time_ns) = (work_ns / f64::from(slots.repeats), (1.0 - phase) * slots.length_ns);
        for work_ns in &mut periods {
            *work_ns = left_ns.min(parallelism * time_ns);
            left_ns -= *work_ns;
            time_ns = slots.length_ns;
        }
        if let Some(last) = periods.last_mut() {
            *last += left_ns;
        }
        Self::new(periods.into(), parallelism, slots)
    }

    /// What comes up in one period, nanoseconds.
    pub(crate) fn work_ns(&self, slot: u32) -> f64 {
        self.work_ns.get((slot % self.slots.pattern) as usize).copied().unwrap_or(0.0)
    }

    /// Whether something comes up in this period.
    pub(crate) fn is_active(&self, slot: u32) -> bool {
        self.work_ns(slot) > EPSILON_NS
    }

    /// Periods that the kernel counts where nothing is throttled, after a period that had work or had none.
    pub(crate) fn periods(&self, is_timer_on: bool) -> u32 {
        self.periods + u32::from(is_timer_on && !self.is_active(0))
    }
}
