//! CPUs of new containers: the answers of the admission as adjustments, unless another program
//! places the container.

use std::collections::BTreeMap;
use std::sync::Arc;

use nri::Creation;
use nri::api::{
    Container, ContainerUpdate, LinuxContainerUpdate, LinuxCpu, LinuxResources, PodSandbox,
};
use pinning::{Admission, ForeignContainer, claim, with_container, with_pod_level};
use pod_sources::Pods;

use crate::report::{self, DRA_VARIABLE};

/// Annotation of a placed container at the runtime, with the CPUs of its start.
const RECORD_ANNOTATION: &str = "cpuwarden.io/started-in-cpus";
/// Prefix of the annotations with which a pod keeps NRI resource policies off its cpusets; the rest
/// selects the pod or one of its containers.
const PRESERVE_ANNOTATION: &str = "cpu.preserve.resource-policy.nri.io";

/// Gives each new container the CPUs of its pod.
#[derive(Debug)]
pub struct Placing {
    pods: Pods,
    admission: Admission,
}

impl Placing {
    /// `pods` has all known facts about the pods, at least the runtime's report.
    #[must_use]
    pub fn new(pods: Pods, admission: Admission) -> Self {
        Self { pods, admission }
    }

    /// Records all running containers.
    pub(crate) fn synchronized<'a>(
        &self,
        pods: &[PodSandbox],
        running: impl Iterator<Item = (&'a PodSandbox, &'a Container)> + Clone,
    ) {
        let placed = running.clone().filter(|(_, container)| is_placed_here(container));
        let foreign = running
            .filter_map(|(pod, container)| Some((container.id.clone(), foreign(pod, container)?)));
        let placed = placed.map(|(_, container)| container.id.clone()).collect();
        let sandboxes = pods.iter().map(|pod| pod.id.clone()).collect();
        self.admission.synchronized(sandboxes, placed, foreign.collect::<BTreeMap<_, _>>());
    }

    pub(crate) fn pod_started(&self, sandbox: &str) {
        self.admission.sandbox_started(sandbox);
    }

    /// The CPUs of a new container.
    pub(crate) fn start(&self, pod: &PodSandbox, container: &Container) -> Creation {
        let mut creation = Creation::default();
        if let Some(foreign) = foreign(pod, container) {
            let has_cpus = foreign.has_cpus;
            self.admission.start_foreign(&container.id, foreign);
            if has_cpus {
                return creation;
            }
        }
        if let Some(placed) = self.admission.start(&self.claim(pod), &container.id) {
            let cpus = placed.cpus.to_string();
            creation.set_cpus(&cpus);
            creation.add_annotation(RECORD_ANNOTATION, &cpus);
        }
        creation
    }

    /// The creation with these CPUs begins. Returns it without them if earlier ones failed. While a
    /// creation has variables too, they are the first suspects: its failure does not count here.
    pub(crate) fn begin(
        &self,
        pod: &PodSandbox,
        container: &Container,
        placed: Creation,
        has_variables: bool,
    ) -> Creation {
        let has_cpus = placed.adjustment.is_some();
        let (id, full_name) = (&container.id, name(pod, container));
        let counts = has_cpus && !has_variables;
        if !self.admission.creation_began(&pod.uid, &full_name, id, counts) {
            tracing::warn!(container = full_name, "not placed: its creations with CPUs failed");
            return Creation::default();
        }
        if has_cpus {
            let (namespace, name) = (&pod.namespace, &pod.name);
            tracing::debug!(namespace, pod = name, container = container.name, "placed");
        }
        placed
    }

    /// Handles a resize of the whole pod before the runtime writes it.
    pub(crate) fn resize_pod(&self, pod: &PodSandbox, resources: &LinuxResources) {
        let new = report::resources(Some(resources));
        self.resize(self.known(pod).and_then(|known| with_pod_level(uid(pod), &known, &new)));
    }

    fn resize(&self, resized: Option<placement::Pod>) {
        if let Some(resized) = resized {
            self.admission.resize(&resized);
        }
    }

    /// Handles a resize. Returns an update that keeps a placed container in its CPUs if the runtime
    /// is about to write others: it writes those of the container's start again, or those of the
    /// request.
    pub(crate) fn keep(
        &self,
        pod: &PodSandbox,
        container: &Container,
        resources: &LinuxResources,
    ) -> Option<ContainerUpdate> {
        let new = report::resources(Some(resources));
        let known = self.known(pod);
        self.resize(
            known.and_then(|known| with_container(uid(pod), &known, &container.name, &new)),
        );
        let requested = cpus_of(Some(resources));
        let written = requested.or_else(|| cpus_of(own(container)))?;
        let cpus = self.admission.keep(&self.claim(pod), &container.id)?.cpus.to_string();
        if cpus == written {
            return None;
        }
        let cpu = LinuxCpu { cpus, ..LinuxCpu::default() };
        let resources = LinuxResources { cpu: Some(cpu), ..LinuxResources::default() };
        Some(ContainerUpdate {
            container_id: container.id.clone(),
            linux: Some(LinuxContainerUpdate { resources: Some(resources) }),
            ..ContainerUpdate::default()
        })
    }

    /// The runtime has created a container.
    pub(crate) fn created(&self, pod: &PodSandbox, container: &Container) {
        self.admission.creation_ended(&pod.uid, &name(pod, container));
    }

    pub(crate) fn container_stopped(&self, id: &str) {
        self.admission.container_stopped(id);
    }

    pub(crate) fn container_removed(&self, id: &str) {
        self.admission.container_removed(id);
    }

    pub(crate) fn pod_removed(&self, uid: &str, sandbox: &str) {
        self.admission.pod_removed(uid, sandbox);
    }

    /// The planner's view of the pod. For a pod that claims the name of another one, nothing is
    /// known.
    fn claim(&self, pod: &PodSandbox) -> placement::Pod {
        let uid = uid(pod);
        match self.known(pod) {
            Some(known) => claim(uid, &known, u64::MAX),
            None => placement::Pod { uid, ..placement::Pod::default() },
        }
    }

    fn known(&self, pod: &PodSandbox) -> Option<Arc<kubepods::model::Pod>> {
        self.pods.index().pod(&pod.uid).cloned()
    }
}

