//! The agent as a plugin of a runtime that speaks the Node Resource Interface: variables of new
//! containers, on the metrics page and in the advice.

#[path = "../../crates/nri/tests/plugin/runtime.rs"]
#[expect(dead_code, reason = "shared with the tests of the plugin library")]
pub(crate) mod runtime;

use std::cell::RefCell;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;

use nri::api::{
    Container, CreateContainerRequest, CreateContainerResponse, Empty, LinuxContainer, LinuxCpu,
    LinuxMemory, LinuxResources, OptionalInt64, OptionalUInt64, PodSandbox, RunPodSandboxRequest,
    SynchronizeRequest, SynchronizeResponse, UpdateContainerRequest, UpdateContainerResponse,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Agent, Kubelet, binary, eventually, pod_list, running_pod};
use runtime::Runtime;

const UID: &str = "0d6f6d1c-1111-4222-8333-444455556666";

/// A node with a kubelet that lists one annotated pod, and the runtime's socket.
struct Node {
    kubelet: Kubelet,
    directory: TempDir,
    listener: UnixListener,
}

impl Node {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let listener = UnixListener::bind(directory.path().join("nri.sock")).unwrap();
        Self { kubelet: Kubelet::start(pod_list(&[listed_pod()])), directory, listener }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("nri.sock")
    }

    fn listen_again(&mut self) {
        std::fs::remove_file(self.socket()).unwrap();
        self.listener = UnixListener::bind(self.socket()).unwrap();
    }

    fn flags(&self, mode: &str) -> Vec<String> {
        let socket = format!("--nri-socket={}", self.socket().display());
        let mode = format!("--inject-env={mode}");
        [self.kubelet.flags(), vec!["--nri=on".to_owned(), socket, mode]].concat()
    }

    /// Starts the agent, waits until it knows the pod, and synchronizes with no container.
    fn start(&self, mode: &str) -> (Agent, Runtime) {
        self.start_with(&self.flags(mode))
    }

    fn start_with(&self, flags: &[String]) -> (Agent, Runtime) {
        let agent = Agent::start(flags);
        eventually("the kubelet's list", || {
            let page = agent.metrics();
            page.with_prefix("cpuwarden_pod_source_up").any(|sample| sample.value == 1.0)
        });
        let runtime = self.connect(&agent, vec![]);
        (agent, runtime)
    }

    /// Accepts the agent's connection and synchronizes with these containers.
    fn connect(&self, agent: &Agent, containers: Vec<Container>) -> Runtime {
        let mut runtime = Runtime::accept(&self.listener);
        runtime.register();
        runtime.configure("v2.4.3", "v0.12.5");
        synchronize(&mut runtime, containers);
        eventually("the connection", || connected(agent) == Some(1.0));
        runtime
    }
}

fn listed_pod() -> Value {
    let limits = json!({"limits": {"cpu": "1500m", "memory": "512Mi"}});
    let container = |name: &str| json!({"name": name, "image": "shop/cart:1", "resources": limits});
    json!({
        "metadata": {
            "namespace": "shop", "name": "cart", "uid": UID,
            "annotations": {"cpuwarden.io/inject-env": "true"},
        },
        "spec": {"initContainers": [container("setup")], "containers": [container("app")]},
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    })
}

fn pod() -> PodSandbox {
    PodSandbox {
        id: "sandbox".into(),
        uid: UID.into(),
        namespace: "shop".into(),
        name: "cart".into(),
        annotations: [("cpuwarden.io/inject-env".to_owned(), "true".to_owned())].into(),
        ..PodSandbox::default()
    }
}

fn resources(quota_us: i64) -> LinuxResources {
    LinuxResources {
        cpu: Some(LinuxCpu {
            quota: Some(OptionalInt64 { value: quota_us }),
            period: Some(OptionalUInt64 { value: 100_000 }),
            ..LinuxCpu::default()
        }),
        memory: Some(LinuxMemory {
            limit: Some(OptionalInt64 { value: 512 << 20 }),
            ..LinuxMemory::default()
        }),
        ..LinuxResources::default()
    }
}

fn container(name: &str) -> Container {
    let resources = Some(resources(150_000));
    Container {
        id: format!("{name:0<64}"),
        pod_sandbox_id: "sandbox".into(),
        name: name.into(),
        env: vec!["PATH=/bin".into()],
        linux: Some(LinuxContainer { resources, ..LinuxContainer::default() }),
        ..Container::default()
    }
}

/// The variables that a new container gets, and its annotations.
fn create(runtime: &mut Runtime, container: Container) -> (Vec<String>, Container) {
    let request = CreateContainerRequest { pod: Some(pod()), container: Some(container.clone()) };
    let answer: CreateContainerResponse = runtime.call("CreateContainer", &request);
    let adjust = answer.adjust.unwrap_or_default();
    let env: Vec<String> =
        adjust.env.iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect();
    let env_after = [container.env.clone(), env.clone()].concat();
    (env, Container { env: env_after, annotations: adjust.annotations, ..container })
}

fn synchronize(runtime: &mut Runtime, containers: Vec<Container>) {
    let request = SynchronizeRequest { pods: vec![pod()], containers, more: false };
    let answer: SynchronizeResponse = runtime.call("Synchronize", &request);
    assert!(answer.update.is_empty(), "running containers are never written through the runtime");
}

fn connected(agent: &Agent) -> Option<f64> {
    let page = agent.metrics();
    page.with_prefix("cpuwarden_nri_connected").next().map(|sample| sample.value)
}

