//! Finds processes that the kernel moved out of a v1 cpuset when its last CPU went offline
//! (`remove_tasks_in_empty_cpuset` in kernel/cgroup/cpuset-v1.c). They are then in an ancestor's
//! cpuset, but unchanged in every other hierarchy.

use std::collections::BTreeSet;
use std::path::Path;

use cgroupfs::{Hierarchy, control, descendants, pids};
use kernel_text::CgroupVersion;

/// Maximum number of cgroups below a container that are searched.
const WITHIN: usize = 256;

/// Moves the processes of a container back into its cpuset, and returns their number. A process
/// belongs to the container if it is in its cpu cgroup. It was moved out if it is in the cpuset of
/// an ancestor.
pub(crate) fn bring_back(hierarchy: &Hierarchy, container: &Path) -> usize {
    let (CgroupVersion::V1, Some(cpuset)) = (hierarchy.version, &hierarchy.cpuset) else {
        return 0;
    };
    let Ok(below) = container.strip_prefix(cpuset) else { return 0 };
    let cpu = hierarchy.cpu.join(below);
    let mut places = vec![cpu.clone()];
    places.extend(descendants(&cpu, WITHIN));
    let own: Vec<(u32, &Path)> = places
        .iter()
        .flat_map(|place| pids(place).into_iter().map(|pid| (pid, &**place)))
        .collect();
    let inside: BTreeSet<u32> = pids(container).into_iter().collect();
    if own.iter().all(|(pid, _)| inside.contains(pid)) {
        return 0;
    }
    let above = container.ancestors().skip(1).take_while(|above| above.starts_with(cpuset));
    let above: BTreeSet<u32> = above.flat_map(pids).collect();
    let stranded = own.into_iter().filter(|(pid, _)| above.contains(pid));
    stranded.filter(|(pid, place)| move_to(*pid, place, &hierarchy.cpu, cpuset, container)).count()
}

/// Moves a process to the cpuset at the path of its cpu cgroup, or into the container's if the
/// application created no cpuset there.
fn move_to(pid: u32, place: &Path, cpu: &Path, cpuset: &Path, container: &Path) -> bool {
    let same =
        place.strip_prefix(cpu).map(|below| cpuset.join(below)).ok().filter(|same| same.exists());
    let targets = same.iter().map(|same| &**same).chain([container]);
    targets
        .into_iter()
        .any(|target| control::write(&target.join("cgroup.procs"), &pid.to_string()).is_ok())
}
