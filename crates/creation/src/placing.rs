//! CPUs of new containers: the answers of the admission as adjustments, unless another program
//! places the container.

use std::collections::BTreeSet;

use kubelet::Pods;
use nri::Creation;
use nri::api::{
    Container, ContainerUpdate, LinuxContainerUpdate, LinuxCpu, LinuxResources, PodSandbox,
};
use pinning::{Admission, claim};

/// Annotation of a placed container at the runtime, with the CPUs of its start.
const RECORD_ANNOTATION: &str = "cpuwarden.io/started-in-cpus";
/// Begin of the annotations with which a pod keeps NRI resource policies off its cpusets.
const PRESERVE_ANNOTATION: &str = "cpu.preserve";
/// Begin of the variable by which the DRA driver for CPUs marks the containers that it places.
const DRA_VARIABLE: &str = "DRA_CPUSET_";

/// Gives each new container the CPUs of its pod.
#[derive(Debug)]
pub struct Placing {
    pods: Pods,
    admission: Admission,
}

impl Placing {
    /// `pods` has what is known of the pods, at least the runtime's report.
    #[must_use]
    pub fn new(pods: Pods, admission: Admission) -> Self {
        Self { pods, admission }
    }

    pub(crate) fn synchronized(&self, containers: &[Container]) {
        let is_placed = |one: &&Container| one.annotations.contains_key(RECORD_ANNOTATION);
        let placed = containers.iter().filter(is_placed).map(|one| one.id.clone());
        self.admission.synchronized(placed.collect::<BTreeSet<_>>());
    }

    /// Sets the CPUs of a new container.
    pub(crate) fn place(&self, pod: &PodSandbox, container: &Container, creation: &mut Creation) {
        if is_placed_by_others(pod, container) {
            return;
        }
        let Some(placed) = self.admission.start(&self.claim(pod), &container.id) else { return };
        let cpus = placed.cpus.to_string();
        let (namespace, name) = (&pod.namespace, &pod.name);
        tracing::debug!(namespace, pod = name, container = container.name, cpus, "placed");
        creation.set_cpus(&cpus);
        creation.add_annotation(RECORD_ANNOTATION, &cpus);
    }

    /// An update that keeps a placed container in its CPUs, if the runtime is about to write others:
    /// it writes those of the container's start again, or those of the request.
    pub(crate) fn keep(
        &self,
        pod: &PodSandbox,
        container: &Container,
        resources: &LinuxResources,
    ) -> Option<ContainerUpdate> {
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

    pub(crate) fn container_removed(&self, id: &str) {
        self.admission.container_removed(id);
    }

    pub(crate) fn pod_removed(&self, uid: &str) {
        self.admission.pod_removed(uid);
    }

    /// The planner's view of the pod. Of a pod that claims the name of another one nothing is known.
    fn claim(&self, pod: &PodSandbox) -> placement::Pod {
        let (index, uid) = (self.pods.index(), pod.uid.as_str().into());
        match index.pod(&pod.uid) {
            Some(known) => claim(uid, known, u64::MAX),
            None => placement::Pod { uid, ..placement::Pod::default() },
        }
    }
}

/// Whether the kubelet or another plugin has set the container's CPUs, or the pod asks to leave them
/// alone.
fn is_placed_by_others(pod: &PodSandbox, container: &Container) -> bool {
    let annotations = pod.annotations.keys().chain(container.annotations.keys());
    cpus_of(own(container)).is_some()
        || annotations.into_iter().any(|key| key.starts_with(PRESERVE_ANNOTATION))
        || container.env.iter().any(|pair| pair.starts_with(DRA_VARIABLE))
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
        assert!(!is_placed_by_others(&pod, &container));
        let key = "cpu.preserve.resource-policy.nri.io/container.app".to_owned();
        let annotations: std::collections::BTreeMap<_, _> = [(key, "true".to_owned())].into();
        let preserved = PodSandbox { annotations: annotations.clone(), ..PodSandbox::default() };
        assert!(is_placed_by_others(&preserved, &container));
        let preserved = Container { annotations, ..Container::default() };
        assert!(is_placed_by_others(&pod, &preserved));
        let env = vec!["PATH=/bin".to_owned(), "DRA_CPUSET_4f2a=0-1".to_owned()];
        assert!(is_placed_by_others(&pod, &Container { env, ..Container::default() }));
        let cpu = Some(LinuxCpu { cpus: "2".into(), ..LinuxCpu::default() });
        let resources = Some(LinuxResources { cpu, ..LinuxResources::default() });
        let linux = Some(LinuxContainer { resources, ..LinuxContainer::default() });
        assert!(is_placed_by_others(&pod, &Container { linux, ..Container::default() }));
    }
}