fn uid(pod: &PodSandbox) -> placement::Uid {
    pod.uid.as_str().into()
}

/// The container, if the kubelet or another plugin has set its CPUs, a variable claims CPUs, or its
/// pod asks to leave them alone.
fn foreign(pod: &PodSandbox, container: &Container) -> Option<ForeignContainer> {
    let has_cpus = cpus_of(own(container)).is_some() && !is_placed_here(container);
    let annotations = pod.annotations.iter().chain(&container.annotations);
    let is_preserved = annotations
        .into_iter()
        .any(|(key, value)| key.starts_with(PRESERVE_ANNOTATION) && value != "false");
    let is_claimed = container.env.iter().any(|pair| pair.starts_with(DRA_VARIABLE));
    (has_cpus || is_preserved || is_claimed).then(|| ForeignContainer {
        pod: uid(pod),
        name: name(pod, container),
        has_cpus,
        preserved: is_preserved.then(|| placement::Pod {
            uid: uid(pod),
            namespace: pod.namespace.clone(),
            labels: pod.labels.clone(),
            ..placement::Pod::default()
        }),
        is_claimed,
    })
}

fn name(pod: &PodSandbox, container: &Container) -> String {
    format!("{}/{}/{}", pod.namespace, pod.name, container.name)
}

fn is_placed_here(container: &Container) -> bool {
    container.annotations.contains_key(RECORD_ANNOTATION)
}

fn own(container: &Container) -> Option<&LinuxResources> {
    container.linux.as_ref()?.resources.as_ref()
}

fn cpus_of(resources: Option<&LinuxResources>) -> Option<&str> {
    let cpus = &*resources?.cpu.as_ref()?.cpus;
    (!cpus.is_empty()).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use nri::api::LinuxContainer;

    use super::*;

    #[test]
    fn containers_that_others_place_are_left_alone() {
        let (pod, container) = (PodSandbox::default(), Container::default());
        let has_cpus = |pod: &PodSandbox, container: &Container| {
            foreign(pod, container).map(|foreign| foreign.has_cpus)
        };
        assert_eq!(has_cpus(&pod, &container), None);
        let key = "cpu.preserve.resource-policy.nri.io/container.app";
        let annotations = |value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let annotated =
            |value| PodSandbox { annotations: annotations(value), ..PodSandbox::default() };
        assert_eq!(has_cpus(&annotated("true"), &container), Some(false));
        assert_eq!(has_cpus(&annotated("false"), &container), None);
        let preserved = Container { annotations: annotations("true"), ..Container::default() };
        assert_eq!(has_cpus(&pod, &preserved), Some(false));
        let env = vec!["PATH=/bin".to_owned(), "DRA_CPUSET_4f2a=0-1".to_owned()];
        assert_eq!(has_cpus(&pod, &Container { env, ..Container::default() }), Some(false));
        let cpu = Some(LinuxCpu { cpus: "2".into(), ..LinuxCpu::default() });
        let resources = Some(LinuxResources { cpu, ..LinuxResources::default() });
        let linux = Some(LinuxContainer { resources, ..LinuxContainer::default() });
        let with_cpus = Container { linux, ..Container::default() };
        assert_eq!(has_cpus(&pod, &with_cpus), Some(true));
        let annotations = [(RECORD_ANNOTATION.to_owned(), "2".to_owned())].into();
        assert_eq!(has_cpus(&pod, &Container { annotations, ..with_cpus }), None, "placed here");
    }
}
