//! One cgroup under watch: what it is, its files, and the last value of each of its counters.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use kernel_text::{Bandwidth, CpuPressure};
use pods::path::{CgroupPath, Driver, QosClass};

use crate::budget::DescriptorBudget;
use crate::contention::ThrottledTime;
use crate::counter::{Beyond, HighWater, Mark};
use crate::files::{FileSet, Files};
use crate::naming::Look;
use crate::plan::Activity;
use crate::reading::{LastUsage, TickReading, Value};
use crate::series::SeriesId;
use crate::snapshot::CpuWeight;
use crate::timing::TIMING;

/// Handle of a cgroup in the sampler's table.
pub(crate) type CgroupId = usize;

/// What a cgroup is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Above a kubelet's top cgroup, the mount's root included: its quota is the pods' too.
    Above,
    /// The kubelet's top cgroup.
    Root,
    /// The system partition of a kubelet that has one.
    Partition,
    /// A QoS level.
    Qos,
    /// A pod.
    Pod { uid: Box<str> },
    /// A container or a pod's sandbox.
    Container(ContainerKey),
    /// A container's monitor: known, never read.
    Conmon,
}

/// What the path tells of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerKey {
    pub(crate) uid: Box<str>,
    pub(crate) id: Box<str>,
    pub(crate) qos: QosClass,
    pub(crate) driver: Driver,
}

impl Kind {
    /// From a path below the kubelet's top cgroup; `None` for what is not the sampler's to watch.
    pub(crate) fn of(path: CgroupPath) -> Option<Self> {
        match path {
            CgroupPath::SystemPartition { .. } => Some(Self::Partition),
            CgroupPath::Qos { .. } => Some(Self::Qos),
            CgroupPath::Pod(pod) => Some(Self::Pod { uid: pod.uid }),
            CgroupPath::Conmon(_) => Some(Self::Conmon),
            CgroupPath::Nested { .. } => None,
            CgroupPath::Container(container) => Some(Self::Container(ContainerKey {
                qos: container.pod.qos,
                driver: container.pod.root.driver,
                uid: container.pod.uid,
                id: container.id,
            })),
        }
    }

    pub(crate) const LAST_RANK: u8 = 4;

    /// Ancestors come before descendants: a tick goes through the ranks in order.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Above | Self::Root => 0,
            Self::Partition => 1,
            Self::Qos => 2,
            Self::Pod { .. } => 3,
            Self::Container(_) | Self::Conmon => Self::LAST_RANK,
        }
    }

    /// Its sub-directories are cgroups of their own to the sampler.
    pub(crate) fn has_children(&self) -> bool {
        self.rank() < Self::LAST_RANK
    }

    pub(crate) fn file_set(&self) -> FileSet {
        match self {
            Self::Container(_) => FileSet::Container,
            Self::Pod { .. } => FileSet::Pod,
            _ => FileSet::Bandwidth,
        }
    }
}

/// What is known of the name of a container's or a pod's cgroup. The only steps are `Pending` → `Unmapped` → `Named` or
/// `Sandbox`, and `Sandbox` → `Named` when a list names it after all: a name is final for the cgroup's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Too new to be listed: read, counted and not shown yet.
    Pending,
    /// Read, counted, and shown by its id: no list has it.
    Unmapped,
    /// Its container is known.
    Named,
    /// Proven a sandbox, or a monitor: no series, no reads.
    Sandbox,
}

