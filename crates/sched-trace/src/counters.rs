//! The CPU counters of all cgroups by one call of the kernel, instead of one read of `cpu.stat` per
//! cgroup.
//!
//! `bpf/counters.bpf.c` walks the scheduler's task groups, and on cgroup v1 the cgroups with cpuacct.
//! Its programs are never attached: [`GroupCounters::collect`] and
//! [`GroupCounters::collect_usage`] run one each.

mod usage;

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use aya::maps::Map;
use aya::programs::{ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun as _};
use aya::{Ebpf, EbpfError};
use foldhash::{HashMap, HashMapExt as _};
use kernel_text::{Bandwidth, CgroupVersion, CpuStat, Quota};

use crate::error::StartError;
use crate::mapped::{Mapped, Shared};
use crate::program::is_locked_down;
use crate::types::KernelTypes;
pub(crate) use usage::Usage;
use usage::Usages;

/// The program, built from `bpf/counters.bpf.c` by `cargo xtask bpf`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/counters.bpf.o");

const NAME: &str = "collect";
const TABLE: &str = "groups";

/// Maximum number of cgroups that are collected; 768 KiB of kernel memory.
const GROUPS: u32 = 8192;
/// Number of records that are mapped in one step, 48 KiB: the agent's own memory has the pages of
/// those that the node needs.
const MAPPED: usize = 512;

/// Inode of the root cgroup.
const ROOT: u64 = 1;
/// `RUNTIME_INF` in kernel/sched/sched.h.
const NO_QUOTA: u64 = u64::MAX;

/// Counters of one cgroup: `struct group` of the program, word for word.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Group {
    cgroup: AtomicU64,
    throttled_ns: AtomicU64,
    burst_ns: AtomicU64,
    usage_ns: AtomicU64,
    user_ns: AtomicU64,
    system_ns: AtomicU64,
    shown_user_ns: AtomicU64,
    shown_system_ns: AtomicU64,
    periods: AtomicU32,
    throttled_periods: AtomicU32,
    burst_periods: AtomicU32,
    has_burst: AtomicU32,
    quota_ns: AtomicU64,
    period_ns: AtomicU64,
}

