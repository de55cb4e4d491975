//! One cgroup's files, read and parsed: what is read at every tick.

use kernel_text::{Bandwidth, CpuStat, CpuacctStat, ParseError, Quota, parse_u64, shares_to_weight, weight_to_shares};

use crate::files::{FileId, Files, Place, ReadErrors};

/// Parses the text of a file, counting what fails.
pub(crate) struct Reader<'a> {
    pub(crate) files: &'a Files,
    pub(crate) place: Place<'a>,
    pub(crate) buffer: &'a mut Vec<u8>,
    pub(crate) errors: &'a mut ReadErrors,
    /// Set when a read says that the cgroup is gone.
    pub(crate) vanished: bool,
}

impl Reader<'_> {
    /// Reads and parses one file; `None` when it is not there, or fails (counted).
    pub(crate) fn get<T>(&mut self, id: FileId, parse: impl FnOnce(&[u8]) -> Result<T, ParseError>) -> Option<T> {
        let text = match self.files.read(id, self.place, self.buffer)? {
            Ok(text) => text,
            Err(error) => {
                self.vanished |= self.errors.count(&error);
                return None;
            }
        };
        let parsed = parse(text);
        self.errors.parse += u64::from(parsed.is_err());
        parsed.ok()
    }
}

/// What is read at every tick.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hot {
    pub(crate) stat: CpuStat,
    /// Throttled by any quota, the ancestors' included (`cpu.stat.local`).
    pub(crate) local_throttled_ns: Option<u64>,
    /// v1: `cpuacct.usage`.
    pub(crate) acct_usage_ns: Option<u64>,
    /// v1: `cpuacct.stat`.
    pub(crate) acct: Option<CpuacctStat>,
    pub(crate) bandwidth: Option<Bandwidth>,
    pub(crate) weight: Option<Weight>,
}

/// A cgroup's share of contended CPUs, in the unit that its kernel uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// v2, 1 to 10000.
    Weight(u64),
    /// v1, 2 to 262144.
    Shares(u64),
}

impl Weight {
    /// On v1 by the runtimes' rule.
    pub(crate) fn weight(self) -> u64 {
        match self {
            Self::Weight(weight) => weight,
            Self::Shares(shares) => shares_to_weight(shares),
        }
    }

    /// On v2 by cAdvisor's rule.
    pub(crate) fn shares(self) -> u64 {
        match self {
            Self::Weight(weight) => weight_to_shares(weight),
            Self::Shares(shares) => shares,
        }
    }
}

/// What a cgroup's past says about which files are worth a read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// It has, or had, a quota, or was never read.
    pub(crate) cfs: bool,
    /// Nothing of it has counted for a while.
    pub(crate) quiet: bool,
    /// What quotas above it have denied it may have grown.
    pub(crate) local: bool,
    /// `cpu.stat` also holds the usage: a container or a pod on v2.
    pub(crate) usage: bool,
    /// Its usage when it was last read.
    pub(crate) usage_before_ns: Option<u64>,
    /// v1: its usage when `cpuacct.stat` was last read.
    pub(crate) split_at_ns: Option<u64>,
}

/// The unit of `cpuacct.stat`, USER_HZ: less than that is nothing new to it.
const CLOCK_TICK_NS: u64 = 10_000_000;

impl Wanted {
    /// This usage is worth being split anew into user and system time.
    pub(crate) fn splits(&self, usage_ns: u64) -> bool {
        self.split_at_ns.is_none_or(|at| usage_ns < at || usage_ns - at >= CLOCK_TICK_NS)
    }
}

impl Hot {
    /// All CPU time that the cgroup and everything in it has used.
    pub(crate) fn usage_ns(&self) -> Option<u64> {
        self.acct_usage_ns.or(self.stat.usage_ns)
    }

    /// Reads the hot files. Where there never was a quota `cpu.stat` counts nothing, and is not read for that.
    pub(crate) fn read(reader: &mut Reader<'_>, wanted: Wanted) -> Self {
        let bandwidth = bandwidth(reader);
        let has_quota = bandwidth.is_some_and(|bandwidth| bandwidth.quota != Quota::Max);
        // `local` before `stat`: it holds `own`, so a throttle that is credited between the two can only make the
        // ancestors' part smaller, and the next reading mends it.
        let local = wanted.local.then(|| reader.get(FileId::CpuStatLocal, CpuStat::parse)).flatten();
        let usage = reader.get(FileId::AcctUsage, |text| parse_u64("cpuacct.usage", text));
        let has_run = usage.is_none_or(|usage| wanted.usage_before_ns != Some(usage));
        let is_split = usage.is_some_and(|usage| wanted.splits(usage));
        let stat = wanted.usage || (wanted.cfs || has_quota) && (has_run || !wanted.quiet);
        Self {
            local_throttled_ns: local.and_then(|local| local.throttled_ns),
            stat: stat.then(|| reader.get(FileId::CpuStat, CpuStat::parse)).flatten().unwrap_or_default(),
            acct_usage_ns: usage,
            acct: is_split.then(|| reader.get(FileId::AcctStat, CpuacctStat::parse)).flatten(),
            bandwidth,
            weight: weight(reader),
        }
    }
}

fn bandwidth(reader: &mut Reader<'_>) -> Option<Bandwidth> {
    if let Some(bandwidth) = reader.get(FileId::CpuMax, Bandwidth::parse_v2) {
        return Some(bandwidth);
    }
    let quota = reader.get(FileId::CfsQuota, Quota::parse_v1)?;
    let period_usec = reader.get(FileId::CfsPeriod, |text| parse_u64("cpu.cfs_period_us", text))?;
    (period_usec > 0).then_some(Bandwidth { quota, period_usec })
}

fn weight(reader: &mut Reader<'_>) -> Option<Weight> {
    let number = |text: &[u8]| parse_u64("cpu.weight", text);
    let weight = reader.get(FileId::CpuWeight, number).map(Weight::Weight);
    weight.or_else(|| reader.get(FileId::CpuShares, number).map(Weight::Shares))
}
