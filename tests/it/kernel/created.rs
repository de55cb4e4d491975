//! Names of containers by the container runtime's report of their creation.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use nri::api::{
    Container, CreateContainerRequest, CreateContainerResponse, LinuxPodSandbox, PodSandbox,
    PostCreateContainerRequest, PostCreateContainerResponse, RemoveContainerRequest,
    RemoveContainerResponse, RemovePodSandboxRequest, RemovePodSandboxResponse,
    RunPodSandboxRequest, RunPodSandboxResponse, SynchronizeRequest, SynchronizeResponse,
};
use serde_json::json;
use tempfile::TempDir;

use crate::injection::runtime::Runtime;
use crate::support::{Agent, Kubelet, Qos, RealTree, eventually, pod_list};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0004";
const ID: &str = "1b7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

const NEXT: &str = "2c7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9c";

/// The runtime's socket.
pub(super) struct Socket {
    directory: TempDir,
    listener: UnixListener,
}

impl Socket {
    pub(super) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let listener = UnixListener::bind(directory.path().join("nri.sock")).unwrap();
        Self { directory, listener }
    }

    pub(super) fn flags(&self) -> [String; 2] {
        let socket = self.directory.path().join("nri.sock");
        ["--nri=on".to_owned(), format!("--nri-socket={}", socket.display())]
    }

    /// Accepts the agent, and reports what runs.
    pub(super) fn accept(&self, pods: Vec<PodSandbox>, containers: Vec<Container>) -> Runtime {
        let mut runtime = Runtime::accept(&self.listener);
        runtime.register();
        runtime.configure("v2.4.3", "v0.12.5");
        let request = SynchronizeRequest { pods, containers, more: false };
        let answer: SynchronizeResponse = runtime.call("Synchronize", &request);
        assert!(answer.update.is_empty(), "running containers are not updated by the runtime");
        runtime
    }
}

pub(super) fn run_pod(runtime: &mut Runtime, pod: &PodSandbox) {
    let request = RunPodSandboxRequest { pod: Some(pod.clone()) };
    let _: RunPodSandboxResponse = runtime.call("RunPodSandbox", &request);
}

pub(super) fn create(
    runtime: &mut Runtime,
    pod: &PodSandbox,
    container: &Container,
) -> CreateContainerResponse {
    let (pod, container) = (Some(pod.clone()), Some(container.clone()));
    let request = CreateContainerRequest { pod: pod.clone(), container: container.clone() };
    let answer = runtime.call("CreateContainer", &request);
    let request = PostCreateContainerRequest { pod, container };
    let _: PostCreateContainerResponse = runtime.call("PostCreateContainer", &request);
    answer
}

fn pod(name: &str) -> PodSandbox {
    let linux = LinuxPodSandbox {
        cgroup_parent: format!("/kubepods/burstable/pod{UID}"),
        ..LinuxPodSandbox::default()
    };
    PodSandbox {
        id: "sandbox".into(),
        uid: UID.into(),
        namespace: "shop".into(),
        name: name.into(),
        linux: Some(linux),
        ..PodSandbox::default()
    }
}

fn container() -> Container {
    Container {
        id: ID.into(),
        pod_sandbox_id: "sandbox".into(),
        name: "main".into(),
        ..Container::default()
    }
}

fn labels(pod: &str) -> [(&str, &str); 4] {
    [("namespace", "shop"), ("pod", pod), ("container", "main"), ("mode", "user")]
}

const USAGE: &str = "cpuwarden_container_cpu_usage_seconds_total";

#[test]
fn a_container_has_its_name_from_its_creation_on() {
    let (tree, socket) = (RealTree::new(), Socket::new());
    let mut flags = socket.flags().to_vec();
    flags.push("--pod-source=none".to_owned());
    flags.push(format!("--kubepods={}", tree.kubepods().path().display()));
    let agent = Agent::start(&flags);
    let mut runtime = socket.accept(vec![], vec![]);
    eventually("the connection", || {
        agent.metrics().value("cpuwarden_pod_source_up", &[("source", "nri")]) == Some(1.0)
    });
    run_pod(&mut runtime, &pod("new"));
    create(&mut runtime, &pod("new"), &container());
    let cgroup = tree.pod(Qos::Burstable, UID);
    cgroup.child(ID);
    let is_named = || agent.metrics().value(USAGE, &labels("new")).is_some();
    eventually("the name", is_named);

    let (sandbox, removed) = (Some(pod("new")), Some(container()));
    let request = RemoveContainerRequest { pod: sandbox.clone(), container: removed };
    let _: RemoveContainerResponse = runtime.call("RemoveContainer", &request);
    let request = RemovePodSandboxRequest { pod: sandbox };
    let _: RemovePodSandboxResponse = runtime.call("RemovePodSandbox", &request);
    // The pod's next container is not reported.
    cgroup.child(NEXT);
    let labels = [("pod", "new"), ("container", "next"), ("mode", "user")];
    let next_is_named = || agent.metrics().value(USAGE, &labels).is_some();
    assert!(!next_is_named());

    // Another connection reports what runs.
    drop(runtime);
    let next = Container { id: NEXT.into(), name: "next".into(), ..container() };
    let _runtime = socket.accept(vec![pod("new")], vec![next]);
    eventually("the name of a running container", next_is_named);
}

#[test]
fn the_kubelets_list_wins_and_lacks_only_the_id() {
    let (tree, socket) = (RealTree::new(), Socket::new());
    let listed = json!({
        "metadata": {"namespace": "shop", "name": "listed", "uid": UID},
        "spec": {"containers": [{"name": "main", "image": "test:1", "resources": {}}]},
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    });
    let kubelet = Kubelet::start(pod_list(&[listed]));
    let mut flags = [kubelet.flags(), socket.flags().to_vec()].concat();
    // No second tick within the timeout of `eventually`.
    flags.push("--sample-interval=60s".to_owned());
    flags.push(format!("--kubepods={}", tree.kubepods().path().display()));
    let agent = Agent::start(&flags);
    eventually("readiness", || agent.get("/readyz").0 == 200);
    let mut runtime = socket.accept(vec![], vec![]);
    create(&mut runtime, &pod("reported"), &container());
    tree.pod(Qos::Burstable, UID).slow_child(ID, Duration::ZERO);
    eventually("the name", || agent.metrics().value(USAGE, &labels("listed")).is_some());
    let page = agent.metrics();
    assert_eq!(page.value(USAGE, &labels("reported")), None);
    assert_eq!(page.ticks(), 1, "it was named before the next tick");
}
