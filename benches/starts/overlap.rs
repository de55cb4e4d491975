//! Starts of shared containers beside a full LSE pod: the CPUs that the first program of each may use,
//! and the agent's own measure of the overlap.
//!
//! Two cases with the same agent: the runtime asks it for the CPUs of each container, or does not. A
//! container runs until a pass has confined it, in a pod of its own. An answer without CPUs counts as
//! one: the container then starts like one that is not asked for.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use kernel_text::CpuSet;
use nri::api::{
    Container, CreateContainerRequest, CreateContainerResponse, LinuxPodSandbox, PodSandbox,
    RemovePodSandboxRequest, RemovePodSandboxResponse,
};
use serde_json::json;

use crate::runtime::Runtime;
use crate::support::{Agent, Cgroup, Kubelet, Qos, RealTree, eventually, pod_list, running_pod};

const OWNER: &str = "00000000-0000-4000-8000-00000000aaaa";
/// A container that no pass has confined within this time ends the bench.
const LOST: Duration = Duration::from_secs(30);
const OVERLAP: &str = "cpuwarden_exclusive_overlap_seconds_total";

/// An agent that enforces, beside a pod with all CPUs that pods may own.
struct Node {
    agent: Agent,
    runtime: Runtime,
    /// CPUs of the LSE pod.
    own: CpuSet,
    tree: RealTree,
}

/// Sums of one case.
#[derive(Default)]
struct Case {
    /// Starts whose CPUs the agent has answered.
    answered: usize,
    /// Starts whose first program could use the CPUs of the LSE pod.
    on_own: usize,
    overlap_seconds: f64,
}

pub(crate) fn run(starts: usize) {
    let online = cgroupfs::node::cpu_list("/sys".as_ref(), "online").unwrap();
    let owned = online.len() - 1;
    let (tree, state) = (RealTree::new(), tempfile::tempdir().unwrap());
    let id = format!("{:064x}", 0xaaaa);
    let owner = tree.pod(Qos::Burstable, OWNER).child(&id);
    // They end with the tree.
    let busy = |_| owner.command("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let _busy: Vec<_> = (0..owned).map(busy).collect();
    let mut listed = running_pod(OWNER, "bench", "owner", &id);
    listed["metadata"]["labels"] = json!({"koordinator.sh/qosClass": "LSE"});
    let cpus = json!({"cpu": owned.to_string()});
    listed["spec"]["containers"][0]["resources"] = json!({"requests": cpus, "limits": cpus});
    let kubelet = Kubelet::start(pod_list(&[listed]));
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
    let agent = Agent::start(&flags);
    let runtime = Runtime::start(&listener, &[]);
    eventually("the grant", || effective(&owner).len() == owned);
    let mut node = Node { agent, runtime, own: effective(&owner), tree };
    node.await_placement();
    println!("{starts} starts beside a busy LSE pod with CPUs {} of {online}", node.own);
    println!("| case | answered | first program on the pod's CPUs | overlap, s |");
    println!("|---|---|---|---|");
    let placed = node.case("placed at creation", true, 0..starts);
    let unplaced = node.case("not placed", false, starts..2 * starts);
    assert_eq!((placed.on_own, placed.overlap_seconds), (0, 0.0), "with placement at creation");
    assert!(unplaced.overlap_seconds > 0.0, "without placement there is nothing to prevent");
}

impl Node {
    fn await_placement(&mut self) {
        let (pod, began) = (pod(usize::MAX), Instant::now());
        while self.ask(&pod, "probe").is_none() {
            assert!(began.elapsed() < LOST, "nothing is placed");
        }
        self.forget(pod);
    }

    fn case(&mut self, name: &str, asks: bool, numbers: std::ops::Range<usize>) -> Case {
        let (mut case, starts) = (Case::default(), numbers.len());
        let before = self.overlap_seconds();
        for number in numbers {
            let (is_answered, first) = self.start(number, asks);
            case.answered += usize::from(is_answered);
            case.on_own += usize::from(!first.is_disjoint(&self.own));
        }
        case.overlap_seconds = self.overlap_seconds() - before;
        let Case { answered, on_own, overlap_seconds } = &case;
        println!("| {name} | {answered} of {starts} | {on_own} | {overlap_seconds:.3} |");
        case
    }

    /// Runs a container until it is confined. Returns whether the agent has answered its CPUs, and
    /// those that its first program could use.
    fn start(&mut self, number: usize, asks: bool) -> (bool, CpuSet) {
        let (pod, id) = (pod(number), format!("{number:064x}"));
        let answer = asks.then(|| self.ask(&pod, &id)).flatten();
        let cgroup = self.tree.pod(Qos::Burstable, &pod.uid);
        let container = cgroup.child(&id);
        if let Some(cpus) = &answer {
            container.write("cpuset", "cpuset.cpus", cpus);
        }
        let mut program = container.command("sh");
        program.args(["-c", "grep Cpus_allowed_list /proc/self/status; echo; exec sleep 600"]);
        let mut program = program.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        // Up to the empty line: the first program has ended.
        let mut output = BufReader::new(program.stdout.take().unwrap());
        for _ in 0..2 {
            output.read_line(&mut line).unwrap();
        }
        let began = Instant::now();
        while [&cgroup, &container].iter().any(|one| !effective(one).is_disjoint(&self.own)) {
            assert!(began.elapsed() < LOST, "container {number} was not confined");
            std::thread::sleep(Duration::from_millis(1));
        }
        program.kill().unwrap();
        program.wait().unwrap();
        container.remove();
        cgroup.remove();
        if asks {
            self.forget(pod);
        }
        (answer.is_some(), line.split_whitespace().last().unwrap().parse().unwrap())
    }

    /// The agent's answer for a new container.
    fn ask(&mut self, pod: &PodSandbox, id: &str) -> Option<String> {
        let container = Container {
            id: id.into(),
            pod_sandbox_id: pod.id.clone(),
            name: "main".into(),
            ..Container::default()
        };
        let request = CreateContainerRequest { pod: Some(pod.clone()), container: Some(container) };
        let answer: CreateContainerResponse = self.runtime.call("CreateContainer", &request);
        let cpus = answer.adjust?.linux?.resources?.cpu?.cpus;
        (!cpus.is_empty()).then_some(cpus)
    }

    fn forget(&mut self, pod: PodSandbox) {
        let request = RemovePodSandboxRequest { pod: Some(pod) };
        let _: RemovePodSandboxResponse = self.runtime.call("RemovePodSandbox", &request);
    }

    /// Overlap up to now, after the passes that could still add to it.
    fn overlap_seconds(&self) -> f64 {
        let ticks = self.agent.metrics().ticks();
        eventually("ticks", || self.agent.metrics().ticks() >= ticks + 3);
        let page = self.agent.metrics();
        page.with_prefix(OVERLAP).map(|sample| sample.value).sum()
    }
}

/// A shared pod.
fn pod(number: usize) -> PodSandbox {
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

fn effective(cgroup: &Cgroup) -> CpuSet {
    let v2 = cgroup.dir("cpuset").join("cpuset.cpus.effective").exists();
    let file = if v2 { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
    cgroup.read("cpuset", file).parse().unwrap()
}
