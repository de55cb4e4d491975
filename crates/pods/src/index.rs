//! The join: from what a cgroup path says to the pod and container that it belongs to.
//!
//! An index is immutable and published whole; it does no IO and knows no time but the one it was given.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::{Container, Pod};

/// All pods of the node at one moment.
#[derive(Debug, Default)]
pub struct PodIndex {
    generation: u64,
    pods: Vec<Arc<Pod>>,
    /// By UID, and for static pods by hash too; pods that have left the list included. `None` where two pods claim it.
    by_uid: HashMap<Box<str>, Option<Arc<Pod>>>,
}

/// What a container's cgroup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// This container, by its present id or the one of the run before.
    Named {
        /// Its pod.
        pod: &'a Arc<Pod>,
        /// The container.
        container: &'a Container,
    },
    /// The pod is known, and this is no listed container of it: its sandbox, or a container that the source has not
    /// listed yet. A list alone cannot tell the two apart: see [`Pod::leaves_only_its_sandbox`].
    Unlisted {
        /// Its pod.
        pod: &'a Arc<Pod>,
    },
    /// No such pod in the list.
    UnknownPod,
}

impl PodIndex {
    /// Builds the successor of `previous` from a fresh list. `lingering` are pods that left the list a moment ago: their
    /// cgroups may outlive them, so they can still be found, but they are not among [`Self::pods`].
    pub fn build(previous: &Self, pods: Vec<Arc<Pod>>, lingering: impl IntoIterator<Item = Arc<Pod>>) -> Self {
        let mut by_uid = HashMap::<Box<str>, Option<Arc<Pod>>>::with_capacity(pods.len() * 2);
        for pod in &pods {
            for key in pod.cgroup_names() {
                let claim = by_uid.entry(key.into()).or_insert_with(|| Some(Arc::clone(pod)));
                // Nobody gets a name that two pods claim: one of them is forged.
                claim.take_if(|other| !Arc::ptr_eq(other, pod));
            }
        }
        for pod in lingering {
            for key in pod.cgroup_names() {
                by_uid.entry(key.into()).or_insert_with(|| Some(Arc::clone(&pod)));
            }
        }
        Self { generation: previous.generation + 1, pods, by_uid }
    }

    /// Counts the indexes of this process, from 0 for the empty one before the first answer. An answer that says
    /// nothing new makes no new index.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The pods of the list, in its order.
    pub fn pods(&self) -> &[Arc<Pod>] {
        &self.pods
    }

    /// The pod of a UID or of a static pod's hash, as a cgroup path gives it; `None` where two pods claim it.
    pub fn pod(&self, uid_or_hash: &str) -> Option<&Arc<Pod>> {
        self.by_uid.get(uid_or_hash)?.as_ref()
    }

    /// The pod of this name.
    pub fn pod_by_name(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        self.pods.iter().find(|pod| &*pod.name == name && &*pod.namespace == namespace)
    }

    /// What the cgroup `container_id` of the pod `uid_or_hash` is.
    pub fn container(&self, uid_or_hash: &str, container_id: &str) -> Lookup<'_> {
        let Some(pod) = self.pod(uid_or_hash) else { return Lookup::UnknownPod };
        match pod.container_by_id(container_id) {
            Some(container) => Lookup::Named { pod, container },
            None => Lookup::Unlisted { pod },
        }
    }
}
