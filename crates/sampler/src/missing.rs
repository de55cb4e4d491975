//! Containers that the list of pods calls running and that have no cgroup.
//!
//! Pure: time, list and cgroups are arguments.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Instant;

use cgroup_tree::Sought;
use kubepods::PodIndex;
use kubepods::model::{Container, ContainerState, Pod};
use kubepods::path::QosClass;
use snapshot::MissingContainer;

use crate::cgroup::{ContainerKey, Naming};
use crate::timing::Timing;

/// Containers without a cgroup, and since when.
#[derive(Debug, Default)]
pub(crate) struct MissingContainers {
    checked: Option<Instant>,
    /// By container id.
    absent: HashMap<Box<str>, Absence>,
    /// Hashes of the ids of all cgroups at the last check, sorted.
    ids: Vec<u64>,
    /// The same at the check before.
    before: Vec<u64>,
    is_waiting: bool,
    /// The ones that are reported; `None` without a recent list.
    reported: Option<Arc<[MissingContainer]>>,
}

#[derive(Debug, Clone, Copy)]
struct Absence {
    since: Instant,
    /// Whether it had a cgroup at the check before: it has probably ended.
    had_cgroup: bool,
    /// Whether its cgroup was searched for outside of the kubepods roots.
    was_sought: bool,
}

impl MissingContainers {
    /// The containers without a cgroup, for the snapshot.
    pub(crate) fn reported(&self) -> Option<&Arc<[MissingContainer]>> {
        self.reported.as_ref()
    }

    /// Whether some container has no cgroup and is not reported yet. Those of known sandboxes do not
    /// count.
    pub(crate) fn awaits_report(&self) -> bool {
        self.is_waiting
    }

