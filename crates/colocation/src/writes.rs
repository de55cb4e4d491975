//! Order in which burst values of a pod and its containers are written.
//!
//! A pod's burst must never be lower than its containers' while they grow, and must shrink after
//! them: the pod's quota limits the containers, and a container's burst without the pod's would
//! only move the throttling up.

use std::collections::BTreeMap;

/// Burst values of a pod, microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodValues {
    /// The pod's own cgroup; `None` if it has no quota.
    pub pod: Option<u64>,
    /// Its containers with a quota, by id.
    pub containers: BTreeMap<String, u64>,
}

/// One write of a burst value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// To the pod's cgroup.
    Pod(u64),
    /// To a container's cgroup.
    Container(String, u64),
}

/// Writes that turn `current` into `wanted`, without the ones that change nothing: shrinking
/// containers, then the pod, then growing containers. If the pod shrinks, it comes last. Values of
/// cgroups that `current` does not have are not written.
#[must_use]
pub fn burst_writes(current: &PodValues, wanted: &PodValues) -> Vec<Write> {
    let container = |grows: bool| {
        wanted.containers.iter().filter_map(move |(id, &to)| {
            let from = *current.containers.get(id)?;
            (if grows { to > from } else { to < from }).then(|| Write::Container(id.clone(), to))
        })
    };
    let pod = match (current.pod, wanted.pod) {
        (Some(from), Some(to)) if from != to => Some((to > from, Write::Pod(to))),
        _ => None,
    };
    let (grown, shrunk) = match pod {
        Some((true, write)) => (Some(write), None),
        Some((false, write)) => (None, Some(write)),
        None => (None, None),
    };
    container(false).chain(grown).chain(container(true)).chain(shrunk).collect()
}
