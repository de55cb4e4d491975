//! What a window would have liked to run, period by period.

use crate::window::PERIOD_NS;

/// Periods of a second.
pub(crate) const SECOND_SLOTS: usize = 10;

/// Work that counts as nothing, nanoseconds.
pub(crate) const EPSILON_NS: f64 = 1e3;

/// A window's work as a fluid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Demand {
    /// CPU time that comes up in each period of a second, nanoseconds.
    work_ns: [f64; SECOND_SLOTS],
    /// Threads that run at once, while any does.
    pub(crate) parallelism: f64,
    /// Periods in the window: a window that is longer than a second repeats it.
    pub(crate) slots: u32,
    /// The most that comes up in a period, nanoseconds.
    pub(crate) most_ns: f64,
    /// Periods that the kernel would count if nothing were put off, and the timer stood still before.
    periods: u32,
}

impl Demand {
    /// So much work in each period of a second.
    pub(crate) fn new(work_ns: [f64; SECOND_SLOTS], parallelism: f64, slots: u32) -> Self {
        let most_ns = work_ns.iter().copied().fold(0.0, f64::max);
        let mut demand = Self { work_ns, parallelism, slots, most_ns, periods: 0 };
        // After a period with work the timer fires once with nothing to do, and stops.
        let is_counted = |slot: &u32| demand.is_active(*slot) || *slot > 0 && demand.is_active(*slot - 1);
        demand.periods = (0..slots).filter(is_counted).count() as u32;
        demand
    }

    /// No new work.
    pub(crate) fn none(slots: u32) -> Self {
        Self::new([0.0; SECOND_SLOTS], 1.0, slots)
    }

    /// The same in every period.
    pub(crate) fn steady(work_ns: f64, parallelism: f64, slots: u32) -> Self {
        Self::new([work_ns / f64::from(slots); SECOND_SLOTS], parallelism, slots)
    }

    /// All at once, from this share of the first period on.
    pub(crate) fn burst(work_ns: f64, parallelism: f64, slots: u32, phase: f64) -> Self {
        let mut periods = [0.0; SECOND_SLOTS];
        // A longer window's burst would come back every second.
        let (mut left_ns, mut time_ns) = (work_ns / f64::from(slots.div_ceil(10)), (1.0 - phase) * PERIOD_NS);
        for work_ns in &mut periods {
            *work_ns = left_ns.min(parallelism * time_ns);
            left_ns -= *work_ns;
            time_ns = PERIOD_NS;
        }
        periods[SECOND_SLOTS - 1] += left_ns;
        Self::new(periods, parallelism, slots)
    }

    /// What comes up in one period, nanoseconds.
    pub(crate) fn work_ns(&self, slot: u32) -> f64 {
        self.work_ns[slot as usize % SECOND_SLOTS]
    }

    /// Something comes up in this period.
    pub(crate) fn is_active(&self, slot: u32) -> bool {
        self.work_ns(slot) > EPSILON_NS
    }

    /// Periods that the kernel counts where nothing is put off, after a period that had work or had none.
    pub(crate) fn periods(&self, is_timer_on: bool) -> u32 {
        self.periods + u32::from(is_timer_on && !self.is_active(0))
    }
}
