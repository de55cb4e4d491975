//! One watched cgroup: its kind, its files and the last value of each counter.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use cgroup_tree::CgroupId;
use cgroup_tree::Role;
use kernel_text::{Bandwidth, CpuPressure, CpuStat};
use kubepods::path::{CgroupPath, Driver, QosClass};
use snapshot::{CfsTotals, CpuLimit, CpuWeight, Limit};

use crate::budget::DescriptorBudget;
use crate::contention::ThrottledTime;
use crate::counter::{AncestorThrottle, HighWater, LastValue};
use crate::files::{FileSet, Files};
use crate::naming::LookupSchedule;
use crate::plan::Activity;
use crate::reading::{LastUsage, TickReading, Value};
use crate::series::SeriesId;
use crate::timing::Timing;

/// Role of a cgroup in the kubelet's hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SampledKind {
    /// An ancestor of a kubepods root, up to the mount's root: its quota also limits the pods.
    Above,
    /// A kubepods root.
    Root,
    /// The system partition, if the kubelet has one.
    Partition,
    /// A QoS level.
    Qos,
    /// A pod.
    Pod { uid: Box<str> },
    /// A container or a pod's sandbox.
    Container(ContainerKey),
    /// A container's monitor: never read.
    Conmon,
}

/// Properties of a container, taken from its cgroup path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerKey {
    pub(crate) uid: Box<str>,
    pub(crate) id: Box<str>,
    pub(crate) qos: QosClass,
    pub(crate) driver: Driver,
}

impl SampledKind {
    /// Kind of a cgroup of the tree; `None` if the sampler does not read such a cgroup.
    pub(crate) fn of(role: &Role) -> Option<Self> {
        let path = match role {
            Role::Above => return Some(Self::Above),
            Role::Root => return Some(Self::Root),
            Role::Foreign { .. } => return None,
            Role::Known(path) => path,
        };
        match path {
            CgroupPath::SystemPartition { .. } => Some(Self::Partition),
            CgroupPath::Qos { .. } => Some(Self::Qos),
            CgroupPath::Pod(pod) => Some(Self::Pod { uid: pod.uid.clone() }),
            CgroupPath::Conmon(_) => Some(Self::Conmon),
            CgroupPath::Nested { .. } => None,
            CgroupPath::Container(container) => Some(Self::Container(ContainerKey {
                qos: container.pod.qos,
                driver: container.pod.root.driver,
                uid: container.pod.uid.clone(),
                id: container.id.clone(),
            })),
        }
    }

    pub(crate) fn file_set(&self) -> FileSet {
        match self {
            Self::Container(_) => FileSet::Container,
            Self::Pod { .. } => FileSet::Pod,
            _ => FileSet::Bandwidth,
        }
    }
}

/// Naming state of a container's or pod's cgroup. Transitions: `Pending` → `Unmapped` → `Named` or
/// `Sandbox`, and `Sandbox` → `Named` if a pod list names it later. A name is final for the
/// cgroup's lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Too new to be in a pod list: read and counted, but not shown yet.
    Pending,
    /// In no pod list: read, counted and shown by its id.
    Unmapped,
    /// Its container is known.
    Named,
    /// A sandbox or a monitor: no series, no reads.
    Sandbox,
}

/// A watched cgroup.
#[derive(Debug)]
pub(crate) struct Cgroup {
    /// Path below the mount, such as `kubepods/burstable/pod…/…`.
    pub(crate) relative: Arc<str>,
    pub(crate) inode: u64,
    pub(crate) kind: SampledKind,
    pub(crate) parent: Option<CgroupId>,
    /// Time of discovery.
    pub(crate) found: Instant,
    pub(crate) naming: Naming,
    /// Schedule of the name lookups while it is unnamed.
    pub(crate) lookup: LookupSchedule,
    pub(crate) series: Option<SeriesId>,
    pub(crate) files: Files,
    pub(crate) last: LastCounters,
    pub(crate) settings: Settings,
    /// Recent activity, which decides what to read.
    pub(crate) activity: Activity,
    /// Limit and throttled time of its own and its ancestors' quotas; inherited by its children.
    pub(crate) path: PathQuota,
    /// v1: pidfd of its first process. The end of that process is the last moment at which its
    /// counters can be read.
    pub(crate) exit: Option<OwnedFd>,
    /// Whether a read has reported that it is gone.
    pub(crate) vanished: bool,
}