/// The program cannot collect the counters now.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The kernel did not run it.
    #[error("the kernel did not run the program")]
    Run(#[source] ProgramError),
    /// The table is full.
    #[error("the node has more than {GROUPS} cgroups down to the level of its containers")]
    TooMany,
    /// There is no memory for more records.
    #[error("cannot map the table")]
    Map(#[source] io::Error),
}

/// Record of a cgroup, and its user and system time as `cpu.stat` would have printed them last.
#[derive(Debug, Clone, Copy)]
struct Known {
    record: u32,
    shown: Modes,
}

/// The loaded program and its table.
#[derive(Debug)]
pub struct GroupCounters {
    ebpf: Ebpf,
    groups: Mapped<Group>,
    version: CgroupVersion,
    /// Number of records of the last run.
    written: usize,
    known: HashMap<u64, Known>,
    /// Cgroup v1: the usage; `None` if the kernel cannot collect it for less than its files cost.
    usages: Option<Usages>,
}

impl GroupCounters {
    /// Loads the program.
    ///
    /// # Errors
    /// A [`StartError`] if the program cannot run here.
    pub fn load(
        sys_root: &Path,
        types: &KernelTypes,
        version: CgroupVersion,
    ) -> Result<Self, StartError> {
        let is_locked_down = is_locked_down(sys_root);
        let cpus = usage::cpus(sys_root, version);
        let mut ebpf = relocate(types, version, cpus)
            .map_err(|error| StartError::on_load(error, is_locked_down))?;
        load(&mut ebpf, NAME).map_err(|error| StartError::on_verify(error, is_locked_down))?;
        let groups =
            map(&ebpf, TABLE, MAPPED).map_err(|error| StartError::Maps(TABLE.to_owned(), error))?;
        // Without it the usage is read from its files.
        let usages = cpus.and_then(|_| Usages::load(&mut ebpf).ok());
        Ok(Self { ebpf, groups, version, written: 0, known: HashMap::new(), usages })
    }

    /// Reads the counters of the cgroups at most `levels` below the kernel's root, or of all with
    /// `None`, and returns their number. On cgroup v2 the usage is that of the last read of an ancestor's
    /// `cpu.stat`, which must come first.
    ///
    /// # Errors
    /// The program did not run, or the node has too many cgroups; there are no counters then.
    pub fn collect(&mut self, levels: Option<u32>) -> Result<usize, CollectError> {
        self.written = 0;
        let written = run(&self.ebpf, NAME, levels)?;
        if written > self.groups.len() {
            self.groups = map(&self.ebpf, TABLE, written).map_err(CollectError::Map)?;
        }
        self.written = written;
        self.index();
        Ok(written)
    }

    /// Cgroup v1: reads the usage of the cgroups with cpuacct at most `levels` below the kernel's
    /// root, and returns their number. `None` if this kernel has no cheaper way than their files.
    pub fn collect_usage(&mut self, levels: Option<u32>) -> Option<usize> {
        self.usages.as_mut()?.collect(&self.ebpf, levels).ok()
    }

    /// Cgroup v1: usage of the cgroup with this inode in the hierarchy with cpuacct at the last
    /// [`collect_usage`](Self::collect_usage), nanoseconds: what `cpuacct.usage` prints. `None` if it
    /// was not read.
    pub fn usage_ns(&self, inode: u64) -> Option<u64> {
        self.usages.as_ref()?.get(inode)
    }

    /// Finds the record of each cgroup, if cgroups came or went.
    fn index(&mut self) {
        let records = &self.groups[..self.written];
        let is_known = |(record, group): (usize, &Group)| {
            let known = self.known.get(&group.cgroup.load(Relaxed));
            known.is_some_and(|known| known.record as usize == record)
        };
        if records.len() == self.known.len() && records.iter().enumerate().all(is_known) {
            return;
        }
        let mut before = std::mem::take(&mut self.known);
        self.known = (0_u32..)
            .zip(records)
            .map(|(record, group)| {
                let cgroup = group.cgroup.load(Relaxed);
                let shown = before.remove(&cgroup).map_or_else(|| Modes::shown(group), |k| k.shown);
                (cgroup, Known { record, shown })
            })
            .collect();
    }

    /// Content of `cpu.stat` of the cgroup with this inode, and its quota, at the last
    /// [`collect`](Self::collect); `None` if it was not read: it is newer, it has no cpu controller,
    /// or it is the root, whose file has other contents. On cgroup v1 without the usage, as the file
    /// there.
    pub fn get(&mut self, inode: u64) -> Option<(CpuStat, Bandwidth)> {
        if inode == ROOT {
            return None;
        }
        let known = self.known.get_mut(&inode)?;
        let group = self.groups[..self.written].get(known.record as usize)?;
        if group.cgroup.load(Relaxed) != inode {
            return None;
        }
        let mut stat = stat(group);
        if self.version == CgroupVersion::V2 {
            let usage_ns = group.usage_ns.load(Relaxed);
            known.shown =
                known.shown.later(Modes::shown(group)).scaled(&Modes::raw(group), usage_ns);
            stat.usage_ns = Some(usage_ns);
            stat.user_ns = Some(known.shown.user_ns);
            stat.system_ns = Some(known.shown.system_ns);
            stat = in_microseconds(stat);
        }
        Some((stat, bandwidth(group)))
    }
}

/// Relocates the object for this kernel and creates its maps. `cpus`: number of possible CPUs, if the
/// usage is collected by itself.
fn relocate(
    types: &KernelTypes,
    version: CgroupVersion,
    cpus: Option<u32>,
) -> Result<Ebpf, EbpfError> {
    let has_usage = u32::from(version == CgroupVersion::V2);
    types
        .loader()
        .override_global("has_usage", &has_usage, true)
        .override_global("cpus", &cpus.unwrap_or(0), true)
        .map_max_entries(TABLE, GROUPS)
        .map_max_entries(usage::TABLE, cpus.map_or(1, |_| GROUPS))
        .load(OBJECT)
}

/// Loads a program of the object.
fn load(ebpf: &mut Ebpf, name: &str) -> Result<(), ProgramError> {
    let program: &mut RawTracePoint = ebpf
        .program_mut(name)
        .and_then(|program| program.try_into().ok())
        .expect("the object has this program in a raw_tp section");
    program.load()
}

/// Runs a loaded program, and returns the number of records that it wrote.
fn run(ebpf: &Ebpf, name: &str, levels: Option<u32>) -> Result<usize, CollectError> {
    let program: &RawTracePoint = ebpf
        .program(name)
        .and_then(|program| program.try_into().ok())
        .expect("the program was loaded");
    let mut options = RawTracePointRunOptions::new();
    options.args[0] = levels.map_or(u64::MAX, u64::from);
    let run = program.test_run(options).map_err(CollectError::Run)?;
    match run.return_value as usize {
        0 => Err(CollectError::TooMany),
        written => Ok(written),
    }
}

/// Maps a table's first records, at least `records` of them.
fn map<T: Shared>(ebpf: &Ebpf, table: &str, records: usize) -> io::Result<Mapped<T>> {
    let Some(Map::Array(table)) = ebpf.map(table) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let records = records.next_multiple_of(MAPPED).min(GROUPS as usize);
    Ok(Mapped::new(table.fd().as_fd(), records)?)
}

/// As the files print it: `cpu.max`, `cpu.cfs_quota_us` and `cpu.cfs_period_us`.
fn bandwidth(group: &Group) -> Bandwidth {
    let quota = match group.quota_ns.load(Relaxed) {
        NO_QUOTA => Quota::Max,
        quota_ns => Quota::Usec(quota_ns / 1000),
    };
    Bandwidth { quota, period_usec: group.period_ns.load(Relaxed) / 1000 }
}

fn stat(group: &Group) -> CpuStat {
    let has_burst = group.has_burst.load(Relaxed) != 0;
    let number = |number: &AtomicU32| Some(u64::from(number.load(Relaxed)));
    CpuStat {
        nr_periods: number(&group.periods),
        nr_throttled: number(&group.throttled_periods),
        throttled_ns: Some(group.throttled_ns.load(Relaxed)),
        nr_bursts: number(&group.burst_periods).filter(|_| has_burst),
        burst_ns: Some(group.burst_ns.load(Relaxed)).filter(|_| has_burst),
        ..CpuStat::default()
    }
}

/// The file of v2 prints microseconds.
fn in_microseconds(stat: CpuStat) -> CpuStat {
    let cut = |ns: Option<u64>| ns.map(|ns| ns / 1000 * 1000);
    CpuStat {
        usage_ns: cut(stat.usage_ns),
        user_ns: cut(stat.user_ns),
        system_ns: cut(stat.system_ns),
        throttled_ns: cut(stat.throttled_ns),
        burst_ns: cut(stat.burst_ns),
        ..stat
    }
}

/// User and system time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Modes {
    user_ns: u64,
    system_ns: u64,
}

