//! The counters of all cgroups by one call of the kernel, for the sampler.

use kernel_text::{Bandwidth, CpuStat};
use sampler::{BulkCounters, BulkSource};
use sched_trace::GroupCounters;
use watchdog::errors::chain;

struct Collected(GroupCounters);

impl BulkCounters for Collected {
    fn collect(&mut self, levels: Option<u32>) -> Result<usize, String> {
        self.0.collect(levels).map_err(|error| chain(&error))
    }

    fn get(&mut self, inode: u64) -> Option<(CpuStat, Bandwidth)> {
        self.0.get(inode)
    }

    fn collect_acct_usage(&mut self, levels: Option<u32>) -> Option<usize> {
        self.0.collect_usage(levels)
    }

    fn acct_usage_ns(&mut self, inode: u64) -> Option<u64> {
        self.0.usage_ns(inode)
    }
}

/// The loaded program as a source of the sampler, or the reason why there is none.
pub(crate) fn source(loaded: Result<GroupCounters, String>) -> BulkSource {
    match loaded {
        Ok(counters) => Ok(Box::new(Collected(counters))),
        Err(reason) => Err(reason),
    }
}
