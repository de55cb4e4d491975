//! What a cgroup's series are called: the join with the pods, and what to show while a name is not known.
//!
//! Pure but for [`PodNames`]: time and what the kernel shows are arguments. [`Naming`](crate::cgroup::Naming) holds the
//! result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pods::model::{Container, Pod};
use pods::{Lookup, PodIndex, Pods};

use crate::cgroup::{ContainerKey, Naming};
use crate::labels;
use crate::snapshot::{ContainerIdentity, PodIdentity, SpecRow};

/// How long a cgroup of an unknown pod is not shown where a source of names answers: longer than a kubelet takes to list
/// a new pod, so that a series is not first shown under another name.
const NAME_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for a cgroup of a known pod: the kubelet lists a new container after its next relist, about a second.
const UNMAPPED_AFTER: Duration = Duration::from_secs(3);

/// A list whose request began this long after a cgroup appeared has had the time to name it.
const LISTED_AFTER: Duration = Duration::from_secs(5);

/// Time to the second look at a cgroup without a name; doubles from there.
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// Longest time between two looks at a cgroup without a name. A new list makes all of them due.
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// Source of the names of cgroups. The sampler never waits for it.
pub trait PodNames: Send {
    /// The pods as last known.
    fn index(&self) -> Arc<PodIndex>;
    /// When the request for the latest list began, one that changed nothing in the index included; `None` before the
    /// first. Without it, no list proves a cgroup a sandbox.
    fn listed_at(&self) -> Option<Instant> {
        None
    }
    /// This cgroup has no name in the present index. May be called at every tick.
    fn ask(&self, pod_uid: &str, container_id: &str);
    /// Nobody wants the name of this cgroup any more.
    fn withdraw(&self, _container_id: &str) {}
    /// The cgroup of this pod is there, or has gone.
    fn pod_lives(&self, _pod_uid: &str, _lives: bool) {}
    /// Why no source of names answers, empty while one does; `None` where names are not wanted.
    fn missing(&self) -> Option<&'static str> {
        None
    }
    /// Some source has answered or is still being asked for the first time: a name may come soon.
    fn may_answer(&self) -> bool;
}

impl PodNames for Pods {
    fn index(&self) -> Arc<PodIndex> {
        Self::index(self)
    }

    fn listed_at(&self) -> Option<Instant> {
        Self::listed_at(self)
    }

    fn ask(&self, pod_uid: &str, container_id: &str) {
        Self::ask(self, pod_uid, container_id);
    }

    fn withdraw(&self, container_id: &str) {
        Self::withdraw(self, container_id);
    }

    fn pod_lives(&self, pod_uid: &str, lives: bool) {
        Self::pod_lives(self, pod_uid, lives);
    }

    fn missing(&self) -> Option<&'static str> {
        self.has_source().then(|| self.names_missing().map_or("", pods::Cause::reason))
    }

    fn may_answer(&self) -> bool {
        let status = self.status();
        status.iter().any(|source| source.ever() || source.error.is_none())
    }
}

/// When an unnamed cgroup is looked at: at once, then ever more rarely.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    due: Instant,
    delay: Duration,
}

impl Look {
    pub(crate) fn new(found: Instant) -> Self {
        Self { due: found, delay: FIRST_DELAY }
    }

    pub(crate) fn due(self) -> Instant {
        self.due
    }

    pub(crate) fn is_due(self, now: Instant) -> bool {
        self.due <= now
    }

    /// Where no source may answer, nothing new is to be seen once a cgroup has had its pause process for a while.
    pub(crate) fn is_in_vain(self) -> bool {
        self.delay >= LONGEST_DELAY
    }

    /// Notes a look at `now`.
    pub(crate) fn taken(&mut self, now: Instant) {
        self.due = now + self.delay;
        self.delay = (self.delay * 2).min(LONGEST_DELAY);
    }
}

/// What to call a container's cgroup.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Name {
    /// A container of a known pod.
    Known(Box<KnownContainer>),
    /// Not yet: count it, and do not show it.
    Pending,
    /// Show it by its id.
    Unmapped(Box<ContainerIdentity>),
    /// A sandbox: never shown.
    Sandbox,
}

/// A named container and what its pod's spec says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownContainer {
    pub(crate) identity: ContainerIdentity,
    pub(crate) request_cores: Option<f64>,
    pub(crate) memory_request_bytes: Option<u64>,
    pub(crate) spec: SpecRow,
}