/// A cgroup under watch.
#[derive(Debug)]
pub(crate) struct Cgroup {
    /// Below the mount, `kubepods/burstable/pod…/…`.
    pub(crate) relative: Arc<str>,
    /// The same from the mount on, `/kubepods/burstable/pod…/…`.
    pub(crate) absolute: Arc<str>,
    pub(crate) inode: u64,
    pub(crate) kind: Kind,
    pub(crate) parent: Option<CgroupId>,
    /// The walk that last saw it.
    pub(crate) seen: u64,
    /// When it was found.
    pub(crate) found: Instant,
    pub(crate) naming: Naming,
    /// When its name is asked for while it has none.
    pub(crate) look: Look,
    pub(crate) series: Option<SeriesId>,
    pub(crate) files: Files,
    pub(crate) marks: Marks,
    pub(crate) bandwidth: Option<Bandwidth>,
    pub(crate) weight: Option<CpuWeight>,
    /// What its past says about what to read.
    pub(crate) activity: Activity,
    /// `cpu.stat` tells of bursts.
    pub(crate) has_burst: bool,
    /// What quotas on it and above it have throttled and allow; what its children inherit.
    pub(crate) path: PathQuota,
    /// v1: tells when its first process ends, the last moment at which its counters can be read.
    pub(crate) exit: Option<OwnedFd>,
    /// The kernel says that it is gone.
    pub(crate) vanished: bool,
    /// inotify reports what happens to it.
    pub(crate) is_watched: bool,
}

/// Quotas from the top down to one cgroup, itself included.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PathQuota {
    /// Throttled time of the quotas, their own `cpu.stat` added up.
    pub(crate) throttled_ns: u64,
    /// The lowest of them.
    pub(crate) limit: Option<Limit>,
    /// Some of them has, or had, a quota.
    pub(crate) had_quota: bool,
}

/// A quota as what it allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    /// Quota ÷ period.
    pub(crate) cores: f64,
    pub(crate) period_usec: u64,
}

impl Limit {
    /// `None` when the bandwidth is unlimited.
    fn of(bandwidth: Bandwidth) -> Option<Self> {
        Some(Self { cores: bandwidth.limit_cores()?, period_usec: bandwidth.period_usec })
    }

    /// The lower of two limits; the cgroup's own when they are equal, because its counters are in its own periods.
    fn lowest(own: Option<Self>, above: Option<Self>) -> Option<Self> {
        match (own, above) {
            (Some(own), Some(above)) => Some(if above.cores < own.cores { above } else { own }),
            (own, above) => own.or(above),
        }
    }
}

impl Cgroup {
    pub(crate) fn new(relative: Arc<str>, inode: u64, kind: Kind, parent: Option<CgroupId>, found: Instant) -> Self {
        let naming = if kind == Kind::Conmon { Naming::Sandbox } else { Naming::Pending };
        Self {
            files: Files::new(kind.file_set()),
            absolute: format!("/{relative}").into(),
            relative,
            inode,
            kind,
            parent,
            seen: 0,
            found,
            naming,
            look: Look::new(found),
            series: None,
            marks: Marks::default(),
            bandwidth: None,
            weight: None,
            activity: Activity::new(),
            has_burst: false,
            path: PathQuota::default(),
            exit: None,
            vanished: false,
            is_watched: false,
        }
    }

    /// Closes its files.
    pub(crate) fn close_files(&mut self, budget: &mut DescriptorBudget) {
        budget.give_back(self.files.kept());
        self.files = Files::new(self.kind.file_set());
    }

    /// Its counters are read at every tick.
    pub(crate) fn is_read(&self) -> bool {
        self.naming != Naming::Sandbox && !self.vanished
    }

    /// It has no name yet, and its time to be looked at has come; `may_answer`: some source may name it.
    pub(crate) fn is_to_be_named(&self, now: Instant, may_answer: bool) -> bool {
        let is_open = matches!(self.naming, Naming::Pending | Naming::Unmapped);
        is_open && self.look.is_due(now) && (may_answer || !self.look.is_in_vain())
    }

    /// It was never read.
    pub(crate) fn is_unread(&self) -> bool {
        !self.marks.seen
    }

    /// A container that is so new that a file of its usage may still come: a runtime makes its cgroup in one v1
    /// hierarchy after the other.
    pub(crate) fn awaits_usage(&self) -> bool {
        let is_young = || self.found.elapsed() < TIMING.complete_after;
        matches!(self.kind, Kind::Container(_)) && self.is_read() && !self.marks.user.is_known() && is_young()
    }

