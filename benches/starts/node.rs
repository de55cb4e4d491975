//! An agent that enforces pinning beside a full LSE pod, with a container runtime that asks it.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use kernel_text::CpuSet;
use nri::api::{
    Container, CreateContainerRequest, CreateContainerResponse, LinuxPodSandbox, PodSandbox,
    RemovePodSandboxRequest, RemovePodSandboxResponse,
};
use serde_json::{Value, json};
use testkit::load;

use crate::runtime::Runtime;
use crate::support::{Agent, Cgroup, Kubelet, Qos, RealTree, eventually, pod_list, running_pod};

const OWNER: &str = "00000000-0000-4000-8000-00000000aaaa";
/// The bench fails if an expected event has not happened within this time.
pub(crate) const LOST: Duration = Duration::from_secs(30);

/// An agent that enforces, beside a pod with all CPUs that pods may own.
pub(crate) struct Node {
    pub(crate) agent: Agent,
    pub(crate) runtime: Runtime,
    /// CPUs of the LSE pod.
    pub(crate) own: CpuSet,
    pub(crate) tree: RealTree,
    _kubelet: Kubelet,
    _state: tempfile::TempDir,
}

impl Node {
    /// Starts the agent with these options beside the LSE pod and the listed pods.
    pub(crate) fn start(listed: &[Value], options: &[&str]) -> Self {
        let owned = online().len() - 1;
        let (tree, state) = (RealTree::new(), tempfile::tempdir().unwrap());
        let id = format!("{:064x}", 0xaaaa);
        let owner = tree.pod(Qos::Burstable, OWNER).child(&id);
        // They end with the tree.
        let busy = |_| owner.command("sh").args(["-c", load::SPIN_IN_SHELL]).spawn().unwrap();
        let _busy: Vec<_> = (0..owned).map(busy).collect();
        let mut lse = running_pod(OWNER, "bench", "owner", &id);
        lse["metadata"]["labels"] = json!({"koordinator.sh/qosClass": "LSE"});
        let cpus = json!({"cpu": owned.to_string()});
        lse["spec"]["containers"][0]["resources"] = json!({"requests": cpus, "limits": cpus});
        let kubelet = Kubelet::start(pod_list(&[listed, &[lse]].concat()));
        let policy = state.path().join("cpu_manager_state");
        std::fs::write(&policy, r#"{"policyName":"none","defaultCpuSet":""}"#).unwrap();
        let socket = state.path().join("nri.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut flags = kubelet.flags();
        flags.extend([
            format!("--kubepods={}", tree.kubepods().path().display()),
            format!("--cpu-manager-state={}", policy.display()),
            format!("--state-dir={}", state.path().join("state").display()),
            format!("--nri-socket={}", socket.display()),
            "--nri=on".to_owned(),
            "--pinning=enforce".to_owned(),
            "--share-floor=1".to_owned(),
            "--cpu-budget=1000".to_owned(),
        ]);
        flags.extend(options.iter().map(|&option| option.to_owned()));
        let agent = Agent::start(&flags);
        let runtime = Runtime::start(&listener, &[]);
        eventually("the grant", || effective(&owner).len() == owned);
        let own = effective(&owner);
        let mut node = Self { agent, runtime, own, tree, _kubelet: kubelet, _state: state };
        node.await_placement();
        node
    }

    fn await_placement(&mut self) {
        let (pod, began) = (pod(usize::MAX), Instant::now());
        while cpus_of(&self.ask(&pod, "probe")).is_none() {
            assert!(began.elapsed() < LOST, "nothing is placed");
        }
        self.forget(pod);
    }

    /// The agent's answer for a new container.
    pub(crate) fn ask(&mut self, pod: &PodSandbox, id: &str) -> CreateContainerResponse {
        let container = Container {
            id: id.into(),
            pod_sandbox_id: pod.id.clone(),
            name: "main".into(),
            ..Container::default()
        };
        self.create(pod, container)
    }

    pub(crate) fn create(
        &mut self,
        pod: &PodSandbox,
        container: Container,
    ) -> CreateContainerResponse {
        let request = CreateContainerRequest { pod: Some(pod.clone()), container: Some(container) };
        self.runtime.call("CreateContainer", &request)
    }

    pub(crate) fn forget(&mut self, pod: PodSandbox) {
        let request = RemovePodSandboxRequest { pod: Some(pod) };
        let _: RemovePodSandboxResponse = self.runtime.call("RemovePodSandbox", &request);
    }
}

/// CPUs in an answer.
pub(crate) fn cpus_of(answer: &CreateContainerResponse) -> Option<String> {
    let resources = answer.adjust.as_ref()?.linux.as_ref()?.resources.as_ref()?;
    let cpus = resources.cpu.as_ref()?.cpus.clone();
    (!cpus.is_empty()).then_some(cpus)
}

/// A shared pod.
pub(crate) fn pod(number: usize) -> PodSandbox {
    let uid = format!("00000000-0000-4000-8000-{:012x}", number & 0xffff_ffff);
    let linux = LinuxPodSandbox {
        cgroup_parent: format!("/kubepods/burstable/pod{uid}"),
        ..LinuxPodSandbox::default()
    };
    PodSandbox {
        id: format!("sandbox-{number}"),
        name: format!("start-{number}"),
        namespace: "bench".into(),
        linux: Some(linux),
        uid,
        ..PodSandbox::default()
    }
}

pub(crate) fn effective(cgroup: &Cgroup) -> CpuSet {
    let v2 = cgroup.dir("cpuset").join("cpuset.cpus.effective").exists();
    let file = if v2 { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
    cgroup.read("cpuset", file).parse().unwrap()
}

pub(crate) fn online() -> CpuSet {
    cgroupfs::node::cpu_list("/sys".as_ref(), "online").unwrap()
}
