//! Optional kernel features: whether each is in use, and the reason if not.

use kernel_text::CgroupVersion;
use snapshot::{FeatureState, KernelInfo};

use crate::cgroup::SampledKind;
use crate::files::FileId;
use crate::tree::SampledTree;

/// State of every feature that can be determined by now. Features visible only in a container's
/// files are left out before the first container.
pub(crate) fn states(tree: &SampledTree, kernel: &KernelInfo) -> Vec<FeatureState> {
    let mut states = vec![state("inotify", tree.watch_error().unwrap_or_default())];
    let mut containers =
        tree.cgroups.iter().filter(|(_, cgroup)| matches!(cgroup.kind, SampledKind::Container(_)));
    let Some((_, sample)) =
        containers.find(|(_, cgroup)| cgroup.is_read() && cgroup.files.has(FileId::CpuStat))
    else {
        return states;
    };
    let lacks =
        |id, reason: &str| if sample.files.has(id) { String::new() } else { reason.to_owned() };
    states.push(state("cgroup_pressure", pressure(tree, kernel)));
    let local = "needs Linux 6.6; using the ancestors' own cpu.stat instead";
    states.push(state("cpu_stat_local", lacks(FileId::CpuStatLocal, local)));
    states.push(state(
        "cpu_burst",
        if sample.last.has_burst() { String::new() } else { "needs Linux 5.14".to_owned() },
    ));
    states.push(state(
        "cpuset",
        lacks(FileId::CpusetEffective, "no cpuset controller on the containers' cgroups"),
    ));
    states.push(state(
        "memory",
        lacks(FileId::MemoryUsage, "no memory controller on the containers' cgroups"),
    ));
    states.push(state(
        "numa_memory",
        lacks(FileId::MemoryNuma, "the kernel has no memory.numa_stat (CONFIG_NUMA)"),
    ));
    states
}

fn pressure(tree: &SampledTree, kernel: &KernelInfo) -> String {
    let reason = match (tree.hierarchy.version, kernel.psi) {
        (CgroupVersion::V1, _) => "cgroup v1 has no cpu.pressure",
        (_, "off") => "PSI is disabled: boot with psi=1",
        (_, "absent") => "the kernel is built without CONFIG_PSI",
        _ => "",
    };
    reason.to_owned()
}

/// A feature, in use if `reason` is empty.
pub(crate) fn state(feature: &'static str, reason: String) -> FeatureState {
    FeatureState { feature, enabled: reason.is_empty(), reason }
}