/// Container, variable, value and status of all series.
fn variables(agent: &Agent) -> Vec<String> {
    let page = agent.metrics();
    let samples = page.with_prefix("cpuwarden_container_injected_env_info");
    let mut rows: Vec<_> = samples
        .map(|one| {
            ["container", "variable", "value", "status"].map(|name| one.label(name)).join(" ")
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn containers_of_an_annotated_pod_start_with_the_variables() {
    let mut node = Node::new();
    let (agent, mut runtime) = node.start("annotated");
    let (env, injected) = create(&mut runtime, container("app"));
    assert_eq!(env, ["GOMAXPROCS=1", "GOMEMLIMIT=358MiB"]);
    assert!(create(&mut runtime, container("setup")).0.is_empty(), "an init container");
    let rows = ["app GOMAXPROCS 1 injected", "app GOMEMLIMIT 358MiB injected"];
    eventually("the variables", || variables(&agent) == rows);

    let (pod, container) = (Some(pod()), Some(injected.clone()));
    let update =
        UpdateContainerRequest { pod, container, linux_resources: Some(resources(300_000)) };
    let answer: UpdateContainerResponse = runtime.call("UpdateContainer", &update);
    assert!(answer.update.is_empty());
    let stale = ["app GOMAXPROCS 1 stale", rows[1]];
    eventually("the stale value", || variables(&agent) == stale);

    drop(runtime);
    eventually("the loss of the connection", || connected(&agent) == Some(0.0));
    drop(agent);
    // Another agent has only what the runtime reports. The last attempts of the first one to
    // connect again are left behind with its socket.
    node.listen_again();
    let agent = Agent::start(&node.flags("annotated"));
    let _runtime = node.connect(&agent, vec![injected]);
    eventually("the variables of the container", || variables(&agent) == rows);
}

#[test]
fn reconnections_and_the_time_without_a_connection_are_counted() {
    let node = Node::new();
    let (agent, runtime) = node.start("annotated");
    let counters = || {
        let page = agent.metrics();
        ["reconnections", "disconnected_seconds"]
            .map(|name| page.value(&format!("cpuwarden_nri_{name}_total"), &[]).unwrap())
    };
    let [reconnections, seconds] = counters();
    assert_eq!(reconnections, 0.0);
    drop(runtime);
    let _runtime = node.connect(&agent, vec![]);
    // A page shows the counters of its tick.
    eventually("the reconnection", || counters()[0] == 1.0);
    let [_, later] = counters();
    assert!(later > seconds, "{seconds} s, {later} s");
}

#[test]
fn observing_leaves_containers_as_they_are_and_shows_what_they_would_get() {
    let node = Node::new();
    let (agent, mut runtime) = node.start("observe");
    let (env, _) = create(&mut runtime, container("app"));
    assert!(env.is_empty());
    let rows = ["app GOMAXPROCS 1 observed", "app GOMEMLIMIT 358MiB observed"];
    eventually("the variables", || variables(&agent) == rows);
}

#[test]
fn running_containers_are_shown_when_the_list_comes_after_the_runtime() {
    let node = Node::new();
    node.kubelet.fail(true);
    let agent = Agent::start(&node.flags("observe"));
    let _runtime = node.connect(&agent, vec![container("app"), container("setup")]);
    assert!(variables(&agent).is_empty(), "without the list, both may be init containers");
    node.kubelet.fail(false);
    let rows = ["app GOMAXPROCS 1 observed", "app GOMEMLIMIT 358MiB observed"];
    eventually("the variables", || variables(&agent) == rows);
}

#[test]
fn a_new_pod_is_asked_for_so_that_its_containers_need_no_names() {
    let node = Node::new();
    node.kubelet.list(&[running_pod("other", "shop", "other", "4f2a")]);
    let flags = [node.flags("annotated"), vec!["--pod-poll-interval=1h".to_owned()]].concat();
    let (_agent, mut runtime) = node.start_with(&flags);
    let before = node.kubelet.requests();
    node.kubelet.list(&[listed_pod()]);
    runtime.call::<Empty>("RunPodSandbox", &RunPodSandboxRequest { pod: Some(pod()) });
    // Before the creation of a container, which also asks.
    eventually("a request for the pod", || node.kubelet.requests() > before);
    let runtime = RefCell::new(runtime);
    let env = || create(&mut runtime.borrow_mut(), container("app")).0;
    eventually("the variables", || env() == ["GOMAXPROCS=1", "GOMEMLIMIT=358MiB"]);
    assert!(create(&mut runtime.borrow_mut(), container("setup")).0.is_empty());
}

#[test]
fn without_the_option_the_agent_does_not_connect() {
    let node = Node::new();
    let agent = Agent::start(&node.kubelet.flags());
    node.listener.set_nonblocking(true).unwrap();
    assert_eq!(connected(&agent), None);
    assert!(node.listener.accept().is_err());
    assert!(variables(&agent).is_empty());
}

#[test]
fn doctor_shows_the_socket_and_what_would_be_injected() {
    let node = Node::new();
    let doctor = |mode: &str| {
        let mut doctor = Command::new(binary());
        let output = doctor.args(["doctor", "--json"]).args(node.flags(mode)).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        let of = |check: &str| {
            findings.iter().find(|finding| finding["check"] == check).unwrap()["found"].to_string()
        };
        [of("nri"), of("inject-env")]
    };
    let [socket, variables] = doctor("observe");
    assert!(socket.contains("nri.sock"), "{socket}");
    let expected = "shop/cart/app GOMAXPROCS=1 GOMEMLIMIT=358MiB";
    assert!(variables.contains(expected) && !variables.contains("setup"), "{variables}");
    node.kubelet.list(&[]);
    let [_, variables] = doctor("annotated");
    assert!(variables.contains("no listed pod asks"), "{variables}");
}
