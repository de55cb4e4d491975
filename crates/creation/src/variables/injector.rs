//! The handler of the runtime's calls: answers from memory, and keeps the variables of the running
//! containers.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use analysis::injection::{
    CONTAINERS_ANNOTATION, Known, RECORD_ANNOTATION, Record, Request, VARIABLES_ANNOTATION,
};
use nri::api::{Container, ContainerState, ContainerUpdate, Event, LinuxResources, PodSandbox};
use nri::{Creation, EventMask, Handler};
use tokio::sync::Notify;

use super::Missed;
use super::container::{
    Candidate, InjectedContainer, InjectedContainers, Limit, Listed, Resources, usable_cpus,
};
use super::failures::Failures;
use super::rules::InjectionRules;

type FindListed = Box<dyn Fn(&str, &str) -> Option<Listed> + Send>;

/// Injects variables into new containers, or only reports them.
pub struct Injector {
    rules: InjectionRules,
    /// Number of the node's online CPUs.
    online_cpus: Option<u64>,
    listed: FindListed,
    containers: InjectedContainers,
    /// Wakes the task that publishes the containers: an answer does not wait for it.
    changes: Arc<Notify>,
    /// Running containers whose pods are not listed yet, by the runtime's id.
    unlisted: BTreeMap<String, Candidate>,
    /// Creations that are not complete.
    failures: Failures,
    /// Called for each container that starts without its variables.
    missed: Box<dyn Fn(Missed) + Send>,
}

impl std::fmt::Debug for Injector {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rules, containers, .. } = self;
        out.debug_struct("Injector").field("rules", rules).field("containers", containers).finish()
    }
}

impl Injector {
    /// An injector that asks `listed` for a container by the UID of its pod and its name, and calls
    /// `missed` for each one that starts without its variables.
    pub(super) fn new(
        rules: InjectionRules,
        online_cpus: Option<u64>,
        listed: impl Fn(&str, &str) -> Option<Listed> + Send + 'static,
        missed: impl Fn(Missed) + Send + 'static,
    ) -> Self {
        let (containers, unlisted) = (InjectedContainers::new(), BTreeMap::new());
        let changes = Arc::new(Notify::new());
        Self {
            rules,
            online_cpus,
            listed: Box::new(listed),
            containers,
            changes,
            unlisted,
            failures: Failures::default(),
            missed: Box::new(missed),
        }
    }

    /// Notified after each change of the containers.
    pub(super) fn changes(&self) -> Arc<Notify> {
        Arc::clone(&self.changes)
    }

    /// The containers with variables.
    pub(super) fn containers(&self) -> InjectedContainers {
        self.containers.clone()
    }

    /// Applies the limits of the listed pods, and determines the variables of the running
    /// containers whose pods are now listed: those that they would get at their next start.
    pub(super) fn pods_listed(&mut self) {
        let mut has_changed = false;
        for entry in self.containers.values_mut() {
            let Some(listed) = (self.listed)(&entry.pod_uid, &entry.container) else { continue };
            if entry.now.pod != listed.pod_limit {
                Arc::make_mut(entry).resize(|now| now.pod = listed.pod_limit);
                has_changed = true;
            }
        }
        for (id, candidate) in mem::take(&mut self.unlisted) {
            if let Some(entry) = self.resolved(&id, candidate) {
                self.containers.insert(id, Arc::new(entry));
                has_changed = true;
            }
        }
        if has_changed {
            self.changed();
        }
    }

    /// Whether the container gets variables only if its pod is listed, which it is not yet.
    pub(crate) fn awaits_list(&self, pod: &PodSandbox, container: &Container) -> bool {
        let is_unlisted = || (self.listed)(&pod.uid, &container.name).is_none();
        !self.rules.observes
            && self.candidate(pod, container).is_some_and(|one| one.request.containers.is_none())
            && is_unlisted()
    }

    /// The container, if it can get variables.
    fn candidate(&self, pod: &PodSandbox, container: &Container) -> Option<Candidate> {
        let mut request = self.request(pod)?;
        request.variables.retain(|variable| !has(container, variable.name()));
        let entry = self.entry_of(pod, container, Record::default());
        (!request.variables.is_empty()).then_some(Candidate { request, entry })
    }

    /// The container with its variables; `None` if it gets none, or none until its pod is listed.
    fn resolved(&mut self, id: &str, candidate: Candidate) -> Option<InjectedContainer> {
        let listed = (self.listed)(&candidate.entry.pod_uid, &candidate.entry.container);
        if listed.is_none() && candidate.request.containers.is_none() {
            self.unlisted.insert(id.to_owned(), candidate);
            return None;
        }
        candidate.resolve(listed)
    }

