//! `cpuset.cpus` of a container.

use cgroupfs::cpuset;
use kernel_text::CgroupVersion;
use state_dir::Written;

use super::{Access, Place};
use crate::Result;

/// `cpuset.cpus`.
pub(super) struct Cpus;

impl Access for Cpus {
    fn file(&self, _version: CgroupVersion) -> &'static str {
        cpuset::CPUS
    }

    fn restore(&self, place: &Place, was: &Written, all_cpus: &str) -> Result<()> {
        let Some(now) = self.read(place)? else { return Ok(()) };
        if !self.is_ours(was, &now.value) {
            return Ok(());
        }
        let original = &was.original.value;
        if !original.is_empty() {
            return self.write(place, original, was);
        }
        // ENOSPC on most kernels while the cgroup has processes.
        match self.write(place, "\n", was) {
            Err(error) if !error.is_vanished() => self.write(place, all_cpus, was),
            written => written,
        }
    }
}
