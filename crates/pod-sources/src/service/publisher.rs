//! From lists to indexes: publishes changes; an unchanged list costs readers nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubepods::PodIndex;
use kubepods::model::Pod;

use super::runtime_pods::RuntimePods;
use super::{ServiceState, lock};

/// Time for which a pod that left the list can still be found if its cgroup is gone or unknown: the
/// kubelet removes a force-deleted pod before its cgroups. A pod with an existing cgroup can be
/// found as long as the cgroup exists. The reason is that a kubelet that restarts while the API
/// server is down lists only its static pods, or none.
const LINGER: Duration = Duration::from_secs(60);

/// A list of all pods.
#[derive(Debug)]
pub(super) struct List {
    pub(super) pods: Vec<Arc<Pod>>,
    /// Start of the request, or a later time at which the list was still valid.
    pub(super) taken: Instant,
    /// Whether a pod that is not in it does not exist.
    pub(super) is_complete: bool,
}

/// The only writer of the current index, from the last list and the runtime's reports.
#[derive(Debug, Default)]
pub(super) struct PodPublisher {
    /// The last list, without the runtime's reports.
    listed: Vec<Arc<Pod>>,
    lingering: Vec<(Arc<Pod>, Instant)>,
    runtime: RuntimePods,
}

impl PodPublisher {
    /// The last list.
    pub(super) fn listed(&self) -> &[Arc<Pod>] {
        &self.listed
    }

    /// Publishes a list. Unchanged pods keep their allocation, and a list without changes creates
    /// no new index.
    pub(super) fn publish(&mut self, shared: &ServiceState, list: List) {
        let List { mut pods, taken, is_complete } = list;
        let before: HashMap<&str, &Arc<Pod>> =
            self.listed.iter().map(|pod| (&*pod.uid, pod)).collect();
        for pod in &mut pods {
            if let Some(same) = before.get(&*pod.uid).filter(|same| **same == pod) {
                *pod = Arc::clone(same);
            }
        }
        self.let_linger(shared, &pods, taken);
        if is_complete {
            self.runtime.end_missing(&pods, taken);
        }
        self.listed = pods;
        let index = self.rebuild(shared, shared.index.load().generation() == 0);
        *lock(&shared.listed_at) = Some(taken);
        lock(&shared.asks).answered(&index, taken);
    }

    /// Publishes a change of the runtime's reports. Returns the number of reported pods, and
    /// whether the runtime is connected.
    pub(super) fn report(
        &mut self,
        shared: &ServiceState,
        change: impl FnOnce(&mut RuntimePods),
    ) -> (usize, bool) {
        change(&mut self.runtime);
        self.rebuild(shared, false);
        (self.runtime.len(), self.runtime.is_connected())
    }

    /// Moves the pods that are not in the new list to the lingering ones, and ends those that have
    /// lingered long enough.
    fn let_linger(&mut self, shared: &ServiceState, pods: &[Arc<Pod>], taken: Instant) {
        let live = lock(&shared.live);
        let is_live = |pod: &Pod| {
            live.as_ref().is_some_and(|live| pod.cgroup_names().any(|name| live.contains(name)))
        };
        let listed: HashSet<&str> = pods.iter().map(|pod| &*pod.uid).collect();
        self.lingering.retain(|(pod, left)| {
            let is_over = taken.saturating_duration_since(*left) >= LINGER && !is_live(pod);
            !is_over && !listed.contains(&*pod.uid)
        });
        let left = self.listed.iter().filter(|pod| !listed.contains(&*pod.uid));
        self.lingering.extend(left.map(|pod| (Arc::clone(pod), taken)));
    }

    /// Publishes an index if it differs from the current one, or always. Returns the current one.
    fn rebuild(&mut self, shared: &ServiceState, always: bool) -> Arc<PodIndex> {
        let previous = shared.index.load_full();
        let complete = |pod: &Arc<Pod>| {
            let new = self.runtime.complete(pod);
            previous.pod(&new.uid).filter(|same| **same == new).map_or(new, Arc::clone)
        };
        let pods: Vec<_> = self.listed.iter().map(complete).collect();
        let mut others: Vec<_> = self.lingering.iter().map(|(pod, _)| complete(pod)).collect();
        let known: HashSet<&str> =
            pods.iter().chain(&others).flat_map(|pod| pod.cgroup_names()).collect();
        let unlisted = self.runtime.unlisted(|uid| known.contains(uid));
        others.extend(unlisted);
        if !always && previous.is_of(&pods, &others) {
            return previous;
        }
        let index = Arc::new(PodIndex::build(&previous, pods, others));
        shared.index.store(Arc::clone(&index));
        index
    }
}