    /// Compares the list of pods, requested at `listed_at`, with all cgroups of containers, if that
    /// is due. Returns the containers to search for; `None` if nothing changes.
    pub(crate) fn check<'a>(
        &mut self,
        now: Instant,
        (index, listed_at): (&PodIndex, Option<Instant>),
        cgroups: &(impl Iterator<Item = (&'a ContainerKey, Naming)> + Clone),
        timing: &Timing,
    ) -> Option<Vec<Sought>> {
        let age = |at: Instant| now.saturating_duration_since(at);
        if self.checked.is_some_and(|checked| age(checked) < timing.missing_check) {
            return None;
        }
        let Some(listed_at) = listed_at.filter(|listed| age(*listed) < timing.recent_list) else {
            self.reported = None;
            return self.forget();
        };
        self.checked = Some(now);
        let (mut absent, mut reported, mut sought) = (HashMap::new(), Vec::new(), Vec::new());
        std::mem::swap(&mut self.ids, &mut self.before);
        self.ids.clear();
        self.ids.extend(cgroups.clone().map(|(key, _)| hash(&key.id)));
        self.ids.sort_unstable();
        let mut is_waiting = false;
        for (pod, container, id) in running(index) {
            let hash = hash(id);
            if self.ids.binary_search(&hash).is_ok() {
                continue;
            }
            let had_cgroup = self.before.binary_search(&hash).is_ok();
            let new = Absence { since: now, had_cgroup, was_sought: false };
            let mut absence = self.absent.get(id).copied().unwrap_or(new);
            let is_confirmed =
                listed_at.saturating_duration_since(absence.since) >= timing.listed_after;
            let is_due = is_confirmed && age(absence.since) >= timing.missing_after;
            let is_outdated = || {
                let is_of_pod = |key: &ContainerKey| pod.cgroup_names().any(|uid| *uid == *key.uid);
                cgroups.clone().any(|(key, naming)| naming.is_open() && is_of_pod(key))
            };
            if is_due && absence.was_sought && !(absence.had_cgroup && is_outdated()) {
                reported.push(row(pod, container));
            } else {
                is_waiting |= !pod.is_sandboxed();
            }
            if is_confirmed || !absence.had_cgroup {
                absence.was_sought = true;
                sought.push(Sought {
                    uid: pod.uid.clone(),
                    id: id.into(),
                    qos: pod.qos_class.unwrap_or(QosClass::BestEffort),
                    is_sandboxed: pod.is_sandboxed(),
                });
            }
            absent.insert(id.into(), absence);
        }
        if self.reported.as_deref() != Some(&reported[..]) {
            self.reported = Some(reported.into());
        }
        self.is_waiting = is_waiting;
        let is_changed = !self.absent.is_empty() || !absent.is_empty();
        self.absent = absent;
        is_changed.then_some(sought)
    }

    fn forget(&mut self) -> Option<Vec<Sought>> {
        let had_some = !self.absent.is_empty();
        self.is_waiting = false;
        self.absent.clear();
        had_some.then(Vec::new)
    }
}

/// The containers that are listed as running, with their ids, of pods that are not about to end.
fn running(index: &PodIndex) -> impl Iterator<Item = (&Pod, &Container, &str)> {
    let pods = index.pods().iter().filter(|pod| !pod.deleting && !pod.phase.is_final());
    pods.flat_map(|pod| pod.containers.iter().map(move |container| (&**pod, container)))
        .filter(|(_, container)| container.state == ContainerState::Running)
        .filter_map(|(pod, container)| Some((pod, container, container.id.as_deref()?)))
}

fn row(pod: &Pod, container: &Container) -> MissingContainer {
    MissingContainer {
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container: container.name.clone(),
        sandboxed_by: pod.runtime_class.clone().filter(|_| pod.is_sandboxed()),
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kubepods::path::Driver;

    use super::*;

    const APP: &str = "a";

    fn index(class: Option<&str>, state: ContainerState) -> PodIndex {
        let container =
            Container { name: "app".into(), id: Some(APP.into()), state, ..Container::default() };
        let pod = Pod {
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u".into(),
            runtime_class: class.map(Into::into),
            containers: vec![container],
            ..Pod::default()
        };
        PodIndex::build(&PodIndex::default(), vec![Arc::new(pod)], [])
    }

    fn cgroup(id: &str) -> ContainerKey {
        let (qos, driver) = (QosClass::Burstable, Driver::Cgroupfs);
        ContainerKey { uid: "u".into(), id: id.into(), qos, driver }
    }

    /// A node whose list is requested every 10 s.
    struct Node {
        missing: MissingContainers,
        start: Instant,
        index: PodIndex,
        cgroups: Vec<(ContainerKey, Naming)>,
        listed: u64,
    }

    impl Node {
        fn new(index: PodIndex) -> Self {
            let (missing, start) = (MissingContainers::default(), Instant::now());
            Self { missing, start, index, cgroups: Vec::new(), listed: 0 }
        }

        /// Checks once per second. Returns the number of reported containers, and whether any is
        /// sought.
        fn until(&mut self, seconds: std::ops::Range<u64>) -> (Option<usize>, Option<bool>) {
            let mut sought = None;
            for second in seconds {
                let at = |second| self.start + Duration::from_secs(second);
                let cgroups = self.cgroups.iter().map(|(key, naming)| (key, *naming));
                let list = (&self.index, Some(at(self.listed)));
                let found = self.missing.check(at(second), list, &cgroups, &Timing::default());
                sought = found.map(|found| !found.is_empty()).or(sought);
                if second % 10 == 0 {
                    self.listed = second;
                }
            }
            (self.missing.reported().map(|reported| reported.len()), sought)
        }
    }

    #[test]
    fn a_running_container_without_a_cgroup_is_sought_at_once_and_reported_after_30_s() {
        let mut node = Node::new(index(None, ContainerState::Running));
        assert_eq!(node.until(0..1), (Some(0), Some(true)));
        assert!(node.missing.awaits_report());
        assert_eq!(node.until(1..30), (Some(0), Some(true)));
        assert_eq!(node.until(30..33), (Some(1), Some(true)));
        let reported = &node.missing.reported().unwrap()[0];
        assert_eq!(
            (&*reported.pod, &*reported.container, &reported.sandboxed_by),
            ("web", "app", &None)
        );
        assert!(!node.missing.awaits_report());
        node.cgroups = vec![(cgroup(APP), Naming::Named)];
        assert_eq!(node.until(33..36), (Some(0), Some(false)), "it was found");
    }

    #[test]
    fn a_list_must_be_recent_and_younger_than_the_absence() {
        let mut node = Node::new(index(None, ContainerState::Running));
        node.until(0..1);
        node.listed = 3;
        let at = |second| node.start + Duration::from_secs(second);
        let mut check = |second, listed| {
            let list = (&node.index, Some(at(listed)));
            node.missing.check(at(second), list, &std::iter::empty(), &Timing::default());
            node.missing.reported().map(|reported| reported.len())
        };
        assert_eq!(check(40, 3), Some(0), "the list may be older than its end");
        assert_eq!(check(42, 10), Some(1));
        assert_eq!(check(71, 10), None, "no recent list");
    }

    #[test]
    fn a_container_that_ended_is_not_sought_until_a_new_list_calls_it_running() {
        let mut node = Node::new(index(None, ContainerState::Running));
        node.cgroups = vec![(cgroup(APP), Naming::Named)];
        assert_eq!(node.until(0..12), (Some(0), None));
        node.cgroups.clear();
        assert_eq!(node.until(12..16), (Some(0), Some(false)));
        assert_eq!(node.until(16..26), (Some(0), Some(true)));
        node.index = index(None, ContainerState::Terminated);
        assert_eq!(node.until(26..60), (Some(0), Some(false)));
    }

    #[test]
    fn a_list_is_outdated_if_a_new_cgroup_takes_the_place_of_the_listed_one() {
        let mut node = Node::new(index(None, ContainerState::Running));
        node.cgroups = vec![(cgroup(APP), Naming::Named)];
        node.until(0..10);
        node.cgroups = vec![(cgroup("b"), Naming::Unmapped)];
        assert_eq!(node.until(10..90).0, Some(0));
        node.cgroups[0].1 = Naming::Sandbox;
        assert_eq!(node.until(90..93).0, Some(1));
    }

    #[test]
    fn a_known_sandbox_is_named_and_any_other_cgroup_of_the_pod_hides_nothing() {
        for class in [None, Some("kata-qemu")] {
            let mut node = Node::new(index(class, ContainerState::Running));
            node.cgroups = vec![(cgroup("b"), Naming::Unmapped)];
            assert_eq!(node.until(0..33).0, Some(1));
            let reported = &node.missing.reported().unwrap()[0];
            assert_eq!(reported.sandboxed_by.as_deref(), class);
        }
    }
}
