//! The counters and quotas of all cgroups in one call, where the kernel allows it, instead of one read
//! of `cpu.stat` and, on cgroup v1, one of `cpuacct.usage` per cgroup.
//!
//! They are collected while they cost less than the reads that they replace, and used in the tick
//! that collected them. Everything else is read from the files: between
//! ticks, where the call failed, and for a cgroup that it does not know.

use std::sync::mpsc::{Receiver, TryRecvError};

use kernel_text::{Bandwidth, CgroupVersion, CpuStat};
use snapshot::FeatureState;

use crate::features;
use crate::tree::Levels;

/// Number of cgroups that are collected in the time of one read of a file; measured are four to
/// eight.
const CGROUPS_PER_READ: usize = 4;

/// The same for a file that must be opened for the read.
const CGROUPS_PER_OPENED_READ: usize = 8;

/// Number of ticks in a row with collected counters after which they are relied on: a minute.
const RELIABLE: u32 = 60;

/// Source of the counters of all cgroups.
pub trait BulkCounters: Send {
    /// Collects the contents of `cpu.stat` of the cgroups at most `levels` below the kernel's root, or
    /// of all with `None`, and returns their number. On cgroup v2, the usage is that of the last read of
    /// an ancestor's `cpu.stat`.
    ///
    /// # Errors
    /// The reason why there are none now.
    fn collect(&mut self, levels: Option<u32>) -> Result<usize, String>;

    /// Content of `cpu.stat` of the cgroup with this inode, and its quota, at the last
    /// [`collect`](Self::collect).
    fn get(&mut self, inode: u64) -> Option<(CpuStat, Bandwidth)>;

    /// Cgroup v1: collects the contents of `cpuacct.usage` of the same cgroups, and returns their
    /// number; `None` if they are to be read from the files.
    fn collect_acct_usage(&mut self, levels: Option<u32>) -> Option<usize>;

    /// Content of `cpuacct.usage` of the cgroup with this inode in the hierarchy with cpuacct at the
    /// last [`collect_acct_usage`](Self::collect_acct_usage), nanoseconds.
    fn acct_usage_ns(&mut self, inode: u64) -> Option<u64>;
}

/// The source, or the reason why there is none.
pub type BulkSource = Result<Box<dyn BulkCounters>, String>;

/// A file of all cgroups that is collected while this costs less than to read it of those that need
/// it.
#[derive(Debug, Default)]
struct Collection {
    /// Whether the contents are those of this moment.
    is_fresh: bool,
    /// Number of cgroups at the last collection.
    cgroups: usize,
    /// Number of cgroups of which the file was needed in this tick.
    needed: usize,
    /// Number of containers among them.
    needed_containers: usize,
    /// Number of ticks in a row in which it was collected.
    ticks: u32,
}

impl Collection {
    /// Whether as much to read as in the last tick makes it worth it.
    fn is_worth_it(&mut self) -> bool {
        let needed = std::mem::take(&mut self.needed);
        let is_worth_it = needed * CGROUPS_PER_READ >= self.cgroups;
        if !is_worth_it {
            self.ticks = 0;
        }
        is_worth_it
    }

    /// Number of levels to collect, if as many containers run as in the last tick. While few do, those
    /// are read from their files.
    fn levels(&mut self, of: Levels, containers: usize) -> u32 {
        let needed = std::mem::take(&mut self.needed_containers);
        if needed * CGROUPS_PER_OPENED_READ > containers { of.all } else { of.pods }
    }

    /// Notes the number of cgroups that were collected.
    fn note(&mut self, collected: Option<usize>) {
        self.is_fresh = collected.is_some();
        self.ticks = if self.is_fresh { self.ticks.saturating_add(1) } else { 0 };
        self.cgroups = collected.unwrap_or(0);
    }

    /// Whether it was collected for so long that the files need not stay open.
    fn is_reliable(&self) -> bool {
        self.ticks >= RELIABLE
    }
}

/// State of the source. It may arrive after the first ticks, because loading a program takes time.
#[derive(Default)]
pub(crate) struct Bulk {
    arriving: Option<Receiver<BulkSource>>,
    source: Option<Box<dyn BulkCounters>>,
    /// Reason why the counters are read from the files; `None` until it is known.
    reason: Option<String>,
    /// `cpu.stat`.
    stats: Collection,
    /// `cpuacct.usage`.
    acct_usages: Collection,
}

impl Bulk {
    /// Uses the source that will arrive here.
    pub(crate) fn expect(&mut self, arriving: Receiver<BulkSource>) {
        self.arriving = Some(arriving);
    }

