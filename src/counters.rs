//! The counters of all cgroups by one call of the kernel, for the sampler.

use std::path::Path;

use cgroupfs::Hierarchy;
use kernel_text::CpuStat;
use sampler::{BulkCounters, BulkSource};
use sched_trace::{GroupCounters, StartError};
use watchdog::errors::chain;

struct Collected(GroupCounters);

impl BulkCounters for Collected {
    fn collect(&mut self) -> Result<usize, String> {
        self.0.collect().map_err(|error| chain(&error))
    }

    fn get(&mut self, inode: u64) -> Option<CpuStat> {
        self.0.get(inode)
    }
}

/// Loads the program that collects the counters.
///
/// # Errors
/// The reason why it cannot run here, and the remedy.
pub(crate) fn load(sys_root: &Path, hierarchy: &Hierarchy) -> BulkSource {
    let loaded = match hierarchy.is_the_kernels() {
        true => GroupCounters::load(sys_root, hierarchy.version),
        false => Err(StartError::NoKernelCgroups),
    };
    match loaded {
        Ok(counters) => Ok(Box::new(Collected(counters))),
        Err(error) => Err(format!("{}: {}", error.reason(), error.remedy())),
    }
}
