//! The handler of the runtime's calls: answers from memory, and keeps the variables of the running
//! containers.

use analysis::Place;
use analysis::injection::{
    CONTAINERS_ANNOTATION, Known, RECORD_ANNOTATION, Record, Request, VARIABLES_ANNOTATION,
};
use nri::api::{Container, ContainerState, ContainerUpdate, Event, LinuxResources, PodSandbox};
use nri::{Creation, Events, Handler};

use crate::container::{InjectedContainer, InjectedContainers, Limit, Resources};
use crate::rules::InjectionRules;

type SpecOf = Box<dyn Fn(&str, &str) -> Option<(Place, Known)> + Send>;
type Publish = Box<dyn FnMut(&InjectedContainers) + Send>;

/// Injects variables into new containers, or only reports them.
pub struct Injector {
    rules: InjectionRules,
    spec_of: SpecOf,
    publish: Publish,
    containers: InjectedContainers,
}

impl std::fmt::Debug for Injector {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rules, containers, .. } = self;
        out.debug_struct("Injector").field("rules", rules).field("containers", containers).finish()
    }
}

impl Injector {
    /// An injector that asks `spec_of` for the place of a container in the spec of the pod with
    /// this UID, and calls `publish` after each change.
    pub(super) fn new(
        rules: InjectionRules,
        spec_of: impl Fn(&str, &str) -> Option<(Place, Known)> + Send + 'static,
        publish: impl FnMut(&InjectedContainers) + Send + 'static,
    ) -> Self {
        let (spec_of, publish) = (Box::new(spec_of), Box::new(publish));
        Self { rules, spec_of, publish, containers: InjectedContainers::new() }
    }

    /// The variables for a container; `None` if it gets none.
    fn entry(&self, pod: &PodSandbox, container: &Container) -> Option<InjectedContainer> {
        let request = self.request(pod)?;
        let spec = (self.spec_of)(&pod.uid, &container.name);
        let place = spec.map(|(place, _)| place);
        if !request.selects(&container.name, place) {
            if place.is_none() && request.containers.is_none() {
                tracing::info!(
                    namespace = pod.namespace,
                    pod = pod.name,
                    container = container.name,
                    "no variables: the pod's spec is not known yet, and the container may be an init container; name \
                     it in the annotation {CONTAINERS_ANNOTATION}"
                );
            }
            return None;
        }
        let known = spec.map(|(_, known)| known).unwrap_or_default();
        let now = resources(pod, container);
        let limits = now.limits();
        let values = request.missing(|name| has(container, name), &limits, &known);
        (!values.is_empty()).then(|| {
            let record = Record { values, limits };
            entry_of(pod, container, record, known, now)
        })
    }

    fn request(&self, pod: &PodSandbox) -> Option<Request> {
        let annotations = [VARIABLES_ANNOTATION, CONTAINERS_ANNOTATION]
            .map(|key| pod.annotations.get(key).map(String::as_str));
        self.rules.request(&pod.namespace, &pod.labels, annotations).unwrap_or_else(|error| {
            tracing::warn!(
                namespace = pod.namespace,
                pod = pod.name,
                "no variables: annotation {VARIABLES_ANNOTATION}: {error}"
            );
            None
        })
    }

    fn changed(&mut self) {
        (self.publish)(&self.containers);
    }
}

impl Handler for Injector {
    fn events(&self) -> Events {
        Events::of(&[
            Event::CreateContainer,
            Event::UpdateContainer,
            Event::UpdatePodSandbox,
            Event::StopContainer,
            Event::RemoveContainer,
            Event::RemovePodSandbox,
        ])
    }

