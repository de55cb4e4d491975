//! One watched cgroup: its kind, its files and the last value of each counter.

mod counters;
mod pod_sandbox;
mod standing;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use cgroup_tree::CgroupId;
use cgroup_tree::Role;
use cgroupfs::Hierarchy;
use kernel_text::Bandwidth;
use kubepods::path::{self, CgroupPath, Driver, PodCgroup, QosClass};
use snapshot::{CpuLimit, CpuWeight, KernelCounters, Limit};

use crate::budget::DescriptorBudget;
use crate::counter::Context;
use crate::files::{FileId, FileSet, Files, Keeping};
use crate::naming::LookupSchedule;
use crate::nested::Nested;
use crate::plan::Activity;
use crate::reading::{LastUsage, TickReading, Value};
use crate::series::SeriesId;
use crate::timing::Timing;
pub(crate) use counters::{Deltas, LastCounters};
pub(crate) use pod_sandbox::{PodSandbox, is_busy};

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
    /// The container id, or the name of a cgroup without one.
    pub(crate) id: Box<str>,
    pub(crate) qos: QosClass,
    pub(crate) driver: Driver,
}

impl ContainerKey {
    /// Whether the cgroup may be a container's: its name has an id.
    pub(crate) fn has_container_id(&self) -> bool {
        path::container_id(&self.id) == Some(&self.id)
    }
}

impl SampledKind {
    /// Kind of a cgroup of the tree; `None` if the sampler does not read such a cgroup.
    pub(crate) fn of(role: &Role) -> Option<Self> {
        let path = match role {
            Role::Above => return Some(Self::Above),
            Role::Root => return Some(Self::Root),
            Role::Foreign { pod, id } => return Some(Self::of_container(pod, id)),
            Role::Stray(container) => {
                return Some(Self::of_container(&container.pod, &container.id));
            }
            Role::Known(path) => path,
        };
        match path {
            CgroupPath::Partition { .. } => Some(Self::Partition),
            CgroupPath::Qos { .. } => Some(Self::Qos),
            CgroupPath::Pod(pod) => Some(Self::Pod { uid: pod.uid.clone() }),
            CgroupPath::Conmon(_) => Some(Self::Conmon),
            CgroupPath::Nested { .. } => None,
            CgroupPath::Container(container) => {
                Some(Self::of_container(&container.pod, &container.id))
            }
        }
    }

    fn of_container(pod: &PodCgroup, id: &str) -> Self {
        let (qos, driver) = (pod.qos, pod.root.driver);
        Self::Container(ContainerKey { uid: pod.uid.clone(), id: id.into(), qos, driver })
    }

    /// The container or sandbox.
    pub(crate) fn container(&self) -> Option<&ContainerKey> {
        match self {
            Self::Container(key) => Some(key),
            _ => None,
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
/// `Sandbox`, `Sandbox` → `BusySandbox`, and from both to `Named` if a pod list names it later. A
/// name is final for the cgroup's lifetime.
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
    /// A sandbox that uses CPU, as those of gVisor and Kata do: shown as part of its pod.
    BusySandbox,
}

impl Naming {
    /// Whether it has no name yet.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Unmapped)
    }
}

/// A watched cgroup.
#[derive(Debug)]
pub(crate) struct SampledCgroup {
    /// Path below the mount, such as `kubepods/burstable/pod…/…`.
    pub(crate) relative: Arc<str>,
    pub(crate) inode: u64,
    /// v1: inode in the hierarchy with cpuacct, once it was needed.
    acct_inode: Option<u64>,
    pub(crate) kind: SampledKind,
    pub(crate) parent: Option<CgroupId>,
    /// Time of discovery.
    pub(crate) found: Instant,
    /// Whether its creation was reported: its counters began at zero while the agent ran.
    pub(crate) seen_created: bool,
    pub(crate) naming: Naming,
    /// Schedule of the name lookups while it is unnamed.
    pub(crate) lookup: LookupSchedule,
    pub(crate) series: Option<SeriesId>,
    pub(crate) files: Files,
    pub(crate) last: LastCounters,
    pub(crate) settings: CgroupSettings,
    /// Cgroups below a container, if it has some.
    pub(crate) nested: Option<Box<Nested>>,
    /// Recent activity, which decides what to read.
    pub(crate) activity: Activity,
    /// Limit and throttled time of its own and its ancestors' quotas; inherited by its children.
    pub(crate) path: PathQuota,
    /// v1: pidfd of its first process. The end of that process is the last moment at which its
    /// counters can be read.
    pub(crate) exit: Option<OwnedFd>,
    /// Whether a read has reported that it is gone.
    pub(crate) vanished: bool,
    /// Usage of a sandbox at a walk, nanoseconds.
    pub(crate) sandbox_usage: Option<(Instant, u64)>,
    /// A pod's own usage, if its runtime class is one of a sandbox.
    pub(crate) pod_sandbox: Option<Box<PodSandbox>>,
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

impl SampledCgroup {
    pub(crate) fn new(
        cgroup: &cgroup_tree::TreeCgroup,
        kind: SampledKind,
        keeping: Keeping,
    ) -> Self {
        let naming = if kind == SampledKind::Conmon { Naming::Sandbox } else { Naming::Pending };
        Self {
            files: Files::new(kind.file_set(), keeping),
            relative: Arc::clone(&cgroup.path),
            inode: cgroup.inode,
            acct_inode: None,
            kind,
            parent: cgroup.parent,
            found: cgroup.found,
            seen_created: cgroup.seen_created,
            naming,
            lookup: LookupSchedule::new(cgroup.found),
            series: None,
            last: LastCounters::default(),
            settings: CgroupSettings::default(),
            nested: None,
            activity: Activity::new(),
            path: PathQuota::default(),
            exit: None,
            vanished: false,
            sandbox_usage: None,
            pod_sandbox: None,
        }
    }