#[cfg(test)]
mod tests {
    use super::super::runtime_pods::ReportedSandbox;
    use super::*;
    use crate::service::status::Statuses;

    fn pod(uid: &str) -> Arc<Pod> {
        Arc::new(Pod { uid: uid.into(), name: uid.into(), ..Pod::default() })
    }

    fn list(uids: &[&str], taken: Instant) -> List {
        let pods = uids.iter().map(|uid| pod(uid)).collect();
        List { pods, taken, is_complete: true }
    }

    /// Whether `live`, which has a cgroup, and `gone` are still known, `seconds` after both left
    /// the list.
    fn known_after(seconds: u64) -> [bool; 2] {
        let shared = ServiceState::new(Statuses::of([]), false, Duration::MAX, Arc::default());
        let mut publisher = PodPublisher::default();
        let now = Instant::now();
        publisher.publish(&shared, list(&["live", "gone", "static"], now));
        *lock(&shared.live) = Some(["live".into(), "static".into()].into());
        publisher.publish(&shared, list(&["static"], now));
        publisher.publish(&shared, list(&["static"], now + Duration::from_secs(seconds)));
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
        let shared = ServiceState::new(Statuses::of([]), false, Duration::MAX, Arc::default());
        let mut publisher = PodPublisher::default();
        let now = Instant::now();
        publisher.publish(&shared, list(&["a"], now));
        let later = now + Duration::from_secs(30);
        publisher.publish(&shared, list(&["a"], later));
        assert_eq!((shared.index.load().generation(), *lock(&shared.listed_at)), (1, Some(later)));
    }

    fn report(publisher: &mut PodPublisher, shared: &ServiceState, uid: &str) {
        let pod = Pod { uid: uid.into(), unlisted: Some(<_>::default()), ..Pod::default() };
        let reported = ReportedSandbox { pod, sandbox: "s".into() };
        publisher.report(shared, |runtime| {
            runtime.connected();
            runtime.add_pod(reported, Instant::now());
            let created = crate::CreatedContainer {
                pod_uid: uid.to_owned(),
                name: "app".to_owned(),
                id: "id".to_owned(),
                claimed_cpus: None,
            };
            runtime.add_container(&created, Instant::now());
        });
    }

    #[test]
    fn a_reported_pod_is_found_until_a_list_has_it_or_ends_it() {
        let shared = ServiceState::new(Statuses::of([]), false, Duration::MAX, Arc::default());
        let mut publisher = PodPublisher::default();
        report(&mut publisher, &shared, "new");
        let found = |uid: &str| shared.index.load().pod(uid).map(|pod| pod.is_listed());
        assert_eq!(found("new"), Some(false));
        assert!(shared.index.load().pods().is_empty(), "it is not in a list");
        assert!(!*shared.progress.borrow(), "the pods are not known by one report");
        publisher.publish(&shared, list(&["new"], Instant::now()));
        assert_eq!(found("new"), Some(true));
        let index = shared.index.load_full();
        assert!(matches!(index.container("new", "id"), kubepods::Lookup::Named { .. }));
        assert!(publisher.listed()[0].containers.is_empty(), "the list stays as it was");

        report(&mut publisher, &shared, "other");
        let later = Instant::now() + Duration::from_secs(60);
        publisher.publish(&shared, List { is_complete: false, ..list(&["new"], later) });
        assert_eq!(found("other"), Some(false), "the list was cut");
        publisher.publish(&shared, list(&["new"], later));
        assert_eq!(found("other"), None);
    }

    #[test]
    fn a_report_without_a_change_creates_no_index() {
        let shared = ServiceState::new(Statuses::of([]), false, Duration::MAX, Arc::default());
        let mut publisher = PodPublisher::default();
        publisher.publish(&shared, list(&["a"], Instant::now()));
        report(&mut publisher, &shared, "a");
        let generation = shared.index.load().generation();
        report(&mut publisher, &shared, "a");
        publisher.publish(&shared, list(&["a"], Instant::now()));
        assert_eq!(shared.index.load().generation(), generation);
    }
}