    fn synchronize(
        &mut self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Vec<ContainerUpdate> {
        self.containers.clear();
        let live = containers
            .into_iter()
            .filter(|container| container.state() != ContainerState::ContainerStopped);
        for container in live {
            let of = |pod: &&PodSandbox| pod.id == container.pod_sandbox_id;
            let Some(pod) = pods.iter().find(of) else { continue };
            let entry = match container.annotations.get(RECORD_ANNOTATION) {
                Some(text) => {
                    let now = resources(pod, &container);
                    let record = Record::parse(text);
                    let entry = entry_of(pod, &container, record, Known::default(), now);
                    Some(InjectedContainer { is_injected: true, ..entry })
                }
                None => self.entry(pod, &container),
            };
            if let Some(entry) = entry {
                self.containers.insert(container.id, entry);
            }
        }
        self.changed();
        Vec::new()
    }

    fn create_container(&mut self, pod: PodSandbox, container: Container) -> Creation {
        let mut creation = Creation::default();
        let Some(mut entry) = self.entry(&pod, &container) else { return creation };
        if !self.rules.observes {
            for (variable, value) in &entry.record.values {
                creation.add_env(variable.name(), value);
            }
            let record = entry.record.to_string();
            creation.add_annotation(RECORD_ANNOTATION, &record);
            entry.is_injected = true;
            tracing::info!(
                namespace = entry.namespace,
                pod = entry.pod,
                container = entry.container,
                record,
                "injected variables"
            );
        }
        self.containers.insert(container.id, entry);
        self.changed();
        creation
    }

    fn update_container(
        &mut self,
        _pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    ) -> Vec<ContainerUpdate> {
        if let Some(entry) = self.containers.get_mut(&container.id) {
            entry.resize(|now| now.own.update(&resources));
            self.changed();
        }
        Vec::new()
    }

    fn update_pod(
        &mut self,
        pod: PodSandbox,
        _overhead: LinuxResources,
        resources: LinuxResources,
    ) {
        for entry in self.containers.values_mut().filter(|entry| entry.sandbox == pod.id) {
            entry.resize(|now| now.pod.update(&resources));
        }
        self.changed();
    }

    fn stop_container(&mut self, _pod: PodSandbox, container: Container) -> Vec<ContainerUpdate> {
        if self.containers.remove(&container.id).is_some() {
            self.changed();
        }
        Vec::new()
    }

    fn notify(&mut self, event: Event, pod: PodSandbox, container: Option<Container>) {
        let before = self.containers.len();
        match (event, container) {
            (Event::RemoveContainer, Some(container)) => {
                self.containers.remove(&container.id);
            }
            (Event::RemovePodSandbox, _) => {
                self.containers.retain(|_, entry| entry.sandbox != pod.id);
            }
            _ => {}
        }
        if self.containers.len() != before {
            self.changed();
        }
    }

    fn disconnected(&mut self) {
        // Resizes and ends are not reported any more.
        self.containers.clear();
        self.changed();
    }
}

fn entry_of(
    pod: &PodSandbox,
    container: &Container,
    record: Record,
    known: Known,
    now: Resources,
) -> InjectedContainer {
    InjectedContainer {
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container: container.name.clone(),
        sandbox: pod.id.clone(),
        record,
        is_injected: false,
        known,
        now,
    }
}

fn resources(pod: &PodSandbox, container: &Container) -> Resources {
    let own = container.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    let of_pod = pod.linux.as_ref().and_then(|linux| linux.pod_resources.as_ref());
    Resources { own: Limit::of(own), pod: Limit::of(of_pod) }
}

/// Whether a container has a variable, from its image or its spec.
fn has(container: &Container, name: &str) -> bool {
    container.env.iter().any(|pair| pair.split('=').next() == Some(name))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use analysis::injection::Status;
    use nri::api::{
        LinuxContainer, LinuxCpu, LinuxMemory, LinuxPodSandbox, OptionalInt64, OptionalUInt64,
    };
    use placement::Selector;

    use super::*;

    const MIB: i64 = 1 << 20;

    fn resources(quota_us: i64, memory: i64) -> LinuxResources {
        LinuxResources {
            cpu: Some(LinuxCpu {
                quota: Some(OptionalInt64 { value: quota_us }),
                period: Some(OptionalUInt64 { value: 100_000 }),
                ..LinuxCpu::default()
            }),
            memory: Some(LinuxMemory {
                limit: Some(OptionalInt64 { value: memory }),
                ..LinuxMemory::default()
            }),
            ..LinuxResources::default()
        }
    }

    fn pod(annotations: &[(&str, &str)]) -> PodSandbox {
        let text = |text: &&str| (*text).to_owned();
        PodSandbox {
            id: "sandbox".into(),
            uid: "uid".into(),
            name: "cart".into(),
            namespace: "shop".into(),
            labels: [("tier".to_owned(), "web".to_owned())].into(),
            annotations: annotations.iter().map(|(key, value)| (text(key), text(value))).collect(),
            ..PodSandbox::default()
        }
    }

    fn opted_in() -> PodSandbox {
        pod(&[(VARIABLES_ANNOTATION, "true")])
    }

    fn container(name: &str, env: &[&str]) -> Container {
        Container {
            id: format!("id-{name}"),
            pod_sandbox_id: "sandbox".into(),
            name: name.into(),
            env: env.iter().map(|pair| (*pair).to_owned()).collect(),
            linux: Some(LinuxContainer {
                resources: Some(resources(150_000, 512 * MIB)),
                ..LinuxContainer::default()
            }),
            ..Container::default()
        }
    }

    /// The injector, and the status of all variables, as last published.
    fn injector(observes: bool) -> (Injector, Arc<Mutex<Vec<String>>>) {
        let selector = Selector { namespaces: vec!["bank".to_owned()], ..Selector::default() };
        let profiles = vec![(selector, Request::parse("true", None).unwrap().unwrap())];
        let place = |uid: &str, name: &str| match (uid, name) {
            ("uid", "app") => Some((Place::Containers, Known::default())),
            ("uid", "setup") => Some((Place::InitContainers, Known::default())),
            _ => None,
        };
        let published = Arc::new(Mutex::new(Vec::new()));
        let last = Arc::clone(&published);
        let publish = move |entries: &InjectedContainers| {
            let rows = entries.values().flat_map(InjectedContainer::rows);
            *last.lock().unwrap() = rows.map(|row| row.join(" ")).collect();
        };
        (Injector::new(InjectionRules { observes, profiles }, place, publish), published)
    }

    fn env(creation: &Creation) -> Vec<String> {
        let adjustment = creation.adjustment.iter();
        let env = adjustment.flat_map(|adjustment| &adjustment.env);
        env.map(|pair| format!("{}={}", pair.key, pair.value)).collect()
    }

    #[test]
    fn an_annotated_pods_container_gets_the_variables_that_it_lacks() {
        let (mut injector, published) = injector(false);
        let creation = injector.create_container(opted_in(), container("app", &["PATH=/bin"]));
        assert_eq!(env(&creation), ["GOMAXPROCS=1", "GOMEMLIMIT=358MiB"]);
        let record = &creation.adjustment.unwrap().annotations[RECORD_ANNOTATION];
        assert_eq!(record, "GOMAXPROCS=1 GOMEMLIMIT=358MiB cpuMillis=1500 memoryBytes=536870912");
        let rows =
            ["shop cart app GOMAXPROCS 1 injected", "shop cart app GOMEMLIMIT 358MiB injected"];
        assert_eq!(*published.lock().unwrap(), rows);
        let has_both = container("app", &["GOMAXPROCS=8", "GOMEMLIMIT="]);
        assert_eq!(injector.create_container(opted_in(), has_both), Creation::default());
    }

    #[test]
    fn only_pods_that_ask_and_their_app_containers_are_touched() {
        let (mut injector, published) = injector(false);
        let others = [
            (pod(&[]), container("app", &[])),
            (pod(&[(VARIABLES_ANNOTATION, "false")]), container("app", &[])),
            (pod(&[(VARIABLES_ANNOTATION, "PATH")]), container("app", &[])),
            (opted_in(), container("setup", &[])),
            // Not in the kubelet's list yet: it may be an init container.
            (opted_in(), container("unlisted", &[])),
        ];
        for (pod, container) in others {
            let name = container.name.clone();
            assert_eq!(injector.create_container(pod, container), Creation::default(), "{name}");
        }
        assert!(published.lock().unwrap().is_empty());
        let named =
            [(VARIABLES_ANNOTATION, "GOMAXPROCS"), (CONTAINERS_ANNOTATION, "setup,unlisted")];
        for name in ["setup", "unlisted"] {
            let creation = injector.create_container(pod(&named), container(name, &[]));
            assert_eq!(env(&creation), ["GOMAXPROCS=1"], "{name}");
        }
    }

    #[test]
    fn a_profile_selects_pods_and_an_annotation_overrides_it() {
        let (mut injector, _published) = injector(false);
        let bank = |annotations| PodSandbox { namespace: "bank".into(), ..pod(annotations) };
        let mut of =
            |annotations| env(&injector.create_container(bank(annotations), container("app", &[])));
        assert_eq!(of(&[]), ["GOMAXPROCS=1", "GOMEMLIMIT=358MiB"]);
        assert_eq!(of(&[(VARIABLES_ANNOTATION, "RAYON_NUM_THREADS")]), ["RAYON_NUM_THREADS=1"]);
        assert!(of(&[(VARIABLES_ANNOTATION, "false")]).is_empty());
    }

    #[test]
    fn the_lowest_limit_over_container_and_pod_counts() {
        let (mut injector, _published) = injector(false);
        let pod_resources = Some(resources(100_000, 256 * MIB));
        let linux = Some(LinuxPodSandbox { pod_resources, ..LinuxPodSandbox::default() });
        let pod = PodSandbox { linux, ..opted_in() };
        let mut unlimited = container("app", &[]);
        unlimited.linux.as_mut().unwrap().resources = Some(resources(-1, 0));
        for container in [container("app", &[]), unlimited] {
            let creation = injector.create_container(pod.clone(), container);
            assert_eq!(env(&creation), ["GOMAXPROCS=1", "GOMEMLIMIT=179MiB"]);
        }
    }

    #[test]
    fn observing_changes_no_container_and_follows_its_limits() {
        let (mut injector, published) = injector(true);
        let creation = injector.create_container(opted_in(), container("app", &[]));
        assert_eq!(creation, Creation::default());
        assert_eq!(published.lock().unwrap()[0], "shop cart app GOMAXPROCS 1 observed");
        let more = resources(400_000, 512 * MIB);
        assert!(injector.update_container(opted_in(), container("app", &[]), more).is_empty());
        assert_eq!(published.lock().unwrap()[0], "shop cart app GOMAXPROCS 4 observed");
    }

    #[test]
    fn a_resize_makes_a_value_stale_and_the_way_back_makes_it_right() {
        let (mut injector, published) = injector(false);
        injector.create_container(opted_in(), container("app", &[]));
        let mut status_after = |quota_us| {
            let changed = resources(quota_us, 512 * MIB);
            injector.update_container(opted_in(), container("app", &[]), changed);
            let current = injector.containers["id-app"].statuses()[0].clone();
            (current.status, current.current)
        };
        assert_eq!(status_after(300_000), (Status::Stale, Some("3".to_owned())));
        assert_eq!(status_after(-1), (Status::Stale, None));
        assert_eq!(status_after(190_000), (Status::Injected, None));
        injector.update_pod(opted_in(), LinuxResources::default(), resources(400_000, 64 * MIB));
        let rows = ["shop cart app GOMAXPROCS 1 injected", "shop cart app GOMEMLIMIT 358MiB stale"];
        assert_eq!(*published.lock().unwrap(), rows);
    }

    #[test]
    fn an_agent_that_starts_again_knows_what_was_injected() {
        let (mut injector, published) = injector(false);
        let creation = injector.create_container(opted_in(), container("app", &[]));
        let mut injected = container("app", &["GOMAXPROCS=1", "GOMEMLIMIT=358MiB"]);
        injected.annotations = creation.adjustment.unwrap().annotations;
        let mut resized = Container { id: "resized".into(), ..injected.clone() };
        resized.linux.as_mut().unwrap().resources = Some(resources(300_000, 512 * MIB));
        let stopped = Container {
            id: "stopped".into(),
            state: ContainerState::ContainerStopped.into(),
            ..injected.clone()
        };
        injector.disconnected();
        assert!(published.lock().unwrap().is_empty());
        let before = container("app", &[]);
        let before = Container { id: "before".into(), ..before };
        injector.synchronize(vec![opted_in()], vec![injected, resized, stopped, before]);
        let status = |id: &str| {
            let statuses = injector.containers.get(id).map(InjectedContainer::statuses);
            statuses.map(|all| all[0].status)
        };
        assert_eq!(status("id-app"), Some(Status::Injected));
        assert_eq!(status("resized"), Some(Status::Stale));
        assert_eq!(status("stopped"), None);
        assert_eq!(status("before"), Some(Status::Observed));
    }

    #[test]
    fn variables_go_with_their_container_and_pod() {
        let (mut injector, published) = injector(false);
        let count = || published.lock().unwrap().len();
        let create = |injector: &mut Injector| {
            injector.create_container(opted_in(), container("app", &[]));
            assert_eq!(count(), 2);
        };
        create(&mut injector);
        injector.stop_container(opted_in(), container("app", &[]));
        assert_eq!(count(), 0);
        create(&mut injector);
        injector.notify(Event::RemoveContainer, opted_in(), Some(container("app", &[])));
        assert_eq!(count(), 0);
        create(&mut injector);
        injector.notify(Event::RemovePodSandbox, opted_in(), None);
        assert_eq!(count(), 0);
    }
}
