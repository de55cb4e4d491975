//! CPUs that the kubelet gave exclusively to containers (static CPU manager), as reported by
//! pod-resources.

use std::collections::{BTreeMap, HashMap, HashSet};

/// The kubelet's exclusive CPUs at one moment. Empty with the CPU manager policy `none`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExclusiveCpus {
    /// CPUs that the kubelet may allocate: all but the reserved ones. Sorted; empty with the policy
    /// `none`.
    pub allocatable: Vec<u32>,
    /// Exclusive CPUs by namespace, pod and container; each list is sorted. Includes finished pods.
    pub containers: HashMap<ContainerName, Vec<u32>>,
    /// Exclusive CPUs of pods as a whole (pod-level resources) by namespace and pod, including
    /// those of their containers.
    pub pods: HashMap<PodName, Vec<u32>>,
    /// Number of containers with devices from dynamic resource allocation, by driver, such as
    /// `dra.cpu`.
    pub drivers: BTreeMap<Box<str>, usize>,
    /// Containers with devices from dynamic resource allocation.
    pub claimants: HashSet<ContainerName>,
}

/// Namespace and name.
pub type PodName = (Box<str>, Box<str>);
/// Namespace, pod name and container name.
pub type ContainerName = (Box<str>, Box<str>, Box<str>);

impl ExclusiveCpus {
    /// The container's exclusive CPUs; empty if it uses the shared pool.
    pub fn of(&self, namespace: &str, pod: &str, container: &str) -> &[u32] {
        // A tuple of borrowed names cannot be used to look up a tuple of owned ones.
        let key = (namespace.into(), pod.into(), container.into());
        self.containers.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Whether the container has devices from dynamic resource allocation.
    pub fn is_claimant(&self, namespace: &str, pod: &str, container: &str) -> bool {
        let key = (namespace.into(), pod.into(), container.into());
        !self.claimants.is_empty() && self.claimants.contains(&key)
    }

    /// Namespace and name of each pod with exclusive CPUs.
    pub fn holders(&self) -> impl Iterator<Item = (&str, &str)> {
        let containers = self.containers.iter().filter(|(_, cpus)| !cpus.is_empty());
        let pods = self.pods.iter().filter(|(_, cpus)| !cpus.is_empty());
        containers
            .map(|((namespace, pod, _), _)| (&**namespace, &**pod))
            .chain(pods.map(|((namespace, pod), _)| (&**namespace, &**pod)))
    }

    /// All exclusive CPUs of containers and pods, sorted.
    pub fn all(&self) -> Vec<u32> {
        let mut all: Vec<u32> =
            self.containers.values().chain(self.pods.values()).flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
