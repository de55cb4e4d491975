//! The best-effort pods of the node and their cgroups.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use kernel_text::CgroupVersion;
use kubepods::PodIndex;
use kubepods::model::Pod;
use kubepods::path::{self, CgroupPath, QosClass};
use snapshot::NodeSnapshot;

/// Koordinator's priorities of batch pods.
const BATCH: std::ops::RangeInclusive<i32> = 5000..=5999;

/// Whether a pod is best effort: by its QoS class, or a batch pod by its priority. A Guaranteed pod
/// never is: it may have exclusive CPUs.
#[must_use]
pub fn is_best_effort(pod: &Pod) -> bool {
    match pod.qos_class {
        Some(QosClass::BestEffort) => true,
        Some(QosClass::Burstable) => pod.priority.is_some_and(|value| BATCH.contains(&value)),
        Some(QosClass::Guaranteed) | None => false,
    }
}

/// Whether a pod's cgroup may have a quota. Cgroup v1 rejects the quota of a container above its
/// pod's, so that a Burstable pod's containers with limits could not start again.
pub(crate) fn may_have_quota(pod: &Path, version: CgroupVersion) -> bool {
    let is_class_without_limits = || {
        let split = path::split(pod.to_str()?)?;
        match path::parse(split.relative)? {
            CgroupPath::Pod(pod) => Some(pod.qos == QosClass::BestEffort),
            _ => None,
        }
    };
    version == CgroupVersion::V2 || is_class_without_limits() == Some(true)
}

/// The best-effort pods at one moment.
#[derive(Debug, Default)]
pub(crate) struct BestEffort {
    names: HashSet<(Box<str>, Box<str>)>,
    /// UIDs of the pods with a cgroup, as the pods' source reports them, sorted.
    pub(crate) uids: Vec<Box<str>>,
    /// Paths of the pods' cgroups, each with its containers' and sandboxes' cgroups.
    pub(crate) cgroups: BTreeMap<PathBuf, Vec<PathBuf>>,
}

impl BestEffort {
    pub(crate) fn new(snapshot: &NodeSnapshot, pods: &PodIndex) -> Self {
        let best_effort = pods.pods().iter().filter(|pod| is_best_effort(pod));
        let names = best_effort.map(|pod| (pod.namespace.clone(), pod.name.clone())).collect();
        let mut uids = BTreeSet::new();
        let mut cgroups = BTreeMap::<PathBuf, Vec<PathBuf>>::new();
        for row in &snapshot.cgroups {
            let row_path = row.path.trim_start_matches('/');
            let Some(split) = path::split(row_path) else { continue };
            let known = |uid: &str| pods.pod(uid).filter(|pod| is_best_effort(pod));
            match path::parse(split.relative) {
                Some(CgroupPath::Pod(pod)) => {
                    let Some(pod) = known(&pod.uid) else { continue };
                    uids.insert(pod.uid.clone());
                    cgroups.entry(row_path.into()).or_default();
                }
                Some(CgroupPath::Container(container)) if known(&container.pod.uid).is_some() => {
                    let Some((parent, _)) = row_path.rsplit_once('/') else { continue };
                    cgroups.entry(parent.into()).or_default().push(row_path.into());
                }
                _ => {}
            }
        }
        Self { names, uids: uids.into_iter().collect(), cgroups }
    }

    /// Whether the pod with this namespace and name is best effort.
    pub(crate) fn contains(&self, namespace: &str, name: &str) -> bool {
        self.names.contains(&(namespace.into(), name.into()))
    }
}
