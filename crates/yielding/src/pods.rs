//! The best-effort pods of the node and their cgroups.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use kernel_text::CgroupVersion;
use kubepods::PodIndex;
use kubepods::model::{Container, ContainerKind, Pod, Resize, Resources};
use kubepods::path::{self, CgroupPath, QosClass};
use snapshot::NodeSnapshot;

/// Whether a pod is best effort.
#[must_use]
pub fn is_best_effort(pod: &Pod) -> bool {
    pod.is_best_effort()
}

/// Whether the kubelet is about to write the pod's CPU weight, which the kernel rejects while
/// `cpu.idle` is set: a resize is under way, or the spec requests other CPU than the kubelet
/// reports.
fn is_being_resized(pod: &Pod) -> bool {
    let differs = |desired: &Resources, actual: &Option<Resources>| {
        let actual = actual.as_ref().and_then(|actual| actual.cpu_request_millis);
        let both = desired.cpu_request_millis.zip(actual);
        // The smallest weight stands for up to 2m.
        both.is_some_and(|(desired, actual)| desired.max(2) != actual.max(2))
    };
    match pod.resize {
        Some(Resize::InProgress) => true,
        Some(Resize::Deferred | Resize::Infeasible) => false,
        Some(Resize::Proposed) | None => {
            let mut containers = pod.containers.iter();
            differs(&pod.resources, &pod.actual_resources)
                || containers.any(|one| differs(&one.resources, &one.actual_resources))
        }
    }
}

/// CPU request of the pod with this namespace and name, cores; 0 if it is not known. A resize that
/// is not in force adds nothing.
pub(crate) fn request_cores(pods: &PodIndex, namespace: &str, name: &str) -> f64 {
    let pod = pods.pods().iter().find(|pod| (&*pod.namespace, &*pod.name) == (namespace, name));
    pod.map_or(0.0, |pod| request_millis(pod) as f64 / 1000.0)
}

fn request_millis(pod: &Pod) -> u64 {
    if let Some(sum) = &pod.unlisted {
        return sum.cpu_request_millis.unwrap_or_default();
    }
    let in_force = |desired: &Resources, actual: &Option<Resources>| {
        let actual = actual.as_ref().and_then(|actual| actual.cpu_request_millis);
        Some(desired.cpu_request_millis?.min(actual.unwrap_or(u64::MAX)))
    };
    let is_summed =
        |one: &&Container| matches!(one.kind, ContainerKind::App | ContainerKind::Sidecar);
    let containers = pod.containers.iter().filter(is_summed);
    let of_containers =
        containers.filter_map(|one| in_force(&one.resources, &one.actual_resources));
    in_force(&pod.resources, &pod.actual_resources)
        .unwrap_or_else(|| of_containers.fold(0, u64::saturating_add))
}

/// Parses the path of a cgroup below the mount.
pub(crate) fn parse(cgroup: &Path) -> Option<CgroupPath> {
    path::parse_below_mount(cgroup.to_str()?)
}

/// Whether a pod's cgroup may have a quota. Cgroup v1 rejects the quota of a container above its
/// pod's, so that a Burstable pod's containers with limits could not start again.
pub(crate) fn may_have_quota(pod: &Path, version: CgroupVersion) -> bool {
    let has_no_limits =
        || matches!(parse(pod), Some(CgroupPath::Pod(pod)) if pod.qos == QosClass::BestEffort);
    version == CgroupVersion::V2 || has_no_limits()
}

/// Namespace and name of the pod that a cgroup belongs to.
pub(crate) fn pod_name(pods: &PodIndex, cgroup: &Path) -> Option<(String, String)> {
    let pod = pods.pod(&parse(cgroup)?.pod()?.uid)?;
    Some((pod.namespace.to_string(), pod.name.to_string()))
}

/// The best-effort pods at one moment.
#[derive(Debug, Default)]
pub(crate) struct BestEffort {
    names: HashSet<(Box<str>, Box<str>)>,
    /// UIDs of the pods with a cgroup, as the pods' source reports them, sorted.
    pub(crate) uids: Vec<Box<str>>,
    /// Paths of the pods' cgroups, each with its containers' and sandboxes' cgroups.
    pub(crate) cgroups: BTreeMap<PathBuf, Vec<PathBuf>>,
    /// Cgroups of the pods whose weight the kubelet is about to write.
    pub(crate) resized: HashSet<PathBuf>,
}

