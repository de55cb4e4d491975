//! A running plugin with a handler that records its calls.

use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use nri::api::{self, Container, ContainerUpdate, Event, LinuxResources, PodSandbox};
use nri::{Creation, EventMask, Handler, Plugin, Runtime, Stop};
use tempfile::TempDir;

use crate::runtime::CALL_TIMEOUT;

/// Records its calls. Some names of containers change how it behaves: `panics`, `hangs`, and
/// `env-N`, which adds a variable of N bytes. So does a runtime with the version `hangs`.
pub(crate) struct Recorder {
    events: EventMask,
    calls: Sender<String>,
    /// A hanging call returns after a message or at the end of the sender.
    release: Receiver<()>,
}

impl Recorder {
    fn record(&self, call: String) {
        // The test may have ended.
        let _ = self.calls.send(call);
    }
}

impl Handler for Recorder {
    fn events(&self) -> EventMask {
        self.events
    }

    fn configured(&mut self, runtime: &Runtime) {
        self.record(format!("configured {} {}", runtime.name, runtime.version));
        if runtime.version == "hangs" {
            // Also returns at the end of the sender.
            let _ = self.release.recv();
        }
    }

    fn synchronize(
        &mut self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Vec<ContainerUpdate> {
        let names: Vec<_> = containers.iter().map(|container| container.name.as_str()).collect();
        self.record(format!("synchronize {} {}", pods.len(), names.join(",")));
        Vec::new()
    }

    fn create_container(&mut self, pod: PodSandbox, container: Container) -> Creation {
        self.record(format!("create {}/{}", pod.name, container.name));
        let mut creation = Creation::default();
        match container.name.as_str() {
            "panics" => panic!("on purpose"),
            "hangs" => drop(self.release.recv()),
            name => {
                let length = name.strip_prefix("env-").map_or(1, |length| length.parse().unwrap());
                creation.add_env("KEY", &"x".repeat(length));
                creation.set_cpus("0-3");
            }
        }
        creation
    }

    fn update_container(
        &mut self,
        _pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    ) -> Vec<ContainerUpdate> {
        let quota = resources.cpu.and_then(|cpu| cpu.quota).map(|quota| quota.value);
        self.record(format!("update {} {quota:?}", container.name));
        let update = ContainerUpdate { container_id: container.id, ..ContainerUpdate::default() };
        vec![update]
    }

    fn stop_container(&mut self, _pod: PodSandbox, container: Container) -> Vec<ContainerUpdate> {
        self.record(format!("stop {}", container.name));
        if container.name == "hangs" {
            // Also returns at the end of the sender.
            let _ = self.release.recv();
        }
        Vec::new()
    }

    fn update_pod(&mut self, pod: PodSandbox, _: LinuxResources, resources: LinuxResources) {
        let shares = resources.cpu.and_then(|cpu| cpu.shares).map(|shares| shares.value);
        self.record(format!("update_pod {} {shares:?}", pod.name));
    }

    fn validate(&mut self, request: api::ValidateContainerAdjustmentRequest) {
        let plugins: Vec<_> = request.plugins.iter().map(|plugin| plugin.name.as_str()).collect();
        self.record(format!("validate {}", plugins.join(",")));
    }

    fn notify(&mut self, event: Event, pod: PodSandbox, container: Option<Container>) {
        let container = container.map_or_else(|| "-".to_owned(), |container| container.name);
        self.record(format!("{event:?} {}/{container}", pod.name));
        if container == "hangs" {
            // Also returns at the end of the sender.
            let _ = self.release.recv();
        }
    }

    fn disconnected(&mut self) {
        self.record("disconnected".to_owned());
    }
}

/// A plugin and the socket that it connects to.
pub(crate) struct Node {
    directory: TempDir,
    pub(crate) listener: UnixListener,
    pub(crate) stop: Stop,
    pub(crate) release: Sender<()>,
    calls: Receiver<String>,
    reports: Receiver<String>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    /// A plugin for all events.
    pub(crate) fn new() -> Self {
        let all = EventMask::LIFECYCLE.with(Event::ValidateContainerAdjustment);
        // A panic on a busy machine takes long to print.
        Self::with(all, |plugin| plugin.answer_within(CALL_TIMEOUT))
    }

    pub(crate) fn with(
        events: EventMask,
        set: impl FnOnce(Plugin<Recorder>) -> Plugin<Recorder>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nri.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (recorder, calls, release) = recorder(events);
        let plugin = set(Plugin::new("recorder", 90, &socket, recorder).unwrap());
        let (stop, (report, reports)) = (Stop::new(), channel());
        let stopped = stop.clone();
        let thread = Some(thread::spawn(move || {
            plugin.run(&stopped, |event| drop(report.send(event.to_string()))).unwrap();
        }));
        Self { directory, listener, stop, release, calls, reports, thread }
    }

    /// Replaces the socket, as a runtime does that starts again.
    pub(crate) fn listen_again(&mut self) {
        let socket = self.directory.path().join("nri.sock");
        std::fs::remove_file(&socket).unwrap();
        self.listener = UnixListener::bind(&socket).unwrap();
    }

    /// The handler's next call.
    pub(crate) fn call(&self) -> String {
        self.calls.recv_timeout(CALL_TIMEOUT).expect("the handler was not called")
    }

    pub(crate) fn calls<const N: usize>(&self) -> [String; N] {
        std::array::from_fn(|_| self.call())
    }

    /// Asserts that the handler was not called since.
    pub(crate) fn assert_no_call(&self) {
        assert_eq!(self.calls.try_recv().ok(), None);
    }

    /// The plugin's next report.
    pub(crate) fn report(&self) -> String {
        self.reports.recv_timeout(CALL_TIMEOUT).expect("the plugin reported nothing")
    }

    /// Waits until the plugin's thread has ended.
    pub(crate) fn join(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A failed test must not panic again.
            let _ = thread.join();
        }
    }
}

/// A recorder, its calls, and the sender that releases a hanging call.
pub(crate) fn recorder(events: EventMask) -> (Recorder, Receiver<String>, Sender<()>) {
    let ((calls, received), (release, released)) = (channel(), channel());
    (Recorder { events, calls, release: released }, received, release)
}
