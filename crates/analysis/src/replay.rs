//! Replay of the kernel's bandwidth rule: `__refill_cfs_bandwidth_runtime` and
//! `do_sched_cfs_period_timer` of kernel/sched/fair.c for one group, with work modeled as a fluid.

use crate::demand::{Arrival, Demand, EPSILON_NS};
use crate::usage_trace::UsageTraces;
use crate::window::Window;

/// A candidate quota, applied in the container's own period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CandidateLimit {
    /// CPU limit, cores.
    pub limit_cores: f64,
    /// `cpu.max.burst` as a share of the quota; the kernel accepts at most the quota.
    pub burst_share: f64,
}

impl CandidateLimit {
    /// Quota per period of the demand, nanoseconds.
    fn quota_ns(self, demand: &Demand) -> f64 {
        (self.limit_cores * demand.slots.length_ns).max(MIN_QUOTA_NS)
    }
}

/// Counts of periods, as the kernel would count them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// `nr_periods`.
    pub periods: u32,
    /// `nr_throttled`.
    pub throttled: u32,
    /// Upper bound of `nr_throttled`, for work with unknown arrival times.
    pub throttled_at_most: u32,
}

impl Count {
    /// Share of throttled periods; `None` without periods.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        (self.periods > 0).then(|| f64::from(self.throttled) / f64::from(self.periods))
    }

    /// Upper bound of the share of throttled periods.
    #[must_use]
    pub fn share_at_most(self) -> Option<f64> {
        let periods = self.periods.max(self.throttled_at_most);
        (periods > 0).then(|| f64::from(self.throttled_at_most) / f64::from(periods))
    }

    /// Adds another count.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            periods: self.periods + other.periods,
            throttled: self.throttled + other.throttled,
            throttled_at_most: self.throttled_at_most + other.throttled_at_most,
        }
    }
}

/// State that one candidate carries from one window to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replay {
    /// Work delayed by the quota, nanoseconds.
    backlog_ns: f32,
    /// Remaining budget as a share of the quota; negative while an overrun is paid back.
    saved_share: f32,
    /// Whether the last period had work, so that the timer also fires at the end of the next one.
    is_timer_on: bool,
}

/// Smallest quota that the kernel accepts (`min_cfs_quota_period` in kernel/sched/core.c),
/// nanoseconds; the kubelet rounds up.
const MIN_QUOTA_NS: f64 = 1e6;

/// Maximum backlog per thread, seconds: clients give up, and a closed loop never had more.
const BACKLOG_SECONDS: f64 = 1.0;

/// Average overrun before the kernel notices, nanoseconds. It checks at ticks (`update_curr` in
/// kernel/sched/fair.c), which come 2 ms late on average at Debian's 250 Hz, and deducts the
/// overrun from the next refill.
const OVERRUN_NS: f64 = 2e6;

/// Quota that each further CPU has taken but not yet used when one runs out, nanoseconds: on
/// average half of `sched_cfs_bandwidth_slice_us`.
const HALF_SLICE_NS: f64 = 2.5e6;

impl Default for Replay {
    /// The state before the first window: a full quota.
    fn default() -> Self {
        Self { backlog_ns: 0.0, saved_share: 1.0, is_timer_on: false }
    }
}

impl Replay {
    /// Replays one window under another quota, with arrivals as in the usage trace that resembles
    /// it. `number` is the index of the window and selects the phase between work and timer.
    pub fn window(
        &mut self,
        bandwidth: CandidateLimit,
        window: &Window,
        traces: &UsageTraces,
        number: u64,
    ) -> Count {
        self.run(bandwidth, &window.demand(traces, number))
    }

    pub(crate) fn run(&mut self, bandwidth: CandidateLimit, demand: &Demand) -> Count {
        let count = self.carry_out(bandwidth, demand);
        Count { throttled_at_most: at_most(bandwidth, demand).max(count.throttled), ..count }
    }

    fn carry_out(&mut self, bandwidth: CandidateLimit, demand: &Demand) -> Count {
        let (slots, quota) = (demand.slots.count(), bandwidth.quota_ns(demand));
        let ceiling = quota * (1.0 + bandwidth.burst_share.min(1.0));
        let runnable = demand.parallelism * demand.slots.length_ns;
        let overrun = (OVERRUN_NS - (demand.parallelism - 1.0) * HALF_SLICE_NS).max(0.0);
        let (mut pending, mut saved) =
            (f64::from(self.backlog_ns), f64::from(self.saved_share) * quota);
        if bandwidth.burst_share == 0.0
            && pending <= EPSILON_NS
            && demand.most_ns <= quota
            && saved >= quota
        {
            let periods = demand.periods(self.is_timer_on);
            *self = Self { is_timer_on: demand.is_active(slots - 1), ..Self::default() };
            return Count { periods, ..Count::default() };
        }
        let mut count = Count::default();
        for slot in 0..slots {
            pending += demand.work_ns(slot);
            let is_active = pending > EPSILON_NS;
            let wanted = pending.min(runnable);
            let is_throttled = wanted > saved + overrun + EPSILON_NS;
            let ran = if is_throttled { saved.max(0.0) } else { wanted };
            // After a period with work the timer fires once more, finds nothing to do, and stops.
            count.periods += u32::from(is_active || self.is_timer_on);
            count.throttled += u32::from(is_throttled);
            self.is_timer_on = is_active;
            (pending, saved) = (pending - ran, (saved - ran + quota).min(ceiling));
        }
        self.backlog_ns = pending.min(demand.parallelism * BACKLOG_SECONDS * 1e9) as f32;
        self.saved_share = (saved / quota) as f32;
        count
    }
}

/// Upper bound of the throttled periods: a period is throttled only after its quota is used up.
fn at_most(bandwidth: CandidateLimit, demand: &Demand) -> u32 {
    let slots = demand.slots.count();
    match demand.arrival {
        Arrival::Traced => 0,
        Arrival::Unknown => slots.min((demand.total_ns / bandwidth.quota_ns(demand)) as u32),
        Arrival::Throttled => slots,
    }
}
