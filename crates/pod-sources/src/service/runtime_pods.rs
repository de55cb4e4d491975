//! Pods and containers that the container runtime reports as it creates them, and their
//! precedence beside the kubelet's list. Pure: time is an argument.
//!
//! The list wins on everything that it contains. The runtime adds what the list does not have yet:
//! pods, and the ids of containers. A report ends with its removal at the runtime, or when a later
//! complete list does not contain it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubepods::model::{Container, ContainerKind, Pod};

use super::CreatedContainer;

/// Minimum age of a pod's report at the start of the request for a list that ends it. The kubelet
/// knows a pod before it creates it; a watch may deliver it a moment later.
const POD_SETTLE: Duration = Duration::from_secs(2);
/// The same for a container's report: the kubelet lists an id after its relist, about a second.
const CONTAINER_SETTLE: Duration = Duration::from_secs(10);
/// Maximum number of pods, and of containers of a pod, to bound memory.
const PODS: usize = 4096;
const CONTAINERS: usize = 256;

/// A pod's sandbox, as the runtime reports it.
#[derive(Debug)]
pub(super) struct ReportedSandbox {
    /// Without containers.
    pub(super) pod: Pod,
    /// Id of the sandbox. A pod may get another one.
    pub(super) sandbox: Box<str>,
}

/// All reports of the runtime, by UID.
#[derive(Debug, Default)]
pub(super) struct RuntimePods {
    pods: HashMap<Box<str>, RuntimePod>,
    /// Whether the runtime reports every change. If not, a container's id in the list may be newer
    /// than a reported one.
    is_connected: bool,
}

#[derive(Debug)]
struct RuntimePod {
    reported: ReportedSandbox,
    since: Instant,
    /// In the order of creation.
    containers: Vec<RuntimeContainer>,
}

#[derive(Debug)]
struct RuntimeContainer {
    name: Box<str>,
    id: Box<str>,
    claimed_cpus: Option<Box<str>>,
    since: Instant,
}

impl RuntimePods {
    /// Replaces all reports by what the runtime has now.
    pub(super) fn connected(&mut self) {
        self.pods.clear();
        self.is_connected = true;
    }

    /// Keeps the reports, to which no changes follow.
    pub(super) fn disconnected(&mut self) {
        self.is_connected = false;
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    /// Adds a pod, or replaces it by its next sandbox.
    pub(super) fn add_pod(&mut self, reported: ReportedSandbox, now: Instant) {
        let uid = &reported.pod.uid;
        if let Some(known) = self.pods.get_mut(uid) {
            known.reported = reported;
        } else if self.pods.len() < PODS && !uid.is_empty() {
            let pod = RuntimePod { since: now, containers: Vec::new(), reported };
            self.pods.insert(pod.reported.pod.uid.clone(), pod);
        }
    }

    /// Adds a container of a known pod.
    pub(super) fn add_container(&mut self, created: &CreatedContainer, now: Instant) {
        let CreatedContainer { pod_uid, name, id, claimed_cpus } = created;
        let Some(pod) = self.pods.get_mut(&**pod_uid) else { return };
        if pod.containers.iter().any(|known| *known.id == **id) {
            return;
        }
        if pod.containers.len() >= CONTAINERS {
            pod.containers.remove(0);
        }
        pod.containers.push(RuntimeContainer {
            name: name.as_str().into(),
            id: id.as_str().into(),
            claimed_cpus: claimed_cpus.clone(),
            since: now,
        });
    }

    pub(super) fn remove_container(&mut self, uid: &str, id: &str) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.containers.retain(|container| *container.id != *id);
        }
    }

    /// Removes a pod, unless another sandbox has replaced this one.
    pub(super) fn remove_pod(&mut self, uid: &str, sandbox: &str) {
        if self.pods.get(uid).is_some_and(|pod| *pod.reported.sandbox == *sandbox) {
            self.pods.remove(uid);
        }
    }

    /// Ends the reports that a complete list, requested at `taken`, should contain and does not.
    pub(super) fn end_missing(&mut self, list: &[Arc<Pod>], taken: Instant) {
        let names = list.iter().flat_map(|pod| pod.cgroup_names().map(move |name| (name, pod)));
        let listed: HashMap<&str, &Arc<Pod>> = names.collect();
        let is_young = |since: Instant, settle| taken.saturating_duration_since(since) < settle;
        self.pods.retain(|uid, pod| match listed.get(&**uid) {
            Some(_) => true,
            None => is_young(pod.since, POD_SETTLE),
        });
        for (uid, pod) in &mut self.pods {
            let Some(listed) = listed.get(&**uid) else { continue };
            pod.containers.retain(|container| {
                is_young(container.since, CONTAINER_SETTLE)
                    || listed.container_by_id(&container.id).is_some()
                    // The kubelet does not know the id of any run yet.
                    || listed.container_by_name(&container.name).is_some_and(|c| c.id.is_none())
            });
        }
    }

    /// The listed pod with the ids that the list does not have yet.
    pub(super) fn complete(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let Some(report) = pod.cgroup_names().find_map(|name| self.pods.get(name)) else {
            return Arc::clone(pod);
        };
        let mut completed = Arc::clone(pod);
        for (at, container) in report.containers.iter().enumerate() {
            let is_known = |one: &RuntimeContainer| pod.container_by_id(&one.id).is_some();
            let same_or_later = &report.containers[at..];
            if same_or_later.iter().any(|one| one.name == container.name && is_known(one)) {
                continue;
            }
            self.complete_container(Arc::make_mut(&mut completed), container);
        }
        for claimant in report.containers.iter().filter(|one| one.claimed_cpus.is_some()) {
            let is_it = |one: &Container| one.id.as_ref() == Some(&claimant.id);
            if completed.containers.iter().any(is_it) {
                let containers = &mut Arc::make_mut(&mut completed).containers;
                let own = containers.iter_mut().filter(|one| is_it(one));
                own.for_each(|one| one.claimed_cpus.clone_from(&claimant.claimed_cpus));
            }
        }
        completed
    }

    fn complete_container(&self, pod: &mut Pod, container: &RuntimeContainer) {
        let (name, id) = (&container.name, &container.id);
        match pod.containers.iter_mut().find(|known| known.name == *name) {
            Some(known) if known.id.is_none() => known.id = Some(id.clone()),
            // A run that the list does not have yet.
            Some(known) if self.is_connected => {
                known.last_id = known.id.replace(id.clone());
                known.is_final = false;
            }
            Some(_) => {}
            // Only ephemeral containers are added to a pod.
            None => pod.containers.push(Container {
                name: name.clone(),
                id: Some(id.clone()),
                kind: ContainerKind::Ephemeral,
                ..Container::default()
            }),
        }
    }

    /// The pods with none of these UIDs, with the containers created so far.
    pub(super) fn unlisted(&self, is_listed: impl Fn(&str) -> bool) -> Vec<Arc<Pod>> {
        let unlisted = self.pods.iter().filter(|(uid, _)| !is_listed(uid));
        unlisted.map(|(_, pod)| Arc::new(pod.alone())).collect()
    }
}

