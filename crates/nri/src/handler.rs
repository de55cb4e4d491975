//! The calls that a plugin answers.

use crate::api::{
    Container, ContainerAdjustment, ContainerUpdate, Event, KeyValue, LinuxContainerAdjustment,
    LinuxCpu, LinuxResources, PodSandbox, ValidateContainerAdjustmentRequest,
};
use crate::events::{EventMask, Runtime};

/// A plugin's decisions. Calls come one at a time, on a thread of their own.
///
/// Every container of the node waits for these calls: answer from memory, do the work elsewhere.
/// The runtime creates a container without its adjustment when a call panics or takes longer than
/// [`Plugin::answer_within`](crate::Plugin::answer_within). After a late answer to the creation or
/// an update of a container, the plugin reconnects as soon as the call returns, and
/// [`Handler::synchronize`] gets what really runs. Other late answers have no consequence.
///
/// No call can return an error, because an error would fail the container.
pub trait Handler: Send + 'static {
    /// Events to subscribe to; asked once. Events that the runtime does not know are left out.
    fn events(&self) -> EventMask;

    /// Called on every connection before [`Handler::synchronize`].
    fn configured(&mut self, _runtime: &Runtime) {}

    /// All pods and containers of the runtime, once per connection, before any event. Returns
    /// updates of running containers.
    ///
    /// Replaces what the handler knew: containers may have come and gone while the plugin was
    /// disconnected.
    fn synchronize(
        &mut self,
        _pods: Vec<PodSandbox>,
        _containers: Vec<Container>,
    ) -> Vec<ContainerUpdate> {
        Vec::new()
    }

    /// A container before its creation. Returns its adjustment.
    ///
    /// Two plugins must not set the same value of one container: the runtime then fails the
    /// container.
    fn create_container(&mut self, _pod: PodSandbox, _container: Container) -> Creation {
        Creation::default()
    }

    /// A container before an update of its resources, such as an in-place resize. Returns updates
    /// that replace or extend it.
    fn update_container(
        &mut self,
        _pod: PodSandbox,
        _container: Container,
        _resources: LinuxResources,
    ) -> Vec<ContainerUpdate> {
        Vec::new()
    }

    /// A container before it is stopped. Returns updates of other containers, which are lost if the
    /// answer is late.
    fn stop_container(&mut self, _pod: PodSandbox, _container: Container) -> Vec<ContainerUpdate> {
        Vec::new()
    }

    /// A pod before an update of its overhead and of the sum of its containers' resources.
    fn update_pod(
        &mut self,
        _pod: PodSandbox,
        _overhead: LinuxResources,
        _resources: LinuxResources,
    ) {
    }

    /// The adjustment of a container by all plugins, with the plugin that owns each value. It is
    /// always accepted. The runtime fails the container when the plugin is lost during this call,
    /// so [`EventMask::LIFECYCLE`] does not have it.
    fn validate(&mut self, _request: ValidateContainerAdjustmentRequest) {}

    /// Any other event. `container` is absent for events of pods.
    fn notify(&mut self, _event: Event, _pod: PodSandbox, _container: Option<Container>) {}

    /// Called at the end of a connection, if the handler was called on it.
    fn disconnected(&mut self) {}
}

/// Answer to the creation of a container.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Creation {
    /// Adjustment of the new container.
    pub adjustment: Option<ContainerAdjustment>,
    /// Updates of other containers. An update of the new container fails it.
    pub updates: Vec<ContainerUpdate>,
}

impl Creation {
    /// Adds an environment variable, or replaces its value: runtimes fail a container that gets a
    /// key twice. Only keys that the container does not have: runtimes ignore others silently.
    pub fn add_env(&mut self, key: &str, value: &str) {
        let env = &mut self.adjustment.get_or_insert_default().env;
        match env.iter_mut().find(|variable| variable.key == key) {
            Some(variable) => value.clone_into(&mut variable.value),
            None => env.push(KeyValue { key: key.to_owned(), value: value.to_owned() }),
        }
    }

    /// Adds an annotation.
    pub fn add_annotation(&mut self, key: &str, value: &str) {
        let annotations = &mut self.adjustment.get_or_insert_default().annotations;
        annotations.insert(key.to_owned(), value.to_owned());
    }

    /// Sets the CPUs of the container, as in `cpuset.cpus`. An empty list means unset.
    pub fn set_cpus(&mut self, cpus: &str) {
        cpus.clone_into(&mut self.cpu().cpus);
    }

    /// CPU resources of the new container.
    pub fn cpu(&mut self) -> &mut LinuxCpu {
        let adjustment = self.adjustment.get_or_insert_default();
        let linux: &mut LinuxContainerAdjustment = adjustment.linux.get_or_insert_default();
        linux.resources.get_or_insert_default().cpu.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_added_twice_has_the_last_value() {
        let mut creation = Creation::default();
        for (key, value) in [("GOMAXPROCS", "1"), ("PATH", "/bin"), ("GOMAXPROCS", "2")] {
            creation.add_env(key, value);
        }
        let env = creation.adjustment.unwrap().env;
        let pairs: Vec<_> = env.iter().map(|one| (one.key.as_str(), one.value.as_str())).collect();
        assert_eq!(pairs, [("GOMAXPROCS", "2"), ("PATH", "/bin")]);
    }
}
