//! A plugin for tests with the Go library (`tests/go`). Adjusts every new container, except for
//! what the container already has: the variable `CONTAINERS` has the number of containers that it
//! knows, and `COPY` the container's annotation `copy`, or `again`. The annotation `hang` makes it
//! too slow, in milliseconds. Arguments: the socket, `keep` to stay connected after a timeout, and
//! `slow` to hang while it is configured, so that the synchronization begins late.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nri::api::{Container, ContainerUpdate, Event, LinuxResources, PodSandbox};
use nri::{Creation, Error, EventMask, Handler, Plugin, Runtime, Stop};

/// The known containers.
struct Adjust {
    containers: BTreeSet<String>,
    is_slow: bool,
}

impl Handler for Adjust {
    fn events(&self) -> EventMask {
        EventMask::LIFECYCLE
    }

    fn configured(&mut self, _runtime: &Runtime) {
        if self.is_slow {
            // More than half of the time that the runtime waits, which is 8 s in that case.
            thread::sleep(Duration::from_secs(6));
        }
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
        let count = self.containers.len().to_string();
        let annotation = |key: &str| container.annotations.get(key);
        let variables = [
            ("CONTAINERS", Some(&count)),
            ("COPY", annotation("copy")),
            ("COPY", annotation("again")),
        ];
        for (key, value) in variables {
            if let Some(value) = value.filter(|_| !has_variable(&container, key)) {
                creation.add_env(key, value);
            }
        }
        if !has_cpus(&container) {
            creation.set_cpus("0-1");
        }
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

fn has_variable(container: &Container, key: &str) -> bool {
    container.env.iter().any(|pair| pair.split('=').next() == Some(key))
}

fn has_cpus(container: &Container) -> bool {
    let resources = container.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    resources.and_then(|all| all.cpu.as_ref()).is_some_and(|cpu| !cpu.cpus.is_empty())
}

fn main() -> Result<(), Error> {
    let socket = std::env::args().nth(1).unwrap_or_else(|| nri::DEFAULT_SOCKET.to_owned());
    let has = |word: &str| std::env::args().any(|argument| argument == word);
    let handler = Adjust { containers: BTreeSet::new(), is_slow: has("slow") };
    let mut plugin = Plugin::new("adjust", 50, Path::new(&socket), handler)?;
    if has("keep") {
        plugin = plugin.keep_connected();
    }
    plugin.run(&Stop::new(), |report| println!("{report}"))
}
