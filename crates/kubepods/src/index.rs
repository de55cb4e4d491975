//! The join: finds the pod and container that a cgroup path belongs to.
//!
//! An index is immutable and published as a whole; it performs no I/O and reads no clock.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::{Container, Pod};

/// All pods of the node at one moment.
#[derive(Debug, Default)]
pub struct PodIndex {
    generation: u64,
    pods: Vec<Arc<Pod>>,
    /// Pods that are not in the list, but can be found.
    others: Vec<Arc<Pod>>,
    /// Pods by UID, and static pods also by hash, including pods that left the list. `None` if two
    /// pods claim the key.
    by_uid: HashMap<Box<str>, Option<Arc<Pod>>>,
}

/// Result of looking up a container's cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// A listed container, matched by the id of its current or previous run.
    Named {
        /// Pod of the container.
        pod: &'a Arc<Pod>,
        /// The container.
        container: &'a Container,
    },
    /// The pod is known, but the container is not listed: the pod's sandbox, or a container that
    /// the source has not listed yet. A list alone cannot distinguish the two: see
    /// [`Pod::leaves_only_its_sandbox`].
    Unlisted {
        /// The pod.
        pod: &'a Arc<Pod>,
    },
    /// The pod is not in the list.
    UnknownPod,
}

impl PodIndex {
    /// Builds the successor of `previous` from a new list. `lingering` are pods that recently left
    /// the list, because their cgroups may outlive them, or that are not listed yet. They can be
    /// found, but are not in [`Self::pods`].
    pub fn build(
        previous: &Self,
        pods: Vec<Arc<Pod>>,
        lingering: impl IntoIterator<Item = Arc<Pod>>,
    ) -> Self {
        let mut by_uid = HashMap::<Box<str>, Option<Arc<Pod>>>::with_capacity(pods.len() * 2);
        for pod in &pods {
            for key in pod.cgroup_names() {
                let claim = by_uid.entry(key.into()).or_insert_with(|| Some(Arc::clone(pod)));
                // If two pods claim a name, neither gets it: one of them is forged.
                claim.take_if(|other| !Arc::ptr_eq(other, pod));
            }
        }
        let lingering: Vec<_> = lingering.into_iter().collect();
        for pod in &lingering {
            for key in pod.cgroup_names() {
                by_uid.entry(key.into()).or_insert_with(|| Some(Arc::clone(pod)));
            }
        }
        let others = lingering;
        Self { generation: previous.generation + 1, pods, others, by_uid }
    }

    /// Whether [`Self::build`] would give an equal index from these arguments.
    pub fn is_of(&self, pods: &[Arc<Pod>], lingering: &[Arc<Pod>]) -> bool {
        self.pods == pods && self.others == lingering
    }

    /// Number of this index in the process; 0 for the empty one before the first answer. An answer
    /// without changes creates no new index.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The pods of the list, in the list's order.
    pub fn pods(&self) -> &[Arc<Pod>] {
        &self.pods
    }

    /// Finds a pod by its UID, or by a static pod's hash, as found in a cgroup path; `None` if two
    /// pods claim it.
    pub fn pod(&self, uid_or_hash: &str) -> Option<&Arc<Pod>> {
        self.by_uid.get(uid_or_hash)?.as_ref()
    }

    /// Finds a pod by name.
    pub fn pod_by_name(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        self.pods.iter().find(|pod| &*pod.name == name && &*pod.namespace == namespace)
    }

    /// Finds the container of the cgroup `container_id` in the pod `uid_or_hash`.
    pub fn container(&self, uid_or_hash: &str, container_id: &str) -> Lookup<'_> {
        let Some(pod) = self.pod(uid_or_hash) else { return Lookup::UnknownPod };
        match pod.container_by_id(container_id) {
            Some(container) => Lookup::Named { pod, container },
            None => Lookup::Unlisted { pod },
        }
    }
}
