//! One window of one container: the deltas of its counters between two readings, about a second
//! apart.

use crate::demand::{Arrival, Demand, Slots};
use crate::usage_trace::UsageTraces;

/// CFS period of Kubernetes (`cpuCFSQuotaPeriod`), nanoseconds.
pub const DEFAULT_PERIOD_NS: u64 = 100_000_000;

/// Deltas of `cpu.stat` between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// CPU time used, nanoseconds.
    pub used_ns: u64,
    /// Time lost to other pods, core-nanoseconds; 0 if unknown.
    pub lost_ns: u64,
    /// Throttled time (`throttled_usec`), nanoseconds, summed over CPUs.
    pub throttled_ns: u64,
    /// Delta of `nr_periods`; `None` without a quota, because the kernel then counts none.
    pub periods: Option<u64>,
    /// Delta of `nr_throttled`; `None` without a quota.
    pub throttled_periods: Option<u64>,
    /// CFS period of the container's cgroup, nanoseconds; 0 if unknown, which means
    /// [`DEFAULT_PERIOD_NS`].
    pub period_ns: u64,
    /// Time between the two readings, nanoseconds.
    pub length_ns: u64,
}

impl Window {
    /// Whether a quota throttled it; the CPU time used is then a lower bound of the demand.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.throttled_ns > 0 || self.throttled_periods.is_some_and(|periods| periods > 0)
    }

    /// Whether nothing ran and nothing was throttled.
    pub(crate) fn is_idle(&self) -> bool {
        self.used_ns == 0 && self.throttled_ns == 0
    }

    /// The periods of the window.
    pub(crate) fn slots(&self) -> Slots {
        Slots::of(self.length_ns, self.period_ns)
    }

    /// The demand behind the window. `number` is the index of the window; it spreads the phases
    /// between work and timer.
    ///
    /// A usage trace that resembles a window without throttling gives the arrival times of its
    /// work. Without one they are derived from the window's counters: the quota's timer fires once
    /// more after the last period with work and then stops (`do_sched_cfs_period_timer` in
    /// kernel/sched/fair.c). So fewer counted periods than the window holds mean a gap, and one of
    /// the counted periods was idle. The work before a gap is taken as one burst, or as several if
    /// the throttled periods show them.
    pub(crate) fn demand(&self, traces: &UsageTraces, number: u64) -> Demand {
        let slots = self.slots();
        if self.is_idle() {
            return Demand::none(slots);
        }
        if self.is_throttled() {
            return self.guessed(slots, Arrival::Throttled, number);
        }
        let traced = traces.demand(self.used_ns as f64, slots, number);
        traced.unwrap_or_else(|| self.guessed(slots, Arrival::Unknown, number))
    }

    fn guessed(&self, slots: Slots, arrival: Arrival, number: u64) -> Demand {
        let (used, throttled) = (self.used_ns as f64, self.throttled_ns as f64);
        let all = slots.count();
        let counted = self.periods.map_or(all, |periods| periods.min(u64::from(all)) as u32);
        let has_gap = counted < all;
        let bursts = if has_gap { self.bursts(counted) } else { 0 };
        let active = if has_gap { counted.saturating_sub(bursts).max(1) } else { all };
        let busy_ns = f64::from(active) * slots.length_ns;
        let parallelism = ((used + throttled) / busy_ns - TOLERANCE).ceil().max(1.0);
        // Throttled time is that of stopped threads: without a gap they would have run, with one
        // they ran later.
        let mut demand = match has_gap {
            true => {
                let of_pattern = (bursts / slots.repeats).max(1);
                Demand::bursts(used, parallelism, slots, phase(number), of_pattern)
            }
            false => Demand::steady(used + throttled, parallelism, slots),
        };
        demand.arrival = arrival;
        demand
    }

    /// Number of bursts before gaps, of this number of counted periods. A burst that the quota cuts
    /// has throttled periods, then one that is not throttled, and the idle one in which the timer
    /// stops. Other work is added to these bursts; without throttling all of it is one burst.
    fn bursts(&self, counted: u32) -> u32 {
        let throttled = self.throttled_periods.map_or(0, |periods| periods.min(counted.into()));
        let throttled = u32::try_from(throttled).unwrap_or(counted);
        ((counted - throttled) / 2).clamp(1, throttled.max(1))
    }
}

/// Phase of a window, 0..1: the golden ratio spreads any number of phases evenly.
fn phase(number: u64) -> f64 {
    ((number % 1_000_000) as f64 * 0.618_033_988_749_895).fract()
}

/// Tolerance in threads: ticks of the clock and the sampler must not show up as an additional
/// thread.
const TOLERANCE: f64 = 0.1;

/// Divisor of the throttled time above a container: the container must have used more than the
/// quotient for that time to be its own. Eight threads under a quota of 20 ms use a fortieth.
const HARDLY: u64 = 200;

/// Whether time throttled by an ancestor can be that of a container that used this CPU time
/// meanwhile. Before Linux 6.6 only the sum over everything below the ancestor is known: a
/// container that hardly ran has no part in it.
#[must_use]
pub fn may_be_throttled_by_ancestor(throttled_ns: u64, used_ns: u64) -> bool {
    used_ns > throttled_ns / HARDLY
}