impl BestEffort {
    pub(crate) fn new(snapshot: &NodeSnapshot, pods: &PodIndex) -> Self {
        let best_effort = pods.pods().iter().filter(|pod| is_best_effort(pod));
        let names = best_effort.map(|pod| (pod.namespace.clone(), pod.name.clone())).collect();
        let mut uids = BTreeSet::new();
        let mut cgroups = BTreeMap::<PathBuf, Vec<PathBuf>>::new();
        let mut resized = HashSet::new();
        let known = |uid: &str| pods.pod(uid).filter(|pod| is_best_effort(pod));
        for row in &snapshot.cgroups {
            let path = Path::new(&*row.path);
            match parse(path) {
                Some(CgroupPath::Pod(pod)) => {
                    let Some(pod) = known(&pod.uid) else { continue };
                    uids.insert(pod.uid.clone());
                    if is_being_resized(pod) {
                        resized.insert(path.to_owned());
                    }
                    cgroups.entry(path.to_owned()).or_default();
                }
                Some(CgroupPath::Container(container)) if known(&container.pod.uid).is_some() => {
                    let Some(pod) = path.parent() else { continue };
                    cgroups.entry(pod.to_owned()).or_default().push(path.to_owned());
                }
                _ => {}
            }
        }
        Self { names, uids: uids.into_iter().collect(), cgroups, resized }
    }

    /// Whether the pod with this namespace and name is best effort.
    pub(crate) fn contains(&self, namespace: &str, name: &str) -> bool {
        self.names.contains(&(namespace.into(), name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_of_a_pod_is_the_sum_in_force_or_that_of_its_level() {
        let resources =
            |millis| Resources { cpu_request_millis: Some(millis), ..Resources::default() };
        let container = |kind, millis, actual: Option<u64>| {
            let actual_resources = actual.map(resources);
            Container { kind, resources: resources(millis), actual_resources, ..<_>::default() }
        };
        let containers = vec![
            container(ContainerKind::App, 500, None),
            container(ContainerKind::Sidecar, 250, Some(250)),
            container(ContainerKind::Init, 4000, None),
            // A resize that the node cannot fulfill.
            container(ContainerKind::App, 64_000, Some(250)),
            Container::default(),
        ];
        let pod = Pod { namespace: "n".into(), name: "p".into(), containers, ..Pod::default() };
        let request = |pod: &Pod| {
            let index = PodIndex::build(&PodIndex::default(), vec![pod.clone().into()], []);
            request_cores(&index, "n", "p")
        };
        assert_eq!(request(&pod), 1.0);
        let level = Pod { resources: resources(1500), ..pod.clone() };
        assert_eq!(request(&level), 1.5);
        assert_eq!(request(&Pod { unlisted: Some(resources(100)), ..pod.clone() }), 0.1);
        assert_eq!(request(&Pod { name: "q".into(), ..pod }), 0.0, "another pod");
    }

    #[test]
    fn a_resize_is_under_way_while_the_requests_differ_and_it_is_not_put_off() {
        let millis = |millis| Resources { cpu_request_millis: millis, ..Resources::default() };
        let is = |desired, actual: Option<Option<u64>>, resize| {
            let (resources, actual_resources) = (millis(desired), actual.map(millis));
            let container = Container { resources, actual_resources, ..Container::default() };
            is_being_resized(&Pod { containers: vec![container], resize, ..Pod::default() })
        };
        assert!(is(Some(500), Some(Some(250)), None));
        assert!(is(Some(500), Some(Some(250)), Some(Resize::Proposed)));
        assert!(is(None, None, Some(Resize::InProgress)));
        assert!(!is(Some(500), Some(Some(250)), Some(Resize::Deferred)));
        assert!(!is(Some(500), Some(Some(250)), Some(Resize::Infeasible)));
        assert!(!is(Some(500), Some(Some(500)), None) && !is(Some(1), Some(Some(2)), None));
        assert!(!is(Some(500), None, None) && !is(Some(500), Some(None), None), "not reported");
        let (resources, actual_resources) = (millis(Some(500)), Some(millis(Some(250))));
        assert!(is_being_resized(&Pod { resources, actual_resources, ..Pod::default() }));
    }

    #[test]
    fn best_effort_is_the_class_or_a_batch_priority_and_never_system_critical() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        for (qos_class, priority, expected) in [
            (Some(BestEffort), None, true),
            (Some(BestEffort), Some(0), true),
            (Some(BestEffort), Some(1_999_999_999), true),
            // system-cluster-critical and system-node-critical.
            (Some(BestEffort), Some(2_000_000_000), false),
            (Some(BestEffort), Some(2_000_001_000), false),
            (Some(Burstable), Some(5500), true),
            (Some(Burstable), Some(6000), false),
            (Some(Burstable), None, false),
            (Some(Guaranteed), Some(5500), false),
            (None, Some(5500), false),
        ] {
            let pod = Pod { qos_class, priority, ..Pod::default() };
            assert_eq!(is_best_effort(&pod), expected, "{qos_class:?}, {priority:?}");
        }
    }
}
