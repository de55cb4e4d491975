//! Cpusets below a v1 container, created by its application or an unknown runtime.

use std::path::Path;

use cgroupfs::cpuset;
use kernel_text::CpuSet;

/// Whether the kernel rejects these CPUs for a v1 container because a nested cpuset has others
/// (EBUSY). What is nested deeper has no more than its parents.
pub(crate) fn holds(container: &Path, cpus: &str) -> bool {
    let Ok(cpus) = cpus.parse::<CpuSet>() else { return false };
    let nested = cgroupfs::subdirectories(container).unwrap_or_default();
    nested.iter().any(|child| {
        let of_child = cpuset::configured(&container.join(&child.name));
        of_child.ok().flatten().is_some_and(|of_child| !of_child.is_subset(&cpus))
    })
}
