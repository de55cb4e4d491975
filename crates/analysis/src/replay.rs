//! The kernel's bandwidth rule, replayed: `__refill_cfs_bandwidth_runtime` and `do_sched_cfs_period_timer` of
//! kernel/sched/fair.c for one group, with work as a fluid.

use crate::window::{PERIOD_NS, Shape, Window};

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
    /// What is left of the budget, nanoseconds.
    saved_ns: f32,
}

/// Seconds of work per thread that wait at most: a client gives up, and a closed loop never had more.
const BACKLOG_SECONDS: f64 = 1.0;

/// Step of the phases at which bursts meet the timer's grid: the golden ratio spreads any number of them evenly.
const PHASE_STEP: f64 = 0.618_033_988_749_895;

/// Nanoseconds that count as nothing.
const EPSILON_NS: f64 = 1e3;

impl Replay {
    /// Before the first window: a full quota.
    #[must_use]
    pub fn new(bandwidth: Bandwidth) -> Self {
        Self { backlog_ns: 0.0, saved_ns: (bandwidth.limit_cores * PERIOD_NS) as f32 }
    }

    /// One window under another quota. `number` counts the windows, for the phase of bursts.
    pub fn window(&mut self, bandwidth: Bandwidth, window: &Window, number: u64) -> Count {
        match window.shape() {
            Some(shape) => self.shape(bandwidth, shape, phase(number)),
            None if f64::from(self.backlog_ns) > EPSILON_NS => {
                let slots = ((window.length_ns as f64 / PERIOD_NS).round() as u32).max(1);
                self.shape(bandwidth, Shape { work_ns: 0.0, parallelism: 1.0, is_burst: true, slots }, 0.0)
            }
            None => Count::default(),
        }
    }

    pub(crate) fn shape(&mut self, bandwidth: Bandwidth, shape: Shape, phase: f64) -> Count {
        let quota = bandwidth.limit_cores * PERIOD_NS;
        let ceiling = quota + bandwidth.burst_ns.min(quota);
        let (mut pending, mut saved) = (f64::from(self.backlog_ns), f64::from(self.saved_ns).min(ceiling));
        let (per_slot, mut time) = match shape.is_burst {
            true if pending <= EPSILON_NS => (0.0, (1.0 - phase) * PERIOD_NS),
            true => (0.0, PERIOD_NS),
            false => (shape.work_ns / f64::from(shape.slots), PERIOD_NS),
        };
        if shape.is_burst {
            pending += shape.work_ns;
        }
        let mut count = Count::default();
        for _ in 0..shape.slots {
            pending += per_slot;
            let idle = pending <= EPSILON_NS;
            let ran = pending.min(shape.parallelism * time).min(saved);
            let is_throttled =
                ran >= saved - EPSILON_NS && pending - ran > EPSILON_NS && shape.parallelism * time - ran > EPSILON_NS;
            count.periods += 1;
            count.throttled += u32::from(is_throttled);
            (pending, saved, time) = (pending - ran, (saved - ran + quota).min(ceiling), PERIOD_NS);
            if idle && shape.is_burst {
                // The timer fires once with nothing to do, and stops.
                break;
            }
        }
        self.backlog_ns = pending.min(shape.parallelism * BACKLOG_SECONDS * 1e9) as f32;
        self.saved_ns = saved as f32;
        count
    }
}

fn phase(number: u64) -> f64 {
    ((number % 1_000_000) as f64 * PHASE_STEP).fract()
}
