//! Last values of a cgroup's counters, and their increments.

use std::time::Duration;

use kernel_text::{CpuStat, Pressure};
use snapshot::{CfsTotals, KernelCounters};

use super::PathQuota;
use super::standing::Standing;
use crate::contention::ThrottledTime;
use crate::counter::{AncestorThrottle, Context, Counter, Unit};
use crate::reading::{TickReading, Value};

/// Last value of each counter of a cgroup.
#[derive(Debug, Default)]
pub(crate) struct LastCounters {
    pub(super) usage: Counter,
    user: Counter,
    system: Counter,
    /// v1: [`LastUsage::modes_due_ns`](crate::reading::LastUsage::modes_due_ns).
    pub(super) modes_due_ns: Option<u64>,
    periods: Counter,
    throttled_periods: Counter,
    throttled: Counter,
    standing: Standing,
    bursts: Counter,
    burst: Counter,
    pressure_some: Counter,
    pressure_full: Counter,
    /// As last read; they feed no total.
    pub(crate) extra: ExtraCounters,
    local: Counter,
    /// The ancestors' throttled time when this cgroup was last read, nanoseconds.
    ancestors: Option<u64>,
    ancestor_throttle: AncestorThrottle,
    pub(super) own_throttled_ns: u64,
    /// Throttled time by its own quota and its ancestors' quotas.
    pub(crate) throttled_time: ThrottledTime,
}

/// Values that are read only for the page of cAdvisor's names.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExtraCounters {
    pub(crate) memory: Pressure,
    pub(crate) io: Pressure,
    /// `pids.current`.
    pub(crate) tasks: Option<u64>,
}

/// Increments of the counters since the previous reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Deltas {
    /// Whether this is the cgroup's first reading: the increments are then its history, unless it
    /// existed before the sampler.
    pub(crate) first: bool,
    pub(crate) usage_ns: Value<u64>,
    pub(crate) user_ns: Value<u64>,
    pub(crate) system_ns: Value<u64>,
    /// Counters of the quota; zero while there never was one.
    pub(crate) cfs: Value<CfsTotals>,
    /// Throttling by ancestors' quotas; `None` if none of them ever had one.
    pub(crate) ancestor_ns: Option<u64>,
}

impl Deltas {
    /// Whether no quota counter has moved.
    pub(crate) fn are_zero(&self) -> bool {
        let is_zero =
            |cfs: CfsTotals| (cfs.periods, cfs.throttled_periods, cfs.throttled_ns) == (0, 0, 0);
        !self.first && self.cfs.read().is_none_or(is_zero)
    }
}

impl LastCounters {
    pub(super) fn advance(&mut self, reading: &TickReading, context: &mut Context<'_>) -> Deltas {
        let (user_ns, system_ns) = self.advance_modes(reading, context);
        let cfs = reading.stat.map(|stat| self.advance_cfs(&stat, context));
        self.own_throttled_ns += cfs.read().map_or(0, |cfs| cfs.throttled_ns);
        Deltas {
            usage_ns: reading.usage_ns().map(|ns| self.usage.advance(ns, Unit::CpuTime, context)),
            user_ns,
            system_ns,
            cfs,
            ..Deltas::default()
        }
    }

    fn advance_cfs(&mut self, stat: &CpuStat, context: &mut Context<'_>) -> CfsTotals {
        let mut advance = |counter: &mut Counter, now: Option<u64>, unit| {
            now.map(|now| counter.advance(now, unit, context))
        };
        CfsTotals {
            periods: advance(&mut self.periods, stat.nr_periods, Unit::Periods).unwrap_or(0),
            throttled_periods: advance(
                &mut self.throttled_periods,
                stat.nr_throttled,
                Unit::Periods,
            )
            .unwrap_or(0),
            throttled_ns: advance(&mut self.throttled, stat.throttled_ns, Unit::Throttle)
                .unwrap_or(0),
            burst_periods: advance(&mut self.bursts, stat.nr_bursts, Unit::Periods),
            burst_ns: advance(&mut self.burst, stat.burst_ns, Unit::CpuTime),
        }
    }

    /// Adds the throttled time that the kernel counts later, and takes off what was added before.
    pub(super) fn count_standing(
        &mut self,
        deltas: &mut Deltas,
        period: Duration,
        elapsed: Duration,
    ) {
        if let Value::Read(cfs) = &mut deltas.cfs {
            cfs.throttled_ns = self.standing.advance(cfs, deltas.usage_ns, period, elapsed);
        }
    }

