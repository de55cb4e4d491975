//! The kernel's bandwidth rule, replayed: `__refill_cfs_bandwidth_runtime` and `do_sched_cfs_period_timer` of
//! kernel/sched/fair.c for one group, with work as a fluid.

use crate::demand::{Demand, EPSILON_NS};
use crate::stretch::Stretch;
use crate::window::{PERIOD_NS, Window};

/// A quota to try, per period of 100 ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bandwidth {
    /// CPU limit, cores.
    pub limit_cores: f64,
    /// `cpu.max.burst`, nanoseconds that may be saved up; the kernel takes no more than the quota.
    pub burst_ns: f64,
}

/// Periods as the kernel would count them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// `nr_periods`.
    pub periods: u32,
    /// `nr_throttled`.
    pub throttled: u32,
}

impl Count {
    /// Share of throttled periods; `None` without periods.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        (self.periods > 0).then(|| f64::from(self.throttled) / f64::from(self.periods))
    }
}

/// What one candidate carries from a window to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replay {
    /// Work that the quota has put off, nanoseconds.
    backlog_ns: f32,
    /// What is left of the budget, nanoseconds; less than nothing while an overrun is paid back.
    saved_ns: f32,
    /// The last period had work, so that the timer fires at the end of the next one, too.
    is_timer_on: bool,
}

/// Seconds of work per thread that wait at most: a client gives up, and a closed loop never had more.
const BACKLOG_SECONDS: f64 = 1.0;

/// What may run beyond the quota before the kernel sees it, nanoseconds: it looks at ticks (`update_curr` in
/// kernel/sched/fair.c), which at Debian's 250 Hz come 2 ms late in the mean, and takes it off the next refill.
const OVERRUN_NS: f64 = 2e6;

/// What each further CPU has taken of the quota and not yet run when one goes without, nanoseconds: in the mean half of
/// `sched_cfs_bandwidth_slice_us`.
const HALF_SLICE_NS: f64 = 2.5e6;

impl Replay {
    /// Before the first window: a full quota.
    #[must_use]
    pub fn new(bandwidth: Bandwidth) -> Self {
        let saved_ns = (bandwidth.limit_cores * PERIOD_NS) as f32;
        Self { backlog_ns: 0.0, saved_ns, is_timer_on: false }
    }

    /// One window under another quota, its work shaped as the stretch where there is one. `number` counts the windows,
    /// for the phase at which work meets the timer.
    pub fn window(&mut self, bandwidth: Bandwidth, window: &Window, shape: Option<&Stretch>, number: u64) -> Count {
        self.run(bandwidth, &window.demand(shape, number))
    }

    pub(crate) fn run(&mut self, bandwidth: Bandwidth, demand: &Demand) -> Count {
        let quota = bandwidth.limit_cores * PERIOD_NS;
        let ceiling = quota + bandwidth.burst_ns.min(quota);
        let runnable = demand.parallelism * PERIOD_NS;
        let overrun = (OVERRUN_NS - (demand.parallelism - 1.0) * HALF_SLICE_NS).max(0.0);
        let (mut pending, mut saved) = (f64::from(self.backlog_ns), f64::from(self.saved_ns).min(ceiling));
        if bandwidth.burst_ns == 0.0 && pending <= EPSILON_NS && demand.most_ns <= quota && saved >= quota {
            let periods = demand.periods(self.is_timer_on);
            *self = Self { is_timer_on: demand.is_active(demand.slots - 1), ..Self::new(bandwidth) };
            return Count { periods, throttled: 0 };
        }
        let mut count = Count::default();
        for slot in 0..demand.slots {
            pending += demand.work_ns(slot);
            let is_active = pending > EPSILON_NS;
            let wanted = pending.min(runnable);
            let is_throttled = wanted > saved + overrun + EPSILON_NS;
            let ran = if is_throttled { saved.max(0.0) } else { wanted };
            // After a period with work the timer fires once with nothing to do, and stops.
            count.periods += u32::from(is_active || self.is_timer_on);
            count.throttled += u32::from(is_throttled);
            self.is_timer_on = is_active;
            (pending, saved) = (pending - ran, (saved - ran + quota).min(ceiling));
        }
        self.backlog_ns = pending.min(demand.parallelism * BACKLOG_SECONDS * 1e9) as f32;
        self.saved_ns = saved as f32;
        count
    }
}
