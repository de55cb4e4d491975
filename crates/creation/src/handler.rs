//! The handler of the runtime's calls, which passes them to their users.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use nri::api::{Container, ContainerState, ContainerUpdate, Event, LinuxResources, PodSandbox};
use nri::{Creation, EventMask, Handler};
use pod_sources::RuntimeSource;
use yielding::Resizes;

use crate::Users;
use crate::placing::Placing;
use crate::report::{container_of, sandbox_of};
use crate::variables::{Injector, ListWaits};

/// Passes calls to their users. The report to the pod sources comes first, so that others find the
/// pod.
pub(crate) struct Creations {
    source: RuntimeSource,
    injector: Option<Arc<Mutex<Injector>>>,
    resizes: Option<Resizes>,
    placing: Option<Placing>,
    waits: ListWaits,
}

impl Creations {
    pub(crate) fn new(users: Users) -> Self {
        let Users { source, injector, resizes, placing } = users;
        Self { source, injector, resizes, placing, waits: ListWaits::default() }
    }

    fn injector(&self) -> Option<MutexGuard<'_, Injector>> {
        // A call that panicked was answered empty; the state is valid between any two calls.
        let injector = self.injector.as_ref();
        injector.map(|one| one.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the list that has the pod, if the container gets variables only then. Meanwhile the
    /// injector is not locked.
    fn await_list(&mut self, pod: &PodSandbox, container: &Container) {
        let mut waits = mem::take(&mut self.waits);
        let is_unlisted = || self.injector().is_some_and(|one| one.awaits_list(pod, container));
        waits.wait(&pod.uid, is_unlisted, Instant::now, thread::sleep);
        self.waits = waits;
    }

    /// The kubelet's list has the new resources before the runtime gets them.
    fn report_resize(&self, pod: &PodSandbox, resources: &LinuxResources) {
        let cpu = resources.cpu.as_ref();
        if cpu.is_some_and(|cpu| cpu.shares.is_some() || cpu.quota.is_some()) {
            self.source.resized(&pod.uid);
        }
    }
}

impl Handler for Creations {
    fn events(&self) -> EventMask {
        EventMask::of(&[
            Event::RunPodSandbox,
            Event::RemovePodSandbox,
            Event::CreateContainer,
            Event::PostCreateContainer,
            Event::UpdateContainer,
            Event::UpdatePodSandbox,
            Event::StopContainer,
            Event::RemoveContainer,
        ])
    }

