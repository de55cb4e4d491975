//! Numbers of the pods of a node: names are compared only when containers or pods come and go.

use std::sync::Arc;

use foldhash::HashMap;
use snapshot::{ContainerRow, NodeSnapshot, PodIdentity};

/// The pods of a snapshot's containers, numbered from 0.
#[derive(Debug, Default)]
pub(crate) struct PodNumbers {
    /// By namespace and name.
    by_name: HashMap<Box<str>, HashMap<Box<str>, usize>>,
    /// Number of pods.
    count: usize,
    /// Number of the pod of each container, in the order of the rows.
    of_containers: Vec<usize>,
    /// Pods with a quota in the order of their rows, each with its number.
    with_quota: Vec<(Arc<PodIdentity>, Option<usize>)>,
}

impl PodNumbers {
    /// Numbers the pods of these containers.
    pub(crate) fn renumber(&mut self, containers: &[ContainerRow]) {
        *self = Self::default();
        for row in containers {
            let (namespace, pod) = (&row.identity.namespace, &row.identity.pod);
            let of_namespace = self.by_name.entry(namespace.as_str().into()).or_default();
            let number = *of_namespace.entry(pod.as_str().into()).or_insert(self.count);
            self.count = self.count.max(number + 1);
            self.of_containers.push(number);
        }
    }

    /// Finds the numbers of the pods with a quota, if other pods have one now.
    pub(crate) fn follow(&mut self, latest: &NodeSnapshot) {
        let known = self.with_quota.iter().map(|(identity, _)| Arc::as_ptr(identity));
        if latest.pods.iter().map(|row| Arc::as_ptr(&row.identity)).eq(known) {
            return;
        }
        let numbered = latest.pods.iter().map(|row| {
            (Arc::clone(&row.identity), self.named(&row.identity.namespace, &row.identity.pod))
        });
        self.with_quota = numbered.collect();
    }

    /// Number of pods.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Number of the pod of the container whose row is at `at`.
    pub(crate) fn of_container(&self, at: usize) -> usize {
        self.of_containers[at]
    }

    /// Number of the pod whose row is at `at`; `None` if it has no container.
    pub(crate) fn with_quota(&self, at: usize) -> Option<usize> {
        self.with_quota.get(at)?.1
    }

    /// Number of the pod with this name; `None` if it has no container.
    pub(crate) fn named(&self, namespace: &str, pod: &str) -> Option<usize> {
        self.by_name.get(namespace)?.get(pod).copied()
    }
}

#[cfg(test)]
mod tests {
    use snapshot::{ContainerIdentity, PodRow};

    use super::*;

    fn container(namespace: &str, pod: &str) -> ContainerRow {
        let (namespace, pod) = (namespace.into(), pod.into());
        let identity = ContainerIdentity { namespace, pod, ..ContainerIdentity::default() };
        ContainerRow { identity: Arc::new(identity), ..ContainerRow::default() }
    }

    fn pods(names: &[&str]) -> NodeSnapshot {
        let row = |name: &&str| PodRow {
            identity: Arc::new(PodIdentity::new("shop".into(), (*name).into())),
            ..PodRow::default()
        };
        NodeSnapshot { pods: names.iter().map(row).collect(), ..NodeSnapshot::default() }
    }

    #[test]
    fn containers_of_one_pod_have_its_number() {
        let rows = [("shop", "a"), ("shop", "b"), ("data", "a"), ("shop", "a")];
        let mut numbers = PodNumbers::default();
        numbers.renumber(&rows.map(|(namespace, pod)| container(namespace, pod)));
        assert_eq!([0, 1, 2, 3].map(|at| numbers.of_container(at)), [0, 1, 2, 0]);
        assert_eq!((numbers.count(), numbers.named("data", "b")), (3, None));
        numbers.follow(&pods(&["b", "none", "a"]));
        assert_eq!([0, 1, 2].map(|at| numbers.with_quota(at)), [Some(1), None, Some(0)]);
        numbers.follow(&pods(&["a"]));
        assert_eq!([0, 1].map(|at| numbers.with_quota(at)), [Some(0), None]);
    }

    #[test]
    fn a_pod_that_is_listed_before_its_containers_gets_their_number() {
        let (latest, mut numbers) = (pods(&["b", "a"]), PodNumbers::default());
        numbers.follow(&latest);
        assert_eq!([0, 1].map(|at| numbers.with_quota(at)), [None, None]);
        for (names, expected) in [(["a", "b"], [1, 0]), (["b", "a"], [0, 1])] {
            numbers.renumber(&names.map(|pod| container("shop", pod)));
            numbers.follow(&latest);
            assert_eq!([0, 1].map(|at| numbers.with_quota(at)), expected.map(Some));
        }
    }
}