    /// All its files were there when it was last read.
    pub(crate) fn is_complete(&self) -> bool {
        self.activity.is_complete(self.found, &TIMING)
    }

    /// The usage that the last readings showed.
    pub(crate) fn last_usage(&self) -> LastUsage {
        LastUsage { usage_ns: self.marks.usage.last(), modes_due_ns: self.marks.modes_due_ns }
    }

    /// Takes the reading of a tick in: the gauges as they are, the counters as what they gained.
    pub(crate) fn take(&mut self, reading: &TickReading, above: PathQuota, now: Instant) -> Gains {
        // What was not read this time, or failed, is as it was.
        self.bandwidth = reading.bandwidth.read().or(self.bandwidth);
        self.weight = reading.weight.read().or(self.weight);
        let limit = self.bandwidth.and_then(Limit::of);
        let stat = reading.stat.read().unwrap_or_default();
        self.has_burst |= stat.nr_bursts.is_some();
        self.activity.had_quota |= limit.is_some() || stat.nr_periods.is_some_and(|periods| periods > 0);
        let usage_ns = reading.usage_ns();
        let has_run = usage_ns.is_none() || usage_ns != self.marks.usage.last();
        let mut gains = self.marks.advance(reading);
        let own_ns = gains.throttled_ns.unwrap_or(0);
        let gained_ns = self.marks.advance_above(reading.local_throttled_ns, above, own_ns);
        gains.ancestor_ns = above.had_quota.then_some(gained_ns);
        let has_throttled = own_ns > 0 || self.activity.above.throttled_ns != above.throttled_ns;
        // What has failed is still to be read.
        self.activity.throttle_due = has_throttled || matches!(reading.local_throttled_ns, Value::Failed);
        self.activity.settings_written |=
            matches!(reading.bandwidth, Value::Failed) || matches!(reading.weight, Value::Failed);
        self.activity.note(now, has_run || !gains.are_none());
        self.activity.above = above;
        self.path = PathQuota {
            throttled_ns: above.throttled_ns + self.marks.own_throttled_ns,
            limit: Limit::lowest(limit, above.limit),
            had_quota: above.had_quota || self.activity.had_quota,
        };
        gains
    }
}

/// The last value of each counter of a cgroup.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    seen: bool,
    usage: Mark,
    user: HighWater,
    system: HighWater,
    /// v1: [`LastUsage::modes_due_ns`].
    modes_due_ns: Option<u64>,
    periods: Mark,
    throttled_periods: Mark,
    throttled: Mark,
    bursts: Mark,
    burst: Mark,
    pressure_some: Mark,
    pressure_full: Mark,
    local: HighWater,
    /// Where the ancestors' own counts stood when this cgroup was last read.
    ancestors: Option<u64>,
    beyond: Beyond,
    own_throttled_ns: u64,
    /// By its own quota and its ancestors'.
    pub(crate) throttled_time: ThrottledTime,
}

/// What the counters gained since the reading before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gains {
    /// The first reading of this cgroup: the gains are its history.
    pub(crate) first: bool,
    pub(crate) usage_ns: Option<u64>,
    pub(crate) user_ns: Option<u64>,
    pub(crate) system_ns: Option<u64>,
    pub(crate) periods: Option<u64>,
    pub(crate) throttled_periods: Option<u64>,
    pub(crate) throttled_ns: Option<u64>,
    pub(crate) burst_periods: Option<u64>,
    pub(crate) burst_ns: Option<u64>,
    pub(crate) ancestor_ns: Option<u64>,
}

impl Gains {
    /// No counter of the quota has moved.
    fn are_none(&self) -> bool {
        let counters = [self.periods, self.throttled_periods, self.throttled_ns];
        !self.first && counters.into_iter().flatten().all(|gained| gained == 0)
    }
}