/// What the kernel lets a container's cgroup use.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) cpu_cores: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
}

/// What is known of an unnamed cgroup beside the list.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Circumstances {
    /// How long it has been there.
    pub(crate) age: Duration,
    /// How long it had been there when the request for the latest list began; `None` for an older list.
    pub(crate) age_at_list: Option<Duration>,
    pub(crate) limits: Limits,
    /// A source of names may answer.
    pub(crate) may_answer: bool,
}

/// What the kernel shows of an unnamed cgroup and of its pod. Each answer costs something: asked for only where needed.
pub(crate) trait Surroundings {
    /// Its only process is a pause.
    fn runs_pause(&self) -> bool;
    /// Something runs in it: a process, seen or unseen, or a cgroup of its own.
    fn is_populated(&self) -> bool;
    /// A cgroup of this container is in the pod.
    fn lives(&self, container_id: &str) -> bool;
    /// Another cgroup of the pod is proven its sandbox. A pod has one at a time.
    fn has_sandbox(&self) -> bool;
}

/// Names a container's cgroup. A sandbox is told only by positive evidence: a pause process in it, or a list that was
/// fetched well after the cgroup appeared and leaves nothing else.
pub(crate) fn name(
    index: &PodIndex,
    key: &ContainerKey,
    circumstances: Circumstances,
    surroundings: &impl Surroundings,
) -> Name {
    let Circumstances { age, age_at_list, limits, may_answer } = circumstances;
    let lookup = index.container(&key.uid, &key.id);
    if let Lookup::Named { pod, container } = lookup {
        return Name::Known(Box::new(known(pod, container, key)));
    }
    if surroundings.runs_pause() && !surroundings.has_sandbox() {
        return Name::Sandbox;
    }
    let is_old_enough = is_shown_unnamed(index, key, age, may_answer);
    let unnamed = |is_shown| match is_shown {
        true => Name::Unmapped(Box::new(unmapped(index, key))),
        false => Name::Pending,
    };
    let Lookup::Unlisted { pod } = lookup else {
        return unnamed(is_old_enough);
    };
    if age_at_list.is_some_and(|age| age >= LISTED_AFTER) {
        if let Some(container) = by_limits(pod, limits) {
            return Name::Known(Box::new(known(pod, container, key)));
        }
        if pod.leaves_only_its_sandbox(|id| surroundings.lives(id)) && !surroundings.has_sandbox() {
            return Name::Sandbox;
        }
    }
    // What an earlier run has left behind is counted, and not shown: nothing in it needs a name.
    unnamed(is_old_enough && surroundings.is_populated())
}

/// Whether a cgroup of this age that no list has is shown by its id.
pub(crate) fn is_shown_unnamed(index: &PodIndex, key: &ContainerKey, age: Duration, may_answer: bool) -> bool {
    let held_back = match index.pod(&key.uid) {
        Some(_) => UNMAPPED_AFTER,
        None if may_answer => NAME_TIMEOUT,
        None => Duration::ZERO,
    };
    age >= held_back
}

/// A kubelet that lists a container's id too late names it by its limits.
fn by_limits(pod: &Pod, limits: Limits) -> Option<&Container> {
    let cpu_millis = limits.cpu_cores.map(|cores| (cores * 1000.0).round() as u64);
    pod.container_by_limits(cpu_millis, limits.memory_bytes)
}

/// The container whose id a list has, for a cgroup that is gone or was taken for a sandbox.
pub(crate) fn listed(index: &PodIndex, key: &ContainerKey) -> Option<KnownContainer> {
    match index.container(&key.uid, &key.id) {
        Lookup::Named { pod, container } => Some(known(pod, container, key)),
        _ => None,
    }
}

/// What the spec says now of a container that has its name already. `None` where its pod, or the container in it, is not
/// known any more: then the last word counts.
pub(crate) fn refreshed(index: &PodIndex, key: &ContainerKey, identity: &ContainerIdentity) -> Option<KnownContainer> {
    let pod = index.pod(&key.uid)?;
    let is_same = *pod.namespace == *identity.namespace && *pod.name == *identity.pod;
    let container = pod.container_by_name(&identity.container).filter(|_| is_same)?;
    let mut known = known(pod, container, key);
    if container.id.as_deref() != Some(&*key.id) {
        // Of two cgroups of a container the one that runs now is the other.
        known.identity.container_id.clone_from(&identity.container_id);
    }
    Some(known)
}

