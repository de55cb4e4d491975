//! Reading and parsing of one cgroup's files at every tick.

use std::io;

use kernel_text::{Bandwidth, CpuStat, CpuacctStat, ParseError, Quota, USER_TICK_NS, parse_u64};
use snapshot::CpuWeight;

use crate::files::{CgroupDir, FileId, Files, ReadBuffers, ReadErrors};
use crate::plan::ReadPlan;

/// Result of reading a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Value<T> {
    /// This kernel or cgroup has no such file.
    Absent,
    /// Not read in this tick: the last value still holds.
    #[default]
    NotRead,
    /// The read or the parse failed and was counted: the current value is unknown.
    Failed,
    Read(T),
}

impl<T> Value<T> {
    /// The value, if it was read.
    pub(crate) fn read(self) -> Option<T> {
        match self {
            Self::Read(value) => Some(value),
            Self::Absent | Self::NotRead | Self::Failed => None,
        }
    }

    /// Replaces the value by a later one. A value that was read stays until another is read.
    pub(crate) fn update(&mut self, later: Self) {
        let stays = match later {
            Self::Read(_) => false,
            Self::NotRead => true,
            Self::Absent | Self::Failed => matches!(self, Self::Read(_)),
        };
        if !stays {
            *self = later;
        }
    }

    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Value<U> {
        match self {
            Self::Absent => Value::Absent,
            Self::NotRead => Value::NotRead,
            Self::Failed => Value::Failed,
            Self::Read(value) => Value::Read(map(value)),
        }
    }

    /// One field of the value; absent if the file does not contain it.
    pub(crate) fn field<U>(self, field: impl FnOnce(T) -> Option<U>) -> Value<U> {
        match self.map(field) {
            Value::Read(Some(field)) => Value::Read(field),
            Value::Read(None) | Value::Absent => Value::Absent,
            Value::NotRead => Value::NotRead,
            Value::Failed => Value::Failed,
        }
    }

    /// The value of another file if this one is absent.
    pub(crate) fn or(self, other: impl FnOnce() -> Self) -> Self {
        if matches!(self, Self::Absent) { other() } else { self }
    }
}

/// Reads and parses files, and counts failures.
pub(crate) struct Reader<'a> {
    pub(crate) files: &'a Files,
    pub(crate) dir: CgroupDir<'a>,
    pub(crate) buffers: &'a mut ReadBuffers,
    pub(crate) errors: &'a mut ReadErrors,
    /// Content of `cpu.stat`, and the quota, if they were collected in this tick.
    pub(crate) collected: Option<(CpuStat, Bandwidth)>,
    /// Content of `cpuacct.usage`, if it was collected in this tick.
    pub(crate) collected_usage_ns: Option<u64>,
    /// Whether a read has reported that the cgroup is gone.
    pub(crate) vanished: bool,
}

impl Reader<'_> {
    /// Reads and parses one file; counts failures.
    pub(crate) fn get<T>(
        &mut self,
        id: FileId,
        parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
    ) -> Value<T> {
        let text = self.files.read(id, self.dir, self.buffers);
        parsed(text, parse, self.errors, &mut self.vanished)
    }

    /// Opens, reads and parses a file of cgroup v2 that is never kept open; counts failures.
    pub(crate) fn open<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
    ) -> Value<T> {
        let text = self.dir.open(name, self.buffers);
        parsed(text, parse, self.errors, &mut self.vanished)
    }

    /// The same if the plan includes the file. A file that does not exist is absent, whatever the
    /// plan.
    fn get_if<T>(
        &mut self,
        is_planned: bool,
        id: FileId,
        parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
    ) -> Value<T> {
        if is_planned || !self.files.has(id) { self.get(id, parse) } else { Value::NotRead }
    }

    /// Reads `cpu.stat` if the plan includes it. What was collected in this tick is as good, unless
    /// `cpu.stat.local` was read since.
    fn stat(&mut self, is_planned: bool, plan: &ReadPlan) -> Value<CpuStat> {
        let is_collected = is_planned && !plan.local && self.files.has(FileId::CpuStat);
        match self.collected.filter(|_| is_collected) {
            Some((stat, _)) => Value::Read(stat),
            None => self.get_if(is_planned, FileId::CpuStat, CpuStat::parse),
        }
    }

    /// Reads `cpuacct.usage`, unless it was collected in this tick.
    fn acct_usage_ns(&mut self) -> Value<u64> {
        match self.collected_usage_ns {
            Some(usage_ns) => Value::Read(usage_ns),
            None => self.get(FileId::AcctUsage, |text| parse_u64("cpuacct.usage", text)),
        }
    }
}

/// The value of a text, or of a failure, which is counted.
fn parsed<T>(
    text: io::Result<Option<&[u8]>>,
    parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
    errors: &mut ReadErrors,
    vanished: &mut bool,
) -> Value<T> {
    let text = match text {
        Ok(Some(text)) => text,
        Ok(None) => return Value::Absent,
        Err(error) => {
            *vanished |= errors.count(&error);
            return Value::Failed;
        }
    };
    match parse(text) {
        Ok(value) => Value::Read(value),
        Err(_) => {
            errors.parse += 1;
            Value::Failed
        }
    }
}

/// Values that are read at every tick.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TickReading {
    pub(crate) stat: Value<CpuStat>,
    /// Throttled time by any quota, including the ancestors' (`cpu.stat.local`).
    pub(crate) local_throttled_ns: Value<u64>,
    /// v1: `cpuacct.usage`.
    pub(crate) acct_usage_ns: Value<u64>,
    /// v1: `cpuacct.stat`.
    pub(crate) acct: Value<Modes>,
    pub(crate) bandwidth: Value<Bandwidth>,
    pub(crate) weight: Value<CpuWeight>,
}

