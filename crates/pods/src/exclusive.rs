//! CPUs that the kubelet has given to containers for themselves (static CPU manager), as pod-resources tells.

use std::collections::{BTreeMap, HashMap};

/// The kubelet's exclusive CPUs at one moment. Empty under the CPU manager policy `none`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExclusiveCpus {
    /// CPUs that the kubelet may give away: all but the reserved ones. Sorted; empty under the policy `none`.
    pub allocatable: Vec<u32>,
    /// By namespace, pod and container; each sorted. Finished pods are listed too.
    pub containers: HashMap<ContainerName, Vec<u32>>,
    /// By namespace and pod: CPUs of the pod as a whole (pod-level resources), those of its containers included.
    pub pods: HashMap<PodName, Vec<u32>>,
    /// Drivers of dynamic resource allocation that have given devices to containers, such as `dra.cpu`, with the number of
    /// those containers.
    pub drivers: BTreeMap<Box<str>, usize>,
}

/// Namespace and name.
pub type PodName = (Box<str>, Box<str>);
/// Namespace, pod name and container name.
pub type ContainerName = (Box<str>, Box<str>, Box<str>);

impl ExclusiveCpus {
    /// The container's own CPUs; empty where it shares.
    pub fn of(&self, namespace: &str, pod: &str, container: &str) -> &[u32] {
        // A tuple of borrowed names cannot be looked up as a tuple of owned ones.
        let key = (namespace.into(), pod.into(), container.into());
        self.containers.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Namespace and name of each pod with CPUs of its own.
    pub fn holders(&self) -> impl Iterator<Item = (&str, &str)> {
        let containers = self.containers.iter().filter(|(_, cpus)| !cpus.is_empty());
        let pods = self.pods.iter().filter(|(_, cpus)| !cpus.is_empty());
        containers
            .map(|((namespace, pod, _), _)| (&**namespace, &**pod))
            .chain(pods.map(|((namespace, pod), _)| (&**namespace, &**pod)))
    }

    /// All CPUs that some container or pod has for itself, sorted.
    pub fn all(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.containers.values().chain(self.pods.values()).flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