impl RuntimePod {
    /// The pod as the runtime alone knows it.
    fn alone(&self) -> Pod {
        let mut pod = self.reported.pod.clone();
        for RuntimeContainer { name, id, claimed_cpus, .. } in &self.containers {
            match pod.containers.iter_mut().find(|known| known.name == *name) {
                Some(known) => {
                    known.last_id = known.id.replace(id.clone());
                    known.claimed_cpus.clone_from(claimed_cpus);
                }
                None => pod.containers.push(Container {
                    name: name.clone(),
                    id: Some(id.clone()),
                    claimed_cpus: claimed_cpus.clone(),
                    ..Container::default()
                }),
            }
        }
        pod
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(uid: &str, sandbox: &str) -> ReportedSandbox {
        let pod = Pod { uid: uid.into(), unlisted: Some(<_>::default()), ..Pod::default() };
        ReportedSandbox { pod, sandbox: sandbox.into() }
    }

    fn created(name: &str, id: &str) -> CreatedContainer {
        let (pod_uid, name, id) = ("u".to_owned(), name.to_owned(), id.to_owned());
        CreatedContainer { pod_uid, name, id, claimed_cpus: None }
    }

    /// A listed pod with one container, of these runs.
    fn listed(id: Option<&str>, last_id: Option<&str>) -> Arc<Pod> {
        let container = Container {
            name: "app".into(),
            id: id.map(Into::into),
            last_id: last_id.map(Into::into),
            ..Container::default()
        };
        Arc::new(Pod { uid: "u".into(), containers: vec![container], ..Pod::default() })
    }

    /// One pod with these runs of its container, all reported at `now`.
    fn runtime(ids: &[&str], now: Instant) -> RuntimePods {
        let mut runtime = RuntimePods::default();
        runtime.connected();
        runtime.add_pod(sandbox("u", "s"), now);
        ids.iter().for_each(|id| runtime.add_container(&created("app", id), now));
        runtime
    }

    /// The ids of the last and the previous run of each container.
    fn runs(pod: &Pod) -> Vec<(Option<&str>, Option<&str>)> {
        pod.containers.iter().map(|one| (one.id.as_deref(), one.last_id.as_deref())).collect()
    }

    #[test]
    fn the_runtime_fills_in_what_the_list_does_not_have() {
        let now = Instant::now();
        let cases: [(&[&str], _, _, _); 6] = [
            (&["1"], (None, None), (Some("1"), None), "the first run"),
            (&["2"], (Some("1"), None), (Some("2"), Some("1")), "another run"),
            (&["1", "2"], (Some("1"), None), (Some("2"), Some("1")), "the list is one run behind"),
            (&["1", "2"], (Some("2"), None), (Some("2"), None), "the list has the last run"),
            (&["1"], (Some("2"), Some("1")), (Some("2"), Some("1")), "the list is ahead"),
            (&[], (Some("1"), None), (Some("1"), None), "nothing to add"),
        ];
        for (reported, (id, last), expected, case) in cases {
            let completed = runtime(reported, now).complete(&listed(id, last));
            assert_eq!(runs(&completed), [expected], "{case}");
        }
    }

    #[test]
    fn without_a_connection_the_lists_id_counts() {
        let mut runtime = runtime(&["1"], Instant::now());
        runtime.disconnected();
        assert_eq!(runs(&runtime.complete(&listed(Some("2"), None))), [(Some("2"), None)]);
        assert_eq!(runs(&runtime.complete(&listed(None, None))), [(Some("1"), None)]);
    }

    #[test]
    fn a_container_beyond_the_spec_is_an_ephemeral_one() {
        let mut runtime = runtime(&[], Instant::now());
        runtime.add_container(&created("debug", "9"), Instant::now());
        let completed = runtime.complete(&listed(Some("1"), None));
        assert_eq!(completed.containers[1].kind, ContainerKind::Ephemeral);
        assert_eq!(completed.container_by_id("9").map(|one| &*one.name), Some("debug"));
    }

    #[test]
    fn the_cpus_of_a_claim_are_those_of_the_run_that_has_it() {
        let now = Instant::now();
        let mut runtime = runtime(&[], now);
        let claimed_cpus = Some("2-3".into());
        runtime.add_container(&CreatedContainer { claimed_cpus, ..created("app", "1") }, now);
        let claimed = |pod: &Pod| pod.containers[0].claimed_cpus.as_deref().map(str::to_owned);
        let of_list = |id| claimed(&runtime.complete(&listed(id, None)));
        assert_eq!(of_list(Some("1")).as_deref(), Some("2-3"));
        assert_eq!(of_list(None).as_deref(), Some("2-3"), "the id comes from the report, too");
        assert_eq!(claimed(&runtime.unlisted(|_| false)[0]).as_deref(), Some("2-3"));
        runtime.add_container(&created("app", "2"), now);
        assert_eq!(claimed(&runtime.complete(&listed(Some("1"), None))), None, "the next run");
    }

    #[test]
    fn a_report_ends_with_its_removal() {
        let now = Instant::now();
        let mut runtime = runtime(&["1", "2"], now);
        runtime.remove_container("u", "2");
        assert_eq!(runs(&runtime.complete(&listed(None, None))), [(Some("1"), None)]);
        runtime.add_pod(sandbox("u", "next"), now);
        runtime.remove_pod("u", "s");
        assert_eq!(runtime.len(), 1, "another sandbox has replaced it");
        runtime.remove_pod("u", "next");
        assert_eq!(runtime.len(), 0);
    }

    #[test]
    fn a_later_complete_list_ends_what_it_does_not_contain() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut of_pod = runtime(&["1"], now);
        of_pod.end_missing(&[], now + POD_SETTLE - second);
        assert_eq!(of_pod.len(), 1, "the list may be older than the pod");
        of_pod.end_missing(&[], now + POD_SETTLE);
        assert_eq!(of_pod.len(), 0);

        let after = |listed: Arc<Pod>, taken| {
            let mut runtime = runtime(&["1"], now);
            runtime.end_missing(&[listed], taken);
            runtime.pods["u"].containers.len()
        };
        let late = now + CONTAINER_SETTLE;
        assert_eq!(after(listed(Some("2"), None), late - second), 1);
        assert_eq!(after(listed(Some("2"), None), late), 0);
        assert_eq!(after(listed(Some("2"), Some("1")), late), 1, "it is the last run");
        assert_eq!(after(listed(None, None), late), 1, "no run is known");
    }

    #[test]
    fn unlisted_pods_have_the_containers_created_so_far() {
        let runtime = runtime(&["1", "2"], Instant::now());
        let pods = runtime.unlisted(|_| false);
        assert_eq!(runs(&pods[0]), [(Some("2"), Some("1"))]);
        assert!(!pods[0].is_listed());
        assert!(runtime.unlisted(|uid| uid == "u").is_empty());
    }

    #[test]
    fn a_runtime_that_reports_without_end_is_bounded() {
        let now = Instant::now();
        let mut runtime = runtime(&[], now);
        (0..2 * PODS).for_each(|at| runtime.add_pod(sandbox(&format!("p{at}"), "s"), now));
        (0..2 * CONTAINERS)
            .for_each(|at| runtime.add_container(&created("app", &at.to_string()), now));
        assert_eq!((runtime.len(), runtime.pods["u"].containers.len()), (PODS, CONTAINERS));
        let last = (2 * CONTAINERS - 1).to_string();
        assert_eq!(*runtime.pods["u"].containers[CONTAINERS - 1].id, *last);
    }
}