/// Usage of a cgroup at the last readings.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LastUsage {
    pub(crate) usage_ns: Option<u64>,
    /// v1: usage above which `cpuacct.stat` may have changed since its last read, nanoseconds.
    pub(crate) modes_due_ns: Option<u64>,
}

impl LastUsage {
    /// Whether user and system time must be read again at this usage.
    fn modes_are_due(self, usage_ns: u64) -> bool {
        let went_back = self.usage_ns.is_some_and(|last| usage_ns < last);
        went_back || self.modes_due_ns.is_none_or(|due| usage_ns >= due)
    }
}

/// User and system time of a cgroup, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Modes {
    pub(crate) user_ns: Option<u64>,
    pub(crate) system_ns: Option<u64>,
}

impl Modes {
    /// Converts the ticks of `cpuacct.stat`.
    pub(crate) fn of_ticks(acct: CpuacctStat) -> Self {
        let nanoseconds = |ticks: Option<u64>| ticks?.checked_mul(USER_TICK_NS);
        Self { user_ns: nanoseconds(acct.user_ticks), system_ns: nanoseconds(acct.system_ticks) }
    }

    /// Usage at which `cpuacct.stat` will have changed, given these values at `usage_ns`. Each mode
    /// is rounded down to whole ticks, so their sum is less than two ticks short. Before Linux 5.17
    /// the kernel samples them at its clock ticks, so the error may be larger, in either direction.
    pub(crate) fn due_ns(self, usage_ns: u64) -> u64 {
        let shown_ns = self.user_ns.unwrap_or(0).saturating_add(self.system_ns.unwrap_or(0));
        match shown_ns.saturating_add(2 * USER_TICK_NS) {
            due_ns if due_ns > usage_ns => due_ns.min(usage_ns + 2 * USER_TICK_NS),
            _ => usage_ns + USER_TICK_NS,
        }
    }
}

impl TickReading {
    /// CPU time of the cgroup and its descendants, nanoseconds.
    pub(crate) fn usage_ns(&self) -> Value<u64> {
        self.acct_usage_ns.or(|| self.stat.field(|stat| stat.usage_ns))
    }

    /// User and system part of the usage: the kernel's own counters, which never decrease. Their
    /// sum may be less than the usage, because each is rounded down to its unit. Parts that always
    /// add up to the usage would depend on what was shown before, and would decrease at a restart
    /// of the agent.
    pub(crate) fn modes(&self) -> Value<Modes> {
        let of_stat = |stat: CpuStat| Modes { user_ns: stat.user_ns, system_ns: stat.system_ns };
        self.acct.or(|| self.stat.map(of_stat))
    }

    /// Reads the files that the plan selects.
    pub(crate) fn read(reader: &mut Reader<'_>, plan: &ReadPlan, last: LastUsage) -> Self {
        let bandwidth = match reader.collected {
            Some((_, bandwidth)) => Value::Read(bandwidth),
            None => bandwidth(reader, plan.settings),
        };
        let has_quota = bandwidth.read().is_some_and(|bandwidth| bandwidth.quota != Quota::Max);
        // Read `local` before `stat`: it includes the cgroup's own throttling. A throttle counted
        // between the two reads can only reduce the ancestors' part, and the next reading corrects
        // it.
        let local = reader.get_if(plan.local, FileId::CpuStatLocal, CpuStat::parse);
        let usage = reader.acct_usage_ns();
        let has_run = usage.read().is_none_or(|usage| last.usage_ns != Some(usage));
        let is_stat_due = plan.stat.is_due(has_run, has_quota);
        let are_modes_due = usage.read().is_some_and(|usage| last.modes_are_due(usage));
        Self {
            local_throttled_ns: local.field(|local| local.throttled_ns),
            stat: reader.stat(is_stat_due, plan),
            acct_usage_ns: usage,
            acct: reader
                .get_if(are_modes_due, FileId::AcctStat, CpuacctStat::parse)
                .map(Modes::of_ticks),
            bandwidth,
            weight: weight(reader, plan.settings),
        }
    }
}

fn bandwidth(reader: &mut Reader<'_>, is_planned: bool) -> Value<Bandwidth> {
    let v2 = reader.get_if(is_planned, FileId::CpuMax, Bandwidth::parse_v2);
    v2.or(|| bandwidth_v1(reader, is_planned))
}

fn bandwidth_v1(reader: &mut Reader<'_>, is_planned: bool) -> Value<Bandwidth> {
    let quota = match reader.get_if(is_planned, FileId::CfsQuota, Quota::parse_v1) {
        Value::Read(quota) => quota,
        other => return other.map(|quota| Bandwidth { quota, period_usec: 0 }),
    };
    let period = |text: &[u8]| parse_u64("cpu.cfs_period_us", text);
    match reader.get_if(is_planned, FileId::CfsPeriod, period) {
        // The kernel never prints a period of 0.
        Value::Read(0) => Value::Failed,
        period => period.map(|period_usec| Bandwidth { quota, period_usec }),
    }
}

fn weight(reader: &mut Reader<'_>, is_planned: bool) -> Value<CpuWeight> {
    let number = |text: &[u8]| parse_u64("cpu.weight", text);
    let v2 = reader.get_if(is_planned, FileId::CpuWeight, number).map(CpuWeight::Weight);
    v2.or(|| reader.get_if(is_planned, FileId::CpuShares, number).map(CpuWeight::Shares))
}