fn known(pod: &Pod, container: &Container, key: &ContainerKey) -> KnownContainer {
    let (namespace, pod_name, name) = (pod.namespace.to_string(), pod.name.to_string(), container.name.to_string());
    let identity = ContainerIdentity {
        labels: labels::pairs(&[("namespace", &namespace), ("pod", &pod_name), ("container", &name)]),
        namespace,
        pod: pod_name,
        container: name,
        uid: pod.uid.to_string(),
        container_id: key.id.to_string(),
        image: container.image.to_string(),
        qos_class: pod.qos_class.unwrap_or(key.qos).as_str().to_owned(),
        cpu_qos: pod.pinning.qos_class.as_deref().unwrap_or_default().to_owned(),
        cgroup_driver: key.driver.as_str(),
    };
    let resources = container.resources;
    KnownContainer {
        identity,
        request_cores: resources.cpu_request_millis.map(|millis| millis as f64 / 1000.0),
        memory_request_bytes: resources.memory_request_bytes,
        spec: SpecRow {
            kind: container.kind,
            pod_requests_cpu: pod.resources.cpu_request_millis.is_some(),
            pod_limits_memory: pod.resources.memory_limit_bytes.is_some(),
        },
    }
}

/// A cgroup without a name: its container's id under its pod, or under the pod's UID while the pod is unknown too.
pub(crate) fn unmapped(index: &PodIndex, key: &ContainerKey) -> ContainerIdentity {
    in_pod(index, key, &key.id)
}

/// Where the counts of containers go that have exited without a name, once a pod has many of them: no container's.
pub(crate) fn exited_unnamed(index: &PodIndex, key: &ContainerKey) -> ContainerIdentity {
    ContainerIdentity { container_id: String::new(), ..in_pod(index, key, "") }
}

fn in_pod(index: &PodIndex, key: &ContainerKey, container: &str) -> ContainerIdentity {
    let pod = index.pod(&key.uid);
    let (namespace, name) = pod.map_or(("", &*key.uid), |pod| (&*pod.namespace, &*pod.name));
    ContainerIdentity {
        labels: labels::pairs(&[("namespace", namespace), ("pod", name), ("container", container)]),
        namespace: namespace.to_owned(),
        pod: name.to_owned(),
        container: container.to_owned(),
        uid: key.uid.to_string(),
        container_id: key.id.to_string(),
        qos_class: key.qos.as_str().to_owned(),
        cgroup_driver: key.driver.as_str(),
        ..ContainerIdentity::default()
    }
}