    /// Increments of user and system time.
    fn advance_modes(
        &mut self,
        reading: &TickReading,
        context: &mut Context<'_>,
    ) -> (Value<u64>, Value<u64>) {
        let modes = reading.modes();
        self.modes_due_ns = (reading.usage_ns().read())
            .zip(reading.acct.read())
            .map(|(now, acct)| acct.due_ns(now))
            .or(self.modes_due_ns);
        let mut advance = |counter: &mut Counter, mode: Value<u64>| {
            mode.map(|ns| counter.advance(ns, Unit::CpuTime, context))
        };
        let user_ns = advance(&mut self.user, modes.field(|modes| modes.user_ns));
        let system_ns = advance(&mut self.system, modes.field(|modes| modes.system_ns));
        (user_ns, system_ns)
    }

    /// Whether `cpu.stat` has burst counters (since 5.14).
    pub(crate) fn has_burst(&self) -> bool {
        self.bursts.last().is_some()
    }

    /// Increment of the throttling by ancestors' quotas: `cpu.stat.local` minus the cgroup's own
    /// count.
    fn advance_local(&mut self, local_ns: u64, context: &mut Context<'_>) -> u64 {
        // The own count may be unread: unchanged while idle, and 0 if there never was a quota.
        let own = self.throttled.last().unwrap_or(0);
        self.local.advance(local_ns.saturating_sub(own), Unit::Throttle, context)
    }

    /// Increment of the throttling by ancestors' quotas. Without `cpu.stat.local`: the part of the
    /// ancestors' increments during this cgroup's lifetime that exceeds its own.
    pub(super) fn advance_above(
        &mut self,
        local_ns: Value<u64>,
        above: PathQuota,
        own_ns: u64,
        context: &mut Context<'_>,
    ) -> u64 {
        // Increment, and the lower and upper bound of the wait for ancestors' quotas.
        let (delta_ns, least_ns, most_ns) = match local_ns {
            Value::Read(local_ns) => {
                let delta_ns = self.advance_local(local_ns, context);
                (delta_ns, delta_ns, delta_ns)
            }
            Value::NotRead | Value::Failed => (0, 0, 0),
            Value::Absent => {
                let before =
                    self.ancestors.replace(above.throttled_ns).unwrap_or(above.throttled_ns);
                let all_ns = above.throttled_ns - before;
                // Only the excess over its own: the quotas may have run out at different times.
                (self.ancestor_throttle.advance(own_ns, all_ns), 0, all_ns)
            }
        };
        self.throttled_time.add(own_ns + least_ns, own_ns + most_ns);
        delta_ns
    }

    /// Increments of the pressure counters: (some, full).
    pub(crate) fn advance_pressure(
        &mut self,
        now: Pressure,
        context: &mut Context<'_>,
    ) -> (Option<u64>, Option<u64>) {
        let mut advance = |counter: &mut Counter, ns: Option<u64>| {
            ns.map(|ns| counter.advance(ns, Unit::CpuTime, context))
        };
        let some = advance(&mut self.pressure_some, now.some_ns);
        (some, advance(&mut self.pressure_full, now.full_ns))
    }

    /// The kernel's own values at the last readings; those of a quota only if there ever was one.
    pub(super) fn kernel(&self, had_quota: bool) -> KernelCounters {
        KernelCounters {
            usage_ns: self.usage.last(),
            periods: self.periods.last().filter(|_| had_quota),
            throttled_periods: self.throttled_periods.last().filter(|_| had_quota),
            throttled_ns: self.throttled.last().filter(|_| had_quota),
            pressure_waiting_ns: self.pressure_some.last(),
            pressure_stalled_ns: self.pressure_full.last(),
            memory_waiting_ns: self.extra.memory.some_ns,
            memory_stalled_ns: self.extra.memory.full_ns,
            io_waiting_ns: self.extra.io.some_ns,
            io_stalled_ns: self.extra.io.full_ns,
            tasks: self.extra.tasks,
        }
    }

    /// Counts the ancestors' whole history as this cgroup's: both were found at the same time.
    pub(crate) fn inherit_history(&mut self) {
        self.ancestors = Some(0);
    }
}
