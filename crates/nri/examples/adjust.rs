//! A plugin for tests with the Go library (`tests/go`). Adjusts every new container: the variable
//! `CONTAINERS` has the number of containers that it knows, and `COPY` the container's annotation
//! `copy`. The annotation `hang` makes it too slow, in milliseconds. Arguments: the socket, and
//! `keep` to stay connected after a timeout.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nri::api::{Container, ContainerUpdate, Event, LinuxResources, PodSandbox};
use nri::{Creation, Error, Events, Handler, Plugin, Stop};

/// The known containers.
struct Adjust {
    containers: BTreeSet<String>,
}

impl Handler for Adjust {
    fn events(&self) -> Events {
        Events::LIFECYCLE
    }

    fn synchronize(
        &mut self,
        _pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Vec<ContainerUpdate> {
        self.containers = containers.into_iter().map(|container| container.id).collect();
        Vec::new()
    }

    fn create_container(&mut self, _pod: PodSandbox, container: Container) -> Creation {
        if let Some(millis) = container.annotations.get("hang").and_then(|text| text.parse().ok()) {
            thread::sleep(Duration::from_millis(millis));
        }
        let mut creation = Creation::default();
        creation.add_env("CONTAINERS", &self.containers.len().to_string());
        if let Some(copy) = container.annotations.get("copy") {
            creation.add_env("COPY", copy);
        }
        creation.set_cpus("0-1");
        self.containers.insert(container.id);
        creation
    }

    fn update_container(
        &mut self,
        _pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    ) -> Vec<ContainerUpdate> {
        let linux = nri::api::LinuxContainerUpdate { resources: Some(resources) };
        let container_id = container.id;
        vec![ContainerUpdate { container_id, linux: Some(linux), ignore_failure: false }]
    }

    fn notify(&mut self, event: Event, pod: PodSandbox, container: Option<Container>) {
        let container = container.unwrap_or_default();
        println!("{event:?} {}/{}", pod.name, container.name);
        if event == Event::RemoveContainer {
            self.containers.remove(&container.id);
        }
    }
}

fn main() -> Result<(), Error> {
    let socket = std::env::args().nth(1).unwrap_or_else(|| nri::DEFAULT_SOCKET.to_owned());
    let handler = Adjust { containers: BTreeSet::new() };
    let mut plugin = Plugin::new("adjust", 50, Path::new(&socket), handler)?;
    if std::env::args().any(|argument| argument == "keep") {
        plugin = plugin.keep_connected();
    }
    plugin.run(&Stop::new(), |report| println!("{report}"))
}
