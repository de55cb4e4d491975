//! Nodes for unit tests.

use std::path::Path;

use cgroupfs::Hierarchy;
use kernel_text::CgroupVersion;

/// A hierarchy with the cpu controller alone.
pub(crate) fn hierarchy(version: CgroupVersion, cpu: &Path) -> Hierarchy {
    let (cpuacct, cpuset, memory) = (None, None, None);
    Hierarchy { version, hybrid: false, cpu: cpu.to_owned(), cpuacct, cpuset, memory }
}