impl Marks {
    fn advance(&mut self, reading: &TickReading) -> Gains {
        let first = !std::mem::replace(&mut self.seen, true);
        let stat = &reading.stat.read().unwrap_or_default();
        let (user_ns, system_ns) = self.advance_modes(reading);
        let mut gain = |mark: fn(&mut Self) -> &mut Mark, value: Option<u64>| value.map(|now| mark(self).advance(now));
        let gains = Gains {
            first,
            usage_ns: gain(|marks| &mut marks.usage, reading.usage_ns()),
            user_ns,
            system_ns,
            periods: gain(|marks| &mut marks.periods, stat.nr_periods),
            throttled_periods: gain(|marks| &mut marks.throttled_periods, stat.nr_throttled),
            throttled_ns: gain(|marks| &mut marks.throttled, stat.throttled_ns),
            burst_periods: gain(|marks| &mut marks.bursts, stat.nr_bursts),
            burst_ns: gain(|marks| &mut marks.burst, stat.burst_ns),
            ancestor_ns: None,
        };
        self.own_throttled_ns += gains.throttled_ns.unwrap_or(0);
        gains
    }

    /// What user and system time gained. They begin again with the usage; alone, they are held where they step back.
    fn advance_modes(&mut self, reading: &TickReading) -> (Option<u64>, Option<u64>) {
        let usage_ns = reading.usage_ns();
        if usage_ns.zip(self.usage.last()).is_some_and(|(now, last)| now < last) {
            (self.user, self.system) = (HighWater::default(), HighWater::default());
        }
        let modes = reading.modes();
        self.modes_due_ns = usage_ns.zip(reading.acct.read()).map(|(now, acct)| acct.due_ns(now)).or(self.modes_due_ns);
        let user_ns = modes.user_ns.map(|ns| self.user.advance(ns));
        (user_ns, modes.system_ns.map(|ns| self.system.advance(ns)))
    }

    /// What the ancestors' quotas throttled this cgroup: `cpu.stat.local` less its own count.
    fn advance_local(&mut self, local_ns: u64) -> u64 {
        // Not read where it is quiet, and then as it was; nor where it never had a quota: then it counts nothing.
        let own = self.throttled.last().unwrap_or(0);
        self.local.advance(local_ns.saturating_sub(own))
    }

    /// What the ancestors' quotas throttled. Where the kernel has no `cpu.stat.local`, that is what their own counts
    /// gained while this cgroup lived, beyond what its own count did.
    fn advance_above(&mut self, local_ns: Value<u64>, above: PathQuota, own_ns: u64) -> u64 {
        // The least and the most that this cgroup waited for ancestors' quotas.
        let (gained_ns, least_ns, most_ns) = match local_ns {
            Value::Read(local_ns) => {
                let gained_ns = self.advance_local(local_ns);
                (gained_ns, gained_ns, gained_ns)
            }
            Value::NotRead | Value::Failed => (0, 0, 0),
            Value::Absent => {
                let before = self.ancestors.replace(above.throttled_ns).unwrap_or(above.throttled_ns);
                let all_ns = above.throttled_ns - before;
                // Not beyond its own: the two need not have run out at the same time.
                (self.beyond.advance(own_ns, all_ns), 0, all_ns)
            }
        };
        self.throttled_time.add(own_ns + least_ns, own_ns + most_ns);
        gained_ns
    }

    /// What pressure gained: (some, full).
    pub(crate) fn advance_pressure(&mut self, now: CpuPressure) -> (Option<u64>, Option<u64>) {
        let some = now.some_ns.map(|ns| self.pressure_some.advance(ns));
        (some, now.full_ns.map(|ns| self.pressure_full.advance(ns)))
    }

    /// The ancestors' history is this cgroup's too: both were found at the same time.
    pub(crate) fn inherit_history(&mut self) {
        self.ancestors = Some(0);
    }
}