    fn synchronize(
        &mut self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Vec<ContainerUpdate> {
        self.waits.clear();
        let live = |container: &&Container| container.state() != ContainerState::ContainerStopped;
        let of = |container: &Container| pods.iter().find(|pod| pod.id == container.pod_sandbox_id);
        let running = containers.iter().filter(live);
        let running = running.filter_map(|container| Some((of(container)?, container)));
        let reported: Vec<_> =
            running.clone().map(|(pod, container)| container_of(pod, container)).collect();
        self.source.synchronized(pods.iter().map(sandbox_of).collect(), &reported);
        if let Some(placing) = &self.placing {
            placing.synchronized(&pods, running);
        }
        // Running containers are not updated through the runtime.
        self.injector().map(|mut one| one.synchronize(pods, containers)).unwrap_or_default()
    }

    fn create_container(&mut self, pod: PodSandbox, container: Container) -> Creation {
        self.source.container_created(sandbox_of(&pod), &container_of(&pod, &container));
        self.await_list(&pod, &container);
        let placing = self.placing.as_ref();
        let placed = placing.map(|placing| placing.start(&pod, &container)).unwrap_or_default();
        let injected = self
            .injector()
            .map(|mut one| one.create_container(pod.clone(), in_cpus(container.clone(), &placed)));
        let injected = injected.unwrap_or_default();
        let has_variables = injected.adjustment.is_some();
        let placed = placing.map(|one| one.begin(&pod, &container, placed, has_variables));
        merged(placed.unwrap_or_default(), injected)
    }

    fn update_container(
        &mut self,
        pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    ) -> Vec<ContainerUpdate> {
        if let (Some(resizes), Some(quota)) = (&self.resizes, quota_usec(&resources)) {
            resizes.container(&pod.uid, &container.id, quota);
        }
        self.report_resize(&pod, &resources);
        let placing = self.placing.as_ref();
        let kept = placing.and_then(|placing| placing.keep(&pod, &container, &resources));
        let updates =
            self.injector().map(|mut one| one.update_container(pod, container, resources));
        updates.unwrap_or_default().into_iter().chain(kept).collect()
    }

    fn update_pod(&mut self, pod: PodSandbox, overhead: LinuxResources, resources: LinuxResources) {
        if let (Some(resizes), Some(quota)) = (&self.resizes, quota_usec(&resources)) {
            resizes.pod(&pod.uid, quota);
        }
        self.report_resize(&pod, &resources);
        if let Some(placing) = &self.placing {
            placing.resize_pod(&pod, &resources);
        }
        if let Some(mut injector) = self.injector() {
            injector.update_pod(pod, overhead, resources);
        }
    }

    fn stop_container(&mut self, pod: PodSandbox, container: Container) -> Vec<ContainerUpdate> {
        // Its cgroup still exists: it keeps its name until its removal.
        if let Some(placing) = &self.placing {
            placing.container_stopped(&container.id);
        }
        self.injector().map(|mut one| one.stop_container(pod, container)).unwrap_or_default()
    }

    fn notify(&mut self, event: Event, pod: PodSandbox, container: Option<Container>) {
        match (event, &container) {
            (Event::RunPodSandbox, _) => self.source.pod_created(sandbox_of(&pod)),
            (Event::RemovePodSandbox, _) => {
                self.waits.remove_pod(&pod.uid);
                self.source.pod_removed(&pod.uid, &pod.id);
            }
            (Event::RemoveContainer, Some(container)) => {
                self.source.container_removed(&pod.uid, &container.id);
            }
            _ => {}
        }
        match (event, &container, &self.placing) {
            (Event::RunPodSandbox, _, Some(placing)) => placing.pod_started(&pod.id),
            (Event::RemovePodSandbox, _, Some(placing)) => placing.pod_removed(&pod.uid, &pod.id),
            (Event::PostCreateContainer, Some(container), Some(placing)) => {
                placing.created(&pod, container);
            }
            (Event::RemoveContainer, Some(container), Some(placing)) => {
                placing.container_removed(&container.id);
            }
            _ => {}
        }
        if let Some(mut injector) = self.injector() {
            injector.notify(event, pod, container);
        }
    }

    fn disconnected(&mut self) {
        if let Some(mut injector) = self.injector() {
            injector.disconnected();
        }
    }
}

fn quota_usec(resources: &LinuxResources) -> Option<i64> {
    Some(resources.cpu.as_ref()?.quota.as_ref()?.value)
}

/// The container with the CPUs of its start, by which the number of its threads is chosen.
fn in_cpus(mut container: Container, placed: &Creation) -> Container {
    let linux = placed.adjustment.as_ref().and_then(|adjustment| adjustment.linux.as_ref());
    if let Some(cpu) = linux.and_then(|linux| linux.resources.as_ref()?.cpu.as_ref()) {
        let resources = container.linux.get_or_insert_default().resources.get_or_insert_default();
        resources.cpu.get_or_insert_default().cpus.clone_from(&cpu.cpus);
    }
    container
}

/// CPUs and environment in one answer.
fn merged(placed: Creation, injected: Creation) -> Creation {
    let (Some(cpus), Some(variables)) = (&placed.adjustment, &injected.adjustment) else {
        return if placed.adjustment.is_some() { placed } else { injected };
    };
    let mut both = variables.clone();
    both.linux.clone_from(&cpus.linux);
    both.annotations.extend(cpus.annotations.clone());
    Creation { adjustment: Some(both), updates: injected.updates }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_injector_sees_the_cpus_of_the_start() {
        let mut placed = Creation::default();
        let cpus = |placed: &Creation| {
            let container = in_cpus(Container::default(), placed);
            Some(container.linux?.resources?.cpu?.cpus)
        };
        assert_eq!(cpus(&placed), None);
        placed.set_cpus("2-3");
        assert_eq!(cpus(&placed).as_deref(), Some("2-3"));
    }

    #[test]
    fn an_answer_has_the_cpus_and_the_variables() {
        let (mut placed, mut injected) = (Creation::default(), Creation::default());
        placed.set_cpus("2-3");
        placed.add_annotation("placed", "2-3");
        injected.add_env("GOMAXPROCS", "2");
        injected.add_annotation("injected", "GOMAXPROCS=2");
        let both = merged(placed.clone(), injected.clone()).adjustment.unwrap();
        assert_eq!(both.linux, placed.adjustment.as_ref().unwrap().linux);
        assert_eq!(both.env, injected.adjustment.as_ref().unwrap().env);
        assert_eq!(both.annotations.keys().collect::<Vec<_>>(), ["injected", "placed"]);
        assert_eq!(merged(placed.clone(), Creation::default()), placed);
        assert_eq!(merged(Creation::default(), injected.clone()), injected);
    }
}
