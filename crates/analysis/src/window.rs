//! One second of one container.

use crate::demand::Demand;
use crate::stretch::Stretch;

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

impl Window {
    /// Some demand was denied, so that what was used is a lower bound of what is wanted.
    #[must_use]
    pub fn is_censored(&self) -> bool {
        self.denied_ns > 0 || self.throttled_periods.is_some_and(|periods| periods > 0)
    }

    /// Nothing ran, and nothing was denied.
    pub(crate) fn is_idle(&self) -> bool {
        self.used_ns == 0 && self.denied_ns == 0
    }

    /// What it would have liked to run. `number` counts the windows, for the phase at which work meets the timer.
    ///
    /// What was seen of the work inside a second shapes a window in which nothing was denied. Else its own counters do:
    /// the timer of the quota fires once more after the last period with work and then stops (`do_sched_cfs_period_timer`
    /// in kernel/sched/fair.c), so fewer periods than the window holds mean a gap, and one of them was idle. The work
    /// before a gap is taken as one burst.
    pub(crate) fn demand(&self, shape: Option<&Stretch>, number: u64) -> Demand {
        let (used, denied) = (self.used_ns as f64, self.denied_ns as f64);
        let slots = ((self.length_ns as f64 / PERIOD_NS).round() as u32).max(1);
        if self.is_idle() {
            return Demand::none(slots);
        }
        let shape = shape.filter(|_| !self.is_censored());
        if let Some(demand) = shape.and_then(|shape| shape.demand(used, slots, number)) {
            return demand;
        }
        let counted = self.periods.map_or(slots, |periods| periods.min(u64::from(slots)) as u32);
        let is_burst = counted < slots;
        let active = if is_burst { counted.saturating_sub(1).max(1) } else { slots };
        let parallelism = ((used + denied) / (f64::from(active) * PERIOD_NS) - TOLERANCE).ceil().max(1.0);
        // Denied time is threads that stood still: without a gap they would have run, before one they ran later.
        match is_burst {
            true => Demand::burst(used, parallelism, slots, phase(number)),
            false => Demand::steady(used + denied, parallelism, slots),
        }
    }
}

/// The golden ratio spreads any number of phases evenly.
fn phase(number: u64) -> f64 {
    ((number % 1_000_000) as f64 * 0.618_033_988_749_895).fract()
}

/// Threads: ticks of the clock and of the sampler must not make a thread of their own.
const TOLERANCE: f64 = 0.1;