    /// Files of each tick that need not stay open.
    pub(crate) fn reliable(&self, version: CgroupVersion) -> Collected {
        let (stats, usages) = (self.stats.is_reliable(), self.acct_usages.is_reliable());
        match version {
            CgroupVersion::V1 => Collected { counters: usages, running: stats },
            CgroupVersion::V2 => Collected { counters: stats, running: stats },
        }
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

    /// Collects what is worth it, if there is a source. `levels`: levels below the kernel's root that
    /// are needed, if they are known. `flush`: on cgroup v2, brings the usage of all cgroups up to date;
    /// returns whether it could.
    pub(crate) fn collect(
        &mut self,
        version: CgroupVersion,
        levels: Option<Levels>,
        containers: usize,
        flush: impl FnOnce() -> bool,
    ) {
        if !self.has_source() {
            return;
        }
        let Some(source) = &mut self.source else { return };
        if self.stats.is_worth_it() && (version == CgroupVersion::V1 || flush()) {
            // All: the source forgets what a cgroup that it left out has shown.
            let collected = source.collect(levels.map(|levels| levels.all));
            self.stats.note(collected.as_ref().ok().copied());
            let reason = collected.err().unwrap_or_default();
            if self.reason.as_ref() != Some(&reason) {
                self.reason = Some(reason);
            }
        }
        if version == CgroupVersion::V1 && self.acct_usages.is_worth_it() {
            let levels = levels.map(|levels| self.acct_usages.levels(levels, containers));
            self.acct_usages.note(source.collect_acct_usage(levels));
        }
    }

    /// The collected counters of a cgroup; `None` if they are to be read from its file.
    pub(crate) fn stat(&mut self, inode: u64) -> Option<(CpuStat, Bandwidth)> {
        self.source.as_mut().filter(|_| self.stats.is_fresh)?.get(inode)
    }

    /// Whether there are collected usages.
    pub(crate) fn has_acct_usages(&self) -> bool {
        self.acct_usages.is_fresh
    }

    /// Cgroup v1: the collected usage of a cgroup, nanoseconds; `None` if it is to be read from its
    /// file.
    pub(crate) fn acct_usage_ns(&mut self, inode: u64) -> Option<u64> {
        self.source.as_mut().filter(|_| self.acct_usages.is_fresh)?.acct_usage_ns(inode)
    }

    /// Counts a cgroup of which `cpu.stat` or `cpuacct.usage` was needed.
    pub(crate) fn count_needed(&mut self, is_container: bool, stat: bool, acct_usage: bool) {
        self.stats.needed += usize::from(stat);
        self.acct_usages.needed += usize::from(acct_usage);
        self.acct_usages.needed_containers += usize::from(is_container && acct_usage);
    }

    /// Ends the tick: the collected values are old from here on.
    pub(crate) fn expire(&mut self) {
        (self.stats.is_fresh, self.acct_usages.is_fresh) = (false, false);
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

/// Files of each tick that are collected reliably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Collected {
    /// Those of every cgroup.
    pub(crate) counters: bool,
    /// Those of running cgroups.
    pub(crate) running: bool,
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use super::*;

    const LEVELS: Levels = Levels { all: 4, pods: 3 };

    /// Numbers of levels of which the usage was collected.
    #[derive(Clone, Default)]
    struct Source(Arc<Mutex<Vec<Option<u32>>>>);

    impl BulkCounters for Source {
        fn collect(&mut self, _: Option<u32>) -> Result<usize, String> {
            Ok(12)
        }

        fn get(&mut self, _: u64) -> Option<(CpuStat, Bandwidth)> {
            None
        }

        fn collect_acct_usage(&mut self, levels: Option<u32>) -> Option<usize> {
            self.0.lock().unwrap().push(levels);
            Some(if levels == Some(LEVELS.pods) { 12 } else { 32 })
        }

        fn acct_usage_ns(&mut self, _: u64) -> Option<u64> {
            None
        }
    }

    #[test]
    fn the_usage_of_containers_is_collected_while_some_of_them_run() {
        let (sender, arriving) = mpsc::channel();
        let (source, mut bulk) = (Source::default(), Bulk::default());
        sender.send(Ok(Box::new(source.clone()) as Box<dyn BulkCounters>)).unwrap();
        bulk.expect(arriving);
        for containers in [3, 2, 20, 0, 0] {
            for is_container in [vec![false; 10], vec![true; containers]].concat() {
                bulk.count_needed(is_container, false, true);
            }
            bulk.collect(CgroupVersion::V1, Some(LEVELS), 20, || true);
        }
        let collected = std::mem::take(&mut *source.0.lock().unwrap());
        assert_eq!(collected, [Some(4), Some(3), Some(4), Some(3), Some(3)]);
    }
}