/// Quotas of a cgroup and all its ancestors.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PathQuota {
    /// Throttled time by these quotas: sum of each cgroup's own `cpu.stat`.
    pub(crate) throttled_ns: u64,
    /// The lowest of these limits.
    pub(crate) limit: Limit<CpuLimit>,
    /// Whether one of them has, or had, a quota.
    pub(crate) had_quota: bool,
}

impl PathQuota {
    /// Quotas above a cgroup that has no ancestor.
    pub(crate) const NONE: Self = Self { throttled_ns: 0, limit: Limit::Absent, had_quota: false };
}

/// Returns the lower limit; the cgroup's own if they are equal, because its counters count its own
/// periods.
fn lowest(own: Limit<CpuLimit>, above: Limit<CpuLimit>) -> Limit<CpuLimit> {
    use Limit::{Absent, Limited, NotRead, Unlimited};
    match (own, above) {
        (Limited(own), Limited(above)) if above.cores < own.cores => Limited(above),
        (Limited(limit), _) | (_, Limited(limit)) => Limited(limit),
        (NotRead, _) | (_, NotRead) => NotRead,
        (Unlimited, _) | (_, Unlimited) => Unlimited,
        (Absent, Absent) => Absent,
    }
}

impl Cgroup {
    pub(crate) fn new(cgroup: &cgroup_tree::Cgroup, kind: SampledKind) -> Self {
        let naming = if kind == SampledKind::Conmon { Naming::Sandbox } else { Naming::Pending };
        Self {
            files: Files::new(kind.file_set()),
            relative: Arc::clone(&cgroup.path),
            inode: cgroup.inode,
            kind,
            parent: cgroup.parent,
            found: cgroup.found,
            naming,
            lookup: LookupSchedule::new(cgroup.found),
            series: None,
            last: LastCounters::default(),
            settings: Settings::default(),
            activity: Activity::new(),
            path: PathQuota::default(),
            exit: None,
            vanished: false,
        }
    }

    /// Closes its files and returns their descriptors to the budget.
    pub(crate) fn close_files(&mut self, budget: &mut DescriptorBudget) {
        budget.give_back(self.files.kept());
        self.files = Files::new(self.kind.file_set());
    }

    /// Whether its counters are read.
    pub(crate) fn is_read(&self) -> bool {
        self.naming != Naming::Sandbox && !self.vanished
    }

    /// Whether it is unnamed and its next lookup is due. `may_answer`: some source may still name
    /// it.
    pub(crate) fn is_to_be_named(&self, now: Instant, may_answer: bool, timing: &Timing) -> bool {
        let is_open = matches!(self.naming, Naming::Pending | Naming::Unmapped);
        is_open && self.lookup.is_due(now) && (may_answer || !self.lookup.is_exhausted(timing))
    }

    /// Whether its usage file may still appear, and is looked for between ticks.
    pub(crate) fn is_usage_pending(&self, now: Instant, timing: &Timing) -> bool {
        matches!(self.kind, SampledKind::Container(_))
            && self.is_read()
            && self.activity.is_usage_pending(self.found, now, timing)
    }

    /// Whether all its files had been created by the last read.
    pub(crate) fn is_complete(&self, timing: &Timing) -> bool {
        self.activity.is_complete(self.found, timing)
    }

    /// Usage at the last reading.
    pub(crate) fn last_usage(&self) -> LastUsage {
        LastUsage { usage_ns: self.last.usage.last(), modes_due_ns: self.last.modes_due_ns }
    }

