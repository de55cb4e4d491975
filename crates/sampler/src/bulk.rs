//! The counters of all cgroups in one call, where the kernel allows it, instead of one read of
//! `cpu.stat` and, on cgroup v1, one of `cpuacct.usage` per cgroup.
//!
//! They are collected while they cost less than the reads that they replace, and used in the tick
//! that collected them. Everything else is read from the files: between
//! ticks, where the call failed, and for a cgroup that it does not know.

use std::sync::mpsc::{Receiver, TryRecvError};

use kernel_text::{CgroupVersion, CpuStat};
use snapshot::FeatureState;

use crate::features;

/// Number of cgroups that are collected in the time of one read of a file; measured are four to
/// eight.
const CGROUPS_PER_READ: usize = 4;

/// Number of ticks in a row with collected counters after which they are relied on: a minute.
const RELIABLE: u32 = 60;

/// Source of the counters of all cgroups.
pub trait BulkCounters: Send {
    /// Collects the counters of all cgroups, and returns their number. On cgroup v2, the usage is
    /// that of the last read of an ancestor's `cpu.stat`.
    ///
    /// # Errors
    /// The reason why there are none now.
    fn collect(&mut self) -> Result<usize, String>;

    /// Content of `cpu.stat` of the cgroup with this inode at the last
    /// [`collect`](Self::collect).
    fn get(&mut self, inode: u64) -> Option<CpuStat>;

    /// Content of `cpuacct.usage` of the cgroup with this inode in the hierarchy with cpuacct at the
    /// last [`collect`](Self::collect), nanoseconds; `None` on cgroup v2.
    fn acct_usage_ns(&mut self, inode: u64) -> Option<u64>;
}

/// The source, or the reason why there is none.
pub type BulkSource = Result<Box<dyn BulkCounters>, String>;

/// State of the source. It may arrive after the first ticks, because loading a program takes time.
#[derive(Default)]
pub(crate) struct Bulk {
    arriving: Option<Receiver<BulkSource>>,
    source: Option<Box<dyn BulkCounters>>,
    /// Reason why the counters are read from the files; `None` until it is known.
    reason: Option<String>,
    /// Whether the counters are those of this moment.
    is_fresh: bool,
    /// Number of cgroups at the last collection.
    cgroups: usize,
    /// Number of files whose contents were needed in this tick.
    needed: usize,
    /// Number of ticks in a row with collected counters.
    ticks: u32,
    /// Whether this tick, and the one before, used a collected content of `cpuacct.usage`.
    uses_acct_usage: [bool; 2],
}

impl Bulk {
    /// Uses the source that will arrive here.
    pub(crate) fn expect(&mut self, arriving: Receiver<BulkSource>) {
        self.arriving = Some(arriving);
    }

    /// Whether there is a source to collect from, and as much to read as in the last tick makes it
    /// worth it.
    pub(crate) fn is_worth_it(&mut self) -> bool {
        let needed = std::mem::take(&mut self.needed);
        let is_worth_it = self.has_source() && needed * CGROUPS_PER_READ >= self.cgroups;
        if !is_worth_it {
            self.ticks = 0;
        }
        is_worth_it
    }

    /// Whether the counters have been collected for so long that their files need not stay open.
    pub(crate) fn is_reliable(&self, version: CgroupVersion) -> bool {
        self.ticks >= RELIABLE && (version == CgroupVersion::V2 || self.uses_acct_usage[1])
    }

    fn has_source(&mut self) -> bool {
        match self.arriving.as_ref().map(Receiver::try_recv) {
            Some(Ok(Ok(source))) => (self.arriving, self.source) = (None, Some(source)),
            Some(Ok(Err(reason))) => (self.arriving, self.reason) = (None, Some(reason)),
            Some(Err(TryRecvError::Disconnected)) => self.arriving = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        self.source.is_some()
    }

    /// Collects the counters, if there is a source.
    pub(crate) fn collect(&mut self) {
        let Some(source) = &mut self.source else { return };
        self.uses_acct_usage = [false, self.uses_acct_usage[0]];
        let collected = source.collect();
        self.is_fresh = collected.is_ok();
        self.ticks = if self.is_fresh { self.ticks.saturating_add(1) } else { 0 };
        self.cgroups = *collected.as_ref().unwrap_or(&0);
        let reason = collected.err().unwrap_or_default();
        if self.reason.as_ref() != Some(&reason) {
            self.reason = Some(reason);
        }
    }

    /// The collected counters of a cgroup; `None` if they are to be read from its file.
    pub(crate) fn stat(&mut self, inode: u64) -> Option<CpuStat> {
        self.source.as_mut().filter(|_| self.is_fresh)?.get(inode)
    }

    /// Cgroup v1: the collected usage of a cgroup, nanoseconds; `None` if it is to be read from its
    /// file.
    pub(crate) fn acct_usage_ns(&mut self, inode: u64) -> Option<u64> {
        let usage_ns = self.source.as_mut().filter(|_| self.is_fresh)?.acct_usage_ns(inode);
        self.uses_acct_usage[0] |= usage_ns.is_some();
        usage_ns
    }

    /// Counts files whose contents were needed.
    pub(crate) fn count_needed(&mut self, files: usize) {
        self.needed += files;
    }

    /// The collected counters are no longer those of this moment.
    pub(crate) fn expire(&mut self) {
        self.is_fresh = false;
    }

    /// State of the feature; `None` until it is known.
    pub(crate) fn feature(&self) -> Option<FeatureState> {
        Some(features::state("bpf_counters", self.reason.clone()?))
    }

    /// Whether the state of the feature differs from this one.
    pub(crate) fn differs(&self, shown: &[FeatureState]) -> bool {
        let shown = shown.iter().find(|state| state.feature == "bpf_counters");
        shown.map(|state| &state.reason) != self.reason.as_ref()
    }
}
