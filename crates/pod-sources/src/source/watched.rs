//! The pods that a watch has reported, within the limits of a list.

use std::collections::HashMap;
use std::sync::Arc;

use kubepods::Capacity;
use kubepods::model::Pod;

use super::body::Listed;

/// Pods by UID.
#[derive(Debug, Default)]
pub(super) struct WatchedPods {
    pods: HashMap<Box<str>, Arc<Pod>>,
    capacity: Capacity,
    /// Whether a pod was refused since the watch began.
    is_cut: bool,
}

impl WatchedPods {
    /// Adds or replaces a pod, if it fits; `None` for a pod that is too large.
    pub(super) fn insert(&mut self, uid: &str, pod: Option<Arc<Pod>>) {
        self.remove(uid);
        match pod.filter(|pod| self.capacity.take(pod)) {
            Some(pod) => drop(self.pods.insert(uid.into(), pod)),
            None => self.is_cut = true,
        }
    }

    /// Removes a pod; returns whether it was there.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        let removed = self.pods.remove(uid);
        removed.inspect(|pod| self.capacity.give_back(pod)).is_some()
    }

    /// The current list.
    pub(super) fn listed(&self) -> Listed {
        Listed { pods: self.pods.values().cloned().collect(), is_cut: self.is_cut }
    }
}

#[cfg(test)]
mod tests {
    use kubepods::PODS;

    use super::*;

    #[test]
    fn pods_beyond_the_limit_are_refused_and_the_list_says_so() {
        let mut watched = WatchedPods::default();
        let pod = || Some(Arc::new(Pod::default()));
        for number in 0..PODS {
            watched.insert(&number.to_string(), pod());
        }
        watched.insert("0", pod());
        assert!(!watched.listed().is_cut, "a replaced pod counts once");
        watched.insert("one more", pod());
        let listed = watched.listed();
        assert_eq!((listed.pods.len(), listed.is_cut), (PODS, true));
        assert!(watched.remove("0") && !watched.remove("0"));
        watched.insert("one more", pod());
        assert!(watched.remove("one more"));
    }

    #[test]
    fn a_pod_that_becomes_too_large_leaves_the_list() {
        let mut watched = WatchedPods::default();
        watched.insert("a", Some(Arc::new(Pod::default())));
        watched.insert("a", None);
        let listed = watched.listed();
        assert_eq!((listed.pods.len(), listed.is_cut), (0, true));
    }
}