/// What a pod's own series are called.
pub(crate) fn pod(index: &PodIndex, uid: &str, age: Duration, may_answer: bool) -> (PodIdentity, Naming) {
    let (namespace, pod, naming) = match index.pod(uid) {
        Some(pod) => (pod.namespace.to_string(), pod.name.to_string(), Naming::Named),
        None if may_answer && age < NAME_TIMEOUT => (String::new(), uid.to_owned(), Naming::Pending),
        None => (String::new(), uid.to_owned(), Naming::Unmapped),
    };
    (PodIdentity { labels: labels::pairs(&[("namespace", &namespace), ("pod", &pod)]), namespace, pod }, naming)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use pods::model::{ContainerKind, ContainerState, Resources};
    use pods::path::{Driver, QosClass};

    use super::*;

    fn key() -> ContainerKey {
        ContainerKey { uid: "u".into(), id: "new".into(), qos: QosClass::Burstable, driver: Driver::Cgroupfs }
    }

    #[test]
    fn spec_row_has_container_kind_and_pod_level_resources() {
        let sidecar = Container { kind: ContainerKind::Sidecar, ..Container::default() };
        let spec = |resources| known(&Pod { resources, ..Pod::default() }, &sidecar, &key()).spec;
        let none = SpecRow { kind: ContainerKind::Sidecar, pod_requests_cpu: false, pod_limits_memory: false };
        assert_eq!(spec(Resources::default()), none);
        let cpu = Resources { cpu_request_millis: Some(500), ..Resources::default() };
        assert_eq!(spec(cpu), SpecRow { pod_requests_cpu: true, ..none });
        let memory = Resources { memory_limit_bytes: Some(1 << 30), ..Resources::default() };
        assert_eq!(spec(memory), SpecRow { pod_limits_memory: true, ..none });
    }

    /// The pod's only container is listed as running under the id `old`.
    #[derive(Default)]
    struct InPod {
        pause: bool,
        empty: bool,
        old_lives: bool,
        sandbox: bool,
        looks: Cell<u32>,
    }

    impl Surroundings for InPod {
        fn runs_pause(&self) -> bool {
            self.looks.set(self.looks.get() + 1);
            self.pause
        }

        fn is_populated(&self) -> bool {
            !self.empty
        }

        fn lives(&self, container_id: &str) -> bool {
            self.old_lives && container_id == "old"
        }

        fn has_sandbox(&self) -> bool {
            self.sandbox
        }
    }

    fn index(id: &str, state: ContainerState) -> PodIndex {
        let settled = state == ContainerState::Running;
        let app = Container { name: "app".into(), id: Some(id.into()), state, settled, ..Container::default() };
        let pod = Pod { uid: "u".into(), name: "web".into(), containers: vec![app], ..Pod::default() };
        PodIndex::build(&PodIndex::default(), vec![Arc::new(pod)], [])
    }

    /// The cgroup `new`, so many seconds old, with a list as many seconds after it appeared.
    fn named(index: &PodIndex, age: u64, age_at_list: u64, surroundings: &InPod) -> &'static str {
        let circumstances = Circumstances {
            age: Duration::from_secs(age),
            age_at_list: Some(Duration::from_secs(age_at_list)),
            may_answer: true,
            ..Circumstances::default()
        };
        match name(index, &key(), circumstances, surroundings) {
            Name::Known(_) => "named",
            Name::Pending => "pending",
            Name::Unmapped(identity) if identity.pod == "web" => "unmapped",
            Name::Unmapped(_) => "unmapped, pod unknown",
            Name::Sandbox => "sandbox",
        }
    }

    #[test]
    fn a_sandbox_is_told_by_evidence_only() {
        let running = index("old", ContainerState::Running);
        let waiting = index("old", ContainerState::Waiting);
        let lives = || InPod { old_lives: true, ..InPod::default() };
        let pause = || InPod { pause: true, ..InPod::default() };
        let cases = [
            ("its id is listed", &index("new", ContainerState::Running), 0, 0, pause(), "named"),
            ("a pause", &running, 0, 0, pause(), "sandbox"),
            ("a second pause", &running, 9, 9, InPod { sandbox: true, ..pause() }, "unmapped"),
            ("a late list, all there", &running, 9, 5, lives(), "sandbox"),
            ("an early list, all there", &running, 2, 2, lives(), "pending"),
            ("an early list, old cgroup", &running, 9, 4, lives(), "unmapped"),
            ("a late list, its container is gone", &running, 600, 599, InPod::default(), "unmapped"),
            ("a late list between two runs", &waiting, 600, 599, InPod::default(), "unmapped"),
            ("nothing in it", &running, 600, 599, InPod { empty: true, ..InPod::default() }, "pending"),
            ("a second sandbox", &running, 9, 9, InPod { sandbox: true, ..lives() }, "unmapped"),
            ("an unknown pod", &PodIndex::default(), 9, 9, lives(), "pending"),
            ("an unknown pod for long", &PodIndex::default(), 10, 9, lives(), "unmapped, pod unknown"),
            ("an unknown pod's pause", &PodIndex::default(), 0, 0, pause(), "sandbox"),
        ];
        for (case, index, age, age_at_list, surroundings, expected) in cases {
            assert_eq!(named(index, age, age_at_list, &surroundings), expected, "{case}");
        }
    }

    #[test]
    fn a_listed_container_costs_no_look_at_its_processes() {
        let surroundings = InPod::default();
        named(&index("new", ContainerState::Running), 0, 0, &surroundings);
        assert_eq!(surroundings.looks.get(), 0);
    }

    #[test]
    fn looks_become_rare() {
        let begin = Instant::now();
        let (mut look, mut now, mut looks) = (Look::new(begin), begin, 0);
        while now < begin + Duration::from_secs(3600) {
            now = look.due();
            assert!(look.is_due(now));
            look.taken(now);
            looks += 1;
        }
        assert!((115..140).contains(&looks), "{looks} in an hour");
    }
}