    /// Applies the reading of a tick: stores the gauges and returns the increments of the counters.
    pub(crate) fn take(&mut self, reading: &TickReading, above: PathQuota, now: Instant) -> Deltas {
        self.settings.take(reading);
        let limit = self.settings.cpu_limit();
        let periods = reading.stat.field(|stat| stat.nr_periods);
        self.activity.had_quota |=
            limit.limited().is_some() || periods.read().is_some_and(|periods| periods > 0);
        let has_run = match reading.usage_ns() {
            Value::Read(usage_ns) => self.last.usage.last() != Some(usage_ns),
            // It may have run.
            Value::Absent | Value::NotRead | Value::Failed => true,
        };
        let mut deltas = self.last.advance(reading);
        deltas.first = self.activity.counters_read.is_none();
        let own_ns = deltas.cfs.read().map_or(0, |cfs| cfs.throttled_ns);
        let delta_ns = self.last.advance_above(reading.local_throttled_ns, above, own_ns);
        deltas.ancestor_ns = above.had_quota.then_some(delta_ns);
        let has_throttled = own_ns > 0 || self.activity.above.throttled_ns != above.throttled_ns;
        self.activity.has_usage |= matches!(deltas.user_ns, Value::Read(_));
        // Read again next time what failed now.
        self.activity.throttle_due =
            has_throttled || matches!(reading.local_throttled_ns, Value::Failed);
        self.activity.settings_written |=
            matches!(reading.bandwidth, Value::Failed) || matches!(reading.weight, Value::Failed);
        self.activity.note(now, has_run || !deltas.are_zero());
        self.activity.above = above;
        self.path = PathQuota {
            throttled_ns: above.throttled_ns + self.last.own_throttled_ns,
            limit: lowest(limit, above.limit),
            had_quota: above.had_quota || self.activity.had_quota,
        };
        deltas
    }
}

/// Settings of a cgroup, as last read.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// Quota and period.
    pub(crate) bandwidth: Value<Bandwidth>,
    pub(crate) weight: Value<CpuWeight>,
}

impl Settings {
    /// CPU limit by its own quota.
    pub(crate) fn cpu_limit(&self) -> Limit<CpuLimit> {
        match self.bandwidth {
            Value::Read(bandwidth) => Limit::of(bandwidth),
            Value::Absent => Limit::Absent,
            Value::NotRead | Value::Failed => Limit::NotRead,
        }
    }

    /// Stores the settings that were read.
    fn take(&mut self, reading: &TickReading) {
        self.bandwidth.update(reading.bandwidth);
        self.weight.update(reading.weight);
    }
}

/// Last value of each counter of a cgroup.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LastCounters {
    usage: LastValue,
    user: HighWater,
    system: HighWater,
    /// v1: [`LastUsage::modes_due_ns`].
    modes_due_ns: Option<u64>,
    periods: LastValue,
    throttled_periods: LastValue,
    throttled: LastValue,
    bursts: LastValue,
    burst: LastValue,
    pressure_some: LastValue,
    pressure_full: LastValue,
    local: HighWater,
    /// The ancestors' throttled time when this cgroup was last read, nanoseconds.
    ancestors: Option<u64>,
    ancestor_throttle: AncestorThrottle,
    own_throttled_ns: u64,
    /// Throttled time by its own quota and its ancestors' quotas.
    pub(crate) throttled_time: ThrottledTime,
}

/// Increments of the counters since the previous reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Deltas {
    /// Whether this is the cgroup's first reading: the increments are then its whole history.
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
    fn are_zero(&self) -> bool {
        let is_zero =
            |cfs: CfsTotals| (cfs.periods, cfs.throttled_periods, cfs.throttled_ns) == (0, 0, 0);
        !self.first && self.cfs.read().is_none_or(is_zero)
    }
}

impl LastCounters {
    fn advance(&mut self, reading: &TickReading) -> Deltas {
        let (user_ns, system_ns) = self.advance_modes(reading);
        let cfs = reading.stat.map(|stat| self.advance_cfs(&stat));
        self.own_throttled_ns += cfs.read().map_or(0, |cfs| cfs.throttled_ns);
        Deltas {
            usage_ns: reading.usage_ns().map(|ns| self.usage.advance(ns)),
            user_ns,
            system_ns,
            cfs,
            ..Deltas::default()
        }
    }