    /// The container, without the limits of its pod.
    fn entry_of(
        &self,
        pod: &PodSandbox,
        container: &Container,
        record: Record,
    ) -> InjectedContainer {
        let own = container.linux.as_ref().and_then(|linux| linux.resources.as_ref());
        let usable_cpus = usable_cpus(own, self.online_cpus);
        InjectedContainer {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            container: container.name.clone(),
            pod_uid: pod.uid.clone(),
            sandbox: pod.id.clone(),
            record,
            is_injected: false,
            known: Known::default(),
            now: Resources {
                own: Limit::of(own),
                usable_cpus,
                request_factor: self.rules.request_factor,
                ..Resources::default()
            },
            memory_share: self.rules.memory_share,
        }
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

    /// Begins the creation of a container with variables, unless earlier ones failed.
    fn may_have_variables(&mut self, entry: &InjectedContainer) -> bool {
        let InjectedContainer { namespace, pod, container, pod_uid, .. } = entry;
        let may = self.failures.begin(pod_uid, container, Instant::now());
        if !may {
            (self.missed)(Missed::CreationsFailed);
            tracing::warn!(
                namespace,
                pod,
                container,
                "no variables for half an hour: creations with them failed; another NRI plugin seems to set one of them"
            );
        }
        may
    }

    fn clear(&mut self) {
        self.failures.clear();
        self.containers.clear();
        self.unlisted.clear();
    }

    fn changed(&self) {
        self.changes.notify_one();
    }
}

impl Handler for Injector {
    fn events(&self) -> EventMask {
        EventMask::of(&[
            Event::CreateContainer,
            Event::PostCreateContainer,
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
        self.clear();
        let live = containers
            .into_iter()
            .filter(|container| container.state() != ContainerState::ContainerStopped);
        for container in live {
            let of = |pod: &&PodSandbox| pod.id == container.pod_sandbox_id;
            let Some(pod) = pods.iter().find(of) else { continue };
            let entry = match container.annotations.get(RECORD_ANNOTATION) {
                Some(text) => {
                    let record = Record::parse(text);
                    let mut entry = self.entry_of(pod, &container, record);
                    let listed = (self.listed)(&pod.uid, &container.name);
                    // Until the pod is listed, its limits count as unchanged.
                    let at_start = || Limit::of_pod_at_start(&entry.record.limits);
                    entry.now.pod = listed.map_or_else(at_start, |listed| listed.pod_limit);
                    Some(InjectedContainer { is_injected: true, ..entry })
                }
                None => self
                    .candidate(pod, &container)
                    .and_then(|candidate| self.resolved(&container.id, candidate)),
            };
            if let Some(entry) = entry {
                self.containers.insert(container.id, Arc::new(entry));
            }
        }
        self.changed();
        Vec::new()
    }

    fn create_container(&mut self, pod: PodSandbox, container: Container) -> Creation {
        let mut creation = Creation::default();
        let Some(candidate) = self.candidate(&pod, &container) else { return creation };
        let Some(mut entry) = self.resolved(&container.id, candidate) else {
            if !self.rules.observes && self.unlisted.contains_key(&container.id) {
                (self.missed)(Missed::NotListed);
                tracing::info!(
                    namespace = pod.namespace,
                    pod = pod.name,
                    container = container.name,
                    "no variables: the pod's spec is not known yet, and the container may be an init container; name \
                     it in the annotation {CONTAINERS_ANNOTATION}"
                );
            }
            return creation;
        };
        if !self.rules.observes && !self.may_have_variables(&entry) {
            return creation;
        }
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
        self.containers.insert(container.id, Arc::new(entry));
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
            Arc::make_mut(entry).resize(|now| now.own.update(&resources));
            self.changed();
        }
        if let Some(candidate) = self.unlisted.get_mut(&container.id) {
            candidate.entry.now.own.update(&resources);
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
            Arc::make_mut(entry).resize(|now| now.update_pod(&resources));
        }
        self.changed();
    }

    fn stop_container(&mut self, _pod: PodSandbox, container: Container) -> Vec<ContainerUpdate> {
        self.unlisted.remove(&container.id);
        if self.containers.remove(&container.id).is_some() {
            self.changed();
        }
        Vec::new()
    }

    fn notify(&mut self, event: Event, pod: PodSandbox, container: Option<Container>) {
        let before = self.containers.len();
        match (event, container) {
            (Event::PostCreateContainer, Some(container)) => {
                self.failures.end(&pod.uid, &container.name);
            }
            (Event::RemoveContainer, Some(container)) => {
                self.containers.remove(&container.id);
                self.unlisted.remove(&container.id);
            }
            (Event::RemovePodSandbox, _) => {
                self.failures.remove_pod(&pod.uid);
                self.unlisted.retain(|_, candidate| candidate.entry.sandbox != pod.id);
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
        self.clear();
        self.changed();
    }
}

/// Whether a container has a variable, from its image or its spec.
fn has(container: &Container, name: &str) -> bool {
    container.env.iter().any(|pair| pair.split('=').next() == Some(name))
}

#[cfg(test)]
mod tests;
