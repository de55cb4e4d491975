//! One second of one container.

/// The CFS period of Kubernetes, nanoseconds.
pub(crate) const PERIOD_NS: f64 = 100e6;

/// What `cpu.stat` gained in one second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// CPU time used, nanoseconds.
    pub used_ns: u64,
    /// CPU time denied by a quota (`throttled_usec`), nanoseconds, summed over CPUs.
    pub denied_ns: u64,
    /// `nr_periods`; `None` without a quota, when the kernel counts none.
    pub periods: Option<u64>,
    /// `nr_throttled`; `None` without a quota.
    pub throttled_periods: Option<u64>,
    /// Length, nanoseconds.
    pub length_ns: u64,
}

/// How a window's work arrives, as far as its counters tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shape {
    /// CPU time wanted, nanoseconds.
    pub(crate) work_ns: f64,
    /// Threads that run at once, while any does.
    pub(crate) parallelism: f64,
    /// All at once, with an idle gap after it; else the same in every period.
    pub(crate) is_burst: bool,
    /// Periods in the window.
    pub(crate) slots: u32,
}

impl Window {
    /// Some demand was denied, so that what was used is a lower bound of what is wanted.
    #[must_use]
    pub fn is_censored(&self) -> bool {
        self.denied_ns > 0 || self.throttled_periods.is_some_and(|periods| periods > 0)
    }

    /// `None` when nothing ran.
    ///
    /// The timer of the quota fires once more after the last period with work and then stops (`do_sched_cfs_period_timer`
    /// in kernel/sched/fair.c), so fewer periods than the window holds mean a gap, and one of them was idle. The work
    /// before a gap is taken as one burst: two bursts in a window are overrated, never underrated.
    pub(crate) fn shape(&self) -> Option<Shape> {
        let (used, denied) = (self.used_ns as f64, self.denied_ns as f64);
        if self.used_ns == 0 && self.denied_ns == 0 {
            return None;
        }
        let slots = ((self.length_ns as f64 / PERIOD_NS).round() as u32).max(1);
        let counted = self.periods.map_or(slots, |periods| periods.min(u64::from(slots)) as u32);
        let is_burst = counted < slots;
        let active = if is_burst { counted.saturating_sub(1).max(1) } else { slots };
        let parallelism = ((used + denied) / (f64::from(active) * PERIOD_NS) - TOLERANCE).ceil().max(1.0);
        // Denied time is threads that stood still: without a gap they would have run, before one they ran later.
        let work_ns = if is_burst { used } else { used + denied };
        Some(Shape { work_ns, parallelism, is_burst, slots })
    }
}

/// Threads: ticks of the clock and of the sampler must not make a thread of their own.
const TOLERANCE: f64 = 0.1;