    fn advance_cfs(&mut self, stat: &CpuStat) -> CfsTotals {
        let advance = |last: &mut LastValue, now: Option<u64>| now.map(|now| last.advance(now));
        CfsTotals {
            periods: advance(&mut self.periods, stat.nr_periods).unwrap_or(0),
            throttled_periods: advance(&mut self.throttled_periods, stat.nr_throttled).unwrap_or(0),
            throttled_ns: advance(&mut self.throttled, stat.throttled_ns).unwrap_or(0),
            burst_periods: advance(&mut self.bursts, stat.nr_bursts),
            burst_ns: advance(&mut self.burst, stat.burst_ns),
        }
    }

    /// Increments of user and system time. Both restart with the usage; a step back of one alone is
    /// ignored.
    fn advance_modes(&mut self, reading: &TickReading) -> (Value<u64>, Value<u64>) {
        let usage_ns = reading.usage_ns().read();
        if usage_ns.zip(self.usage.last()).is_some_and(|(now, last)| now < last) {
            (self.user, self.system) = (HighWater::default(), HighWater::default());
        }
        let modes = reading.modes();
        self.modes_due_ns = usage_ns
            .zip(reading.acct.read())
            .map(|(now, acct)| acct.due_ns(now))
            .or(self.modes_due_ns);
        let user_ns = modes.field(|modes| modes.user_ns).map(|ns| self.user.advance(ns));
        let system_ns = modes.field(|modes| modes.system_ns).map(|ns| self.system.advance(ns));
        (user_ns, system_ns)
    }

    /// Whether `cpu.stat` has burst counters (since 5.14).
    pub(crate) fn has_burst(&self) -> bool {
        self.bursts.last().is_some()
    }

    /// Increment of the throttling by ancestors' quotas: `cpu.stat.local` minus the cgroup's own
    /// count.
    fn advance_local(&mut self, local_ns: u64) -> u64 {
        // The own count may be unread: unchanged while idle, and 0 if there never was a quota.
        let own = self.throttled.last().unwrap_or(0);
        self.local.advance(local_ns.saturating_sub(own))
    }

    /// Increment of the throttling by ancestors' quotas. Without `cpu.stat.local`: the part of the
    /// ancestors' increments during this cgroup's lifetime that exceeds its own.
    fn advance_above(&mut self, local_ns: Value<u64>, above: PathQuota, own_ns: u64) -> u64 {
        // Increment, and the lower and upper bound of the wait for ancestors' quotas.
        let (delta_ns, least_ns, most_ns) = match local_ns {
            Value::Read(local_ns) => {
                let delta_ns = self.advance_local(local_ns);
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
    pub(crate) fn advance_pressure(&mut self, now: CpuPressure) -> (Option<u64>, Option<u64>) {
        let some = now.some_ns.map(|ns| self.pressure_some.advance(ns));
        (some, now.full_ns.map(|ns| self.pressure_full.advance(ns)))
    }

    /// Counts the ancestors' whole history as this cgroup's: both were found at the same time.
    pub(crate) fn inherit_history(&mut self) {
        self.ancestors = Some(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_known_limit_holds() {
        let limit = |cores, period_usec| Limit::Limited(CpuLimit { cores, period_usec });
        let (one, two) = (limit(1.0, 50_000), limit(2.0, 100_000));
        for (own, above, expected) in [
            (one, two, one),
            (two, one, one),
            (one, limit(1.0, 100_000), one),
            (Limit::Unlimited, one, one),
            (one, Limit::NotRead, one),
            (Limit::NotRead, Limit::Unlimited, Limit::NotRead),
            (Limit::Unlimited, Limit::NotRead, Limit::NotRead),
            (Limit::Absent, Limit::Unlimited, Limit::Unlimited),
            (Limit::Unlimited, PathQuota::NONE.limit, Limit::Unlimited),
            (Limit::Absent, PathQuota::NONE.limit, Limit::Absent),
        ] {
            assert_eq!(lowest(own, above), expected, "{own:?} below {above:?}");
        }
    }
}