    /// Closes its files and returns their descriptors to the budget.
    pub(crate) fn close_files(&mut self, budget: &mut DescriptorBudget) {
        budget.give_back(self.files.kept());
        self.files = Files::new(self.kind.file_set(), self.files.keeping());
    }

    /// v1: inode in the hierarchy with cpuacct, of a cgroup whose usage is read.
    pub(crate) fn acct_inode(&mut self, hierarchy: &Hierarchy) -> Option<u64> {
        if self.acct_inode.is_none() && self.files.has(FileId::AcctUsage) {
            let mount = hierarchy.cpuacct.as_ref()?;
            self.acct_inode = cgroupfs::inode(&mount.join(&*self.relative)).ok();
        }
        self.acct_inode
    }

    /// Whether its counters are read.
    pub(crate) fn is_read(&self) -> bool {
        self.naming != Naming::Sandbox && !self.vanished
    }

    /// Whether it may still get a name. `may_answer`: some source may still name it.
    pub(crate) fn may_be_named(&self, may_answer: bool, timing: &Timing) -> bool {
        let is_named_on_its_own = match self.kind {
            SampledKind::Container(_) => true,
            SampledKind::Pod { .. } => self.series.is_some(),
            _ => false,
        };
        is_named_on_its_own
            && self.naming.is_open()
            && (may_answer || !self.lookup.is_exhausted(timing))
    }

    /// Whether it is unnamed and its next lookup is due. `may_answer`: some source may still name
    /// it.
    pub(crate) fn is_to_be_named(&self, now: Instant, may_answer: bool, timing: &Timing) -> bool {
        self.naming.is_open()
            && self.lookup.is_due(now)
            && (may_answer || !self.lookup.is_exhausted(timing))
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

    /// The kernel's own counters at the last readings.
    pub(crate) fn kernel_counters(&self) -> KernelCounters {
        self.last.kernel(self.activity.had_quota)
    }

    /// Applies the reading of a tick: stores the gauges and returns the increments of the counters.
    pub(crate) fn take(
        &mut self,
        reading: &TickReading,
        above: PathQuota,
        context: &mut Context<'_>,
    ) -> Deltas {
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
        let mut deltas = self.last.advance(reading, context);
        let last_read = self.activity.counters_read;
        deltas.first = last_read.is_none();
        let own_ns = deltas.cfs.read().map_or(0, |cfs| cfs.throttled_ns);
        if let Some((period, read)) = self.settings.period().zip(last_read) {
            let elapsed = context.now.saturating_duration_since(read);
            self.last.count_standing(&mut deltas, period, elapsed);
        }
        let delta_ns = self.last.advance_above(reading.local_throttled_ns, above, own_ns, context);
        deltas.ancestor_ns = above.had_quota.then_some(delta_ns);
        let has_throttled = own_ns > 0 || self.activity.above.throttled_ns != above.throttled_ns;
        self.activity.has_usage |= matches!(deltas.user_ns, Value::Read(_));
        // Read again next time what failed now.
        self.activity.throttle_due =
            has_throttled || matches!(reading.local_throttled_ns, Value::Failed);
        self.activity.settings_written |=
            matches!(reading.bandwidth, Value::Failed) || matches!(reading.weight, Value::Failed);
        self.activity.note(context.now, has_run || !deltas.are_zero());
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
pub(crate) struct CgroupSettings {
    /// Quota and period.
    pub(crate) bandwidth: Value<Bandwidth>,
    pub(crate) weight: Value<CpuWeight>,
}

impl CgroupSettings {
    /// CPU limit by its own quota.
    pub(crate) fn cpu_limit(&self) -> Limit<CpuLimit> {
        match self.bandwidth {
            Value::Read(bandwidth) => Limit::of(bandwidth),
            Value::Absent => Limit::Absent,
            Value::NotRead | Value::Failed => Limit::NotRead,
        }
    }

    /// Period of its own quota.
    fn period(&self) -> Option<Duration> {
        let usec = self.bandwidth.read()?.period_usec;
        (usec > 0).then(|| Duration::from_micros(usec))
    }

    /// Stores the settings that were read.
    fn take(&mut self, reading: &TickReading) {
        self.bandwidth.update(reading.bandwidth);
        self.weight.update(reading.weight);
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