impl Modes {
    /// As the file printed them last.
    fn shown(group: &Group) -> Self {
        Self {
            user_ns: group.shown_user_ns.load(Relaxed),
            system_ns: group.shown_system_ns.load(Relaxed),
        }
    }

    /// The one that was shown later: `self`, or what a reader of the file saw since.
    fn later(self, read: Self) -> Self {
        let sum = |modes: Self| modes.user_ns.saturating_add(modes.system_ns);
        if sum(read) > sum(self) { read } else { self }
    }

    /// As counted at clock ticks: only their ratio is meaningful.
    fn raw(group: &Group) -> Self {
        Self { user_ns: group.user_ns.load(Relaxed), system_ns: group.system_ns.load(Relaxed) }
    }

    /// Parts of the usage in the ratio of `raw`, neither less than the last time; `cputime_adjust`
    /// in kernel/sched/cputime.c.
    fn scaled(self, raw: &Self, usage_ns: u64) -> Self {
        if self.user_ns.saturating_add(self.system_ns) >= usage_ns {
            return self;
        }
        let system_ns = match raw {
            Self { system_ns: 0, .. } => 0,
            Self { user_ns: 0, .. } => usage_ns,
            Self { user_ns, system_ns } => share(*system_ns, *user_ns, usage_ns),
        };
        let user_ns = usage_ns - system_ns.clamp(self.system_ns, usage_ns);
        match user_ns < self.user_ns {
            true => Self { user_ns: self.user_ns, system_ns: usage_ns - self.user_ns },
            false => Self { user_ns, system_ns: usage_ns - user_ns },
        }
    }
}

/// The part of `of` that `part` is of `part + other`.
fn share(part: u64, other: u64, of: u64) -> u64 {
    let sum = u128::from(part) + u128::from(other);
    u64::try_from(u128::from(part) * u128::from(of) / sum.max(1)).unwrap_or(of).min(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_add_up_to_the_usage_and_never_go_back() {
        let of = |user_ns, system_ns| Modes { user_ns, system_ns };
        let (raw, none) = (of(30, 10), of(0, 0));
        assert_eq!(none.scaled(&raw, 100), of(75, 25));
        assert_eq!(none.scaled(&of(30, 0), 100), of(100, 0));
        assert_eq!(none.scaled(&of(0, 10), 100), of(0, 100));
        assert_eq!(of(60, 40).scaled(&raw, 100), of(60, 40), "nothing has run");
        assert_eq!(of(60, 40).scaled(&raw, 104), of(64, 40), "system time would go back");
        assert_eq!(of(85, 10).scaled(&raw, 104), of(85, 19), "user time would go back");
        assert_eq!(none.scaled(&of(u64::MAX, u64::MAX), 10), of(5, 5));
        assert_eq!(of(60, 40).later(of(70, 31)), of(70, 31), "the file was read since");
        assert_eq!(of(60, 40).later(of(70, 29)), of(60, 40));
    }
}
