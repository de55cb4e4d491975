//! From lists to indexes: publishes changes; an unchanged list costs readers nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubepods::PodIndex;
use kubepods::model::Pod;

use super::{Shared, lock};

/// Time for which a pod that left the list can still be found if its cgroup is gone or unknown: the
/// kubelet removes a force-deleted pod before its cgroups. A pod with an existing cgroup can be
/// found as long as the cgroup exists. The reason is that a kubelet that restarts while the API
/// server is down lists only its static pods, or none.
const LINGER: Duration = Duration::from_secs(60);

/// The only writer of the current index.
#[derive(Debug, Default)]
pub(super) struct PodPublisher {
    lingering: Vec<(Arc<Pod>, Instant)>,
}

impl PodPublisher {
    /// Publishes the list, as of `taken` or later. Unchanged pods keep their allocation, and a list
    /// without changes creates no new index.
    pub(super) fn publish(&mut self, shared: &Shared, mut pods: Vec<Arc<Pod>>, taken: Instant) {
        let previous = shared.index.load_full();
        let before: HashMap<&str, &Arc<Pod>> =
            previous.pods().iter().map(|pod| (&*pod.uid, pod)).collect();
        let mut is_changed = pods.len() != before.len() || previous.generation() == 0;
        for pod in &mut pods {
            match before.get(&*pod.uid) {
                Some(same) if *same == pod => *pod = Arc::clone(same),
                _ => is_changed = true,
            }
        }
        let lingered = self.lingering.len();
        {
            let live = lock(&shared.live);
            let is_live = |pod: &Pod| {
                live.as_ref().is_some_and(|live| pod.cgroup_names().any(|name| live.contains(name)))
            };
            self.lingering.retain(|(pod, left)| {
                taken.saturating_duration_since(*left) < LINGER || is_live(pod)
            });
        }
        is_changed |= lingered != self.lingering.len();
        let index =
            if is_changed { self.replace(shared, &previous, pods, taken) } else { previous };
        *lock(&shared.listed_at) = Some(taken);
        lock(&shared.asks).answered(&index, taken);
    }

    fn replace(
        &mut self,
        shared: &Shared,
        previous: &PodIndex,
        pods: Vec<Arc<Pod>>,
        taken: Instant,
    ) -> Arc<PodIndex> {
        let listed: HashSet<&str> = pods.iter().map(|pod| &*pod.uid).collect();
        self.lingering.retain(|(pod, _)| !listed.contains(&*pod.uid));
        let left = previous.pods().iter().filter(|pod| !listed.contains(&*pod.uid));
        self.lingering.extend(left.map(|pod| (Arc::clone(pod), taken)));
        let lingering = self.lingering.iter().map(|(pod, _)| Arc::clone(pod));
        let index = Arc::new(PodIndex::build(previous, pods, lingering));
        shared.index.store(Arc::clone(&index));
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::status::Statuses;

    fn pod(uid: &str) -> Arc<Pod> {
        Arc::new(Pod { uid: uid.into(), name: uid.into(), ..Pod::default() })
    }

    /// Whether `live`, which has a cgroup, and `gone` are still known, `seconds` after both left
    /// the list.
    fn known_after(seconds: u64) -> [bool; 2] {
        let shared = Shared::new(Statuses::of([]), false, Arc::default());
        let mut publisher = PodPublisher::default();
        let now = Instant::now();
        publisher.publish(&shared, vec![pod("live"), pod("gone"), pod("static")], now);
        *lock(&shared.live) = Some(["live".into(), "static".into()].into());
        publisher.publish(&shared, vec![pod("static")], now);
        publisher.publish(&shared, vec![pod("static")], now + Duration::from_secs(seconds));
        let index = shared.index.load();
        ["live", "gone"].map(|uid| index.pod(uid).is_some())
    }

    #[test]
    fn a_pod_whose_cgroup_lives_keeps_its_name_without_a_time_limit() {
        assert_eq!(known_after(59), [true, true]);
        assert_eq!(known_after(60), [true, false]);
        assert_eq!(known_after(86_400), [true, false]);
    }

    #[test]
    fn an_unchanged_list_still_counts_as_a_newer_list() {
        let shared = Shared::new(Statuses::of([]), false, Arc::default());
        let mut publisher = PodPublisher::default();
        let now = Instant::now();
        publisher.publish(&shared, vec![pod("a")], now);
        let later = now + Duration::from_secs(30);
        publisher.publish(&shared, vec![pod("a")], later);
        assert_eq!((shared.index.load().generation(), *lock(&shared.listed_at)), (1, Some(later)));
    }
}
