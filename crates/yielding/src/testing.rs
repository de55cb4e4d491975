//! Nodes for unit tests.

use std::path::Path;

use crate::rules::ControllerSettings;
use cgroupfs::Hierarchy;
use kernel_text::{CgroupVersion, CpuSet};

use state_dir::ActingMode;

use crate::config::{ActorConfig, BurstSettings};
use crate::resize::Resizes;

/// A hierarchy with the cpu controller alone.
pub(crate) fn hierarchy(version: CgroupVersion, cpu: &Path) -> Hierarchy {
    let (cpuacct, cpuset, memory) = (None, None, None);
    Hierarchy { version, hybrid: false, cpu: cpu.to_owned(), cpuacct, cpuset, memory }
}

/// An actor on a v2 hierarchy of the cpu controller alone.
pub(crate) fn config(cpu: &Path) -> ActorConfig {
    ActorConfig {
        best_effort: ActingMode::Enforce,
        burst: ActingMode::Enforce,
        hierarchy: hierarchy(CgroupVersion::V2, cpu),
        proc_root: cpu.join("proc"),
        sys_root: cpu.join("sys"),
        state_dir: cpu.join("state"),
        settings: ControllerSettings::default(),
        burst_settings: BurstSettings::default(),
        reserved: CpuSet::default(),
        resizes: Resizes::default(),
    }
}
