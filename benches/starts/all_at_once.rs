//! A start of the node: the agent starts, and the runtime creates 110 pods that ask for variables,
//! of two containers each, one container after another, as a runtime with one lock does. The kubelet
//! lists the pods some time after the first creation; until then, the first container of a pod may
//! wait for the list.
//!
//! Printed for each time of the list: the sum and the longest of the agent's answers, the number of
//! answers over 50 ms, the time of the start, and containers that got their variables.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use nri::api::{
    Container, CreateContainerRequest, CreateContainerResponse, Empty, LinuxContainer, LinuxCpu,
    LinuxResources, OptionalInt64, OptionalUInt64, PodSandbox, RunPodSandboxRequest,
};
use serde_json::{Value, json};

use crate::node::pod;
use crate::runtime::Runtime;
use crate::support::{Agent, Kubelet, OnStage, pod_list, running_pod};

const PODS: usize = 110;
const OWN: &str = "00000000-0000-4000-8000-00000000bbbb";
const NAMES: [&str; 2] = ["main", "second"];
/// Time that the runtime itself takes for a container.
const OWN_WORK: Duration = Duration::from_millis(20);
/// An answer that takes longer has waited.
const WAITED: Duration = Duration::from_millis(50);

pub(crate) fn run() {
    let _stage = OnStage::enter();
    println!("| list after | answers, sum | longest | over 50 ms | start | with variables |");
    println!("|---|---|---|---|---|---|");
    for seconds in [Some(0), Some(1), Some(3), None] {
        measure(seconds.map(Duration::from_secs));
    }
}

fn measure(listed_after: Option<Duration>) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nri.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    // The pod of the agent, which the kubelet lists before it starts: no list is empty.
    let own = running_pod(OWN, "bench", "agent", &id(PODS, NAMES[0]));
    let kubelet = Kubelet::start(pod_list(std::slice::from_ref(&own)));
    let flags = [
        "--nri=on".to_owned(),
        format!("--nri-socket={}", socket.display()),
        "--inject-env=annotated".to_owned(),
        "--sched-trace=off".to_owned(),
    ];
    let _agent = Agent::start(&[kubelet.flags(), flags.to_vec()].concat());
    let mut runtime = Runtime::start(&listener, &[]);
    let all: Vec<Value> = (0..PODS).map(listed).chain([own]).collect();
    let start = Instant::now();
    let (mut answers, mut with_variables) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Some(after) = listed_after {
                std::thread::sleep(after);
                kubelet.list(&all);
            }
        });
        for number in 0..PODS {
            let sandbox = asking(number);
            let run = RunPodSandboxRequest { pod: Some(sandbox.clone()) };
            runtime.call::<Empty>("RunPodSandbox", &run);
            for name in NAMES {
                std::thread::sleep(OWN_WORK);
                let began = Instant::now();
                let request = CreateContainerRequest {
                    pod: Some(sandbox.clone()),
                    container: Some(container(number, name)),
                };
                let answer: CreateContainerResponse = runtime.call("CreateContainer", &request);
                answers.push(began.elapsed());
                with_variables += usize::from(!answer.adjust.unwrap_or_default().env.is_empty());
            }
        }
    });
    let list = listed_after.map_or("never".to_owned(), |after| format!("{after:?}"));
    let (took, sum) = (start.elapsed(), answers.iter().sum::<Duration>());
    let longest = answers.iter().max().unwrap();
    let waited = answers.iter().filter(|time| **time > WAITED).count();
    println!(
        "| {list} | {sum:.2?} | {longest:.0?} | {waited} | {took:.1?} | {with_variables} of {} |",
        answers.len()
    );
}

fn asking(number: usize) -> PodSandbox {
    let annotations = [("cpuwarden.io/inject-env".to_owned(), "true".to_owned())];
    PodSandbox { annotations: annotations.into(), ..pod(number) }
}

fn listed(number: usize) -> Value {
    let sandbox = asking(number);
    let mut listed = running_pod(&sandbox.uid, "bench", &sandbox.name, &id(number, NAMES[0]));
    let limits = json!({"limits": {"cpu": "1500m", "memory": "512Mi"}});
    let containers = NAMES.map(|name| json!({"name": name, "image": "i", "resources": limits}));
    listed["metadata"]["annotations"] = json!({"cpuwarden.io/inject-env": "true"});
    listed["spec"]["containers"] = json!(containers);
    listed["status"] = json!({"phase": "Pending", "qosClass": "Burstable"});
    listed
}

fn id(pod: usize, name: &str) -> String {
    format!("{name:0<32}{pod:032x}")
}

fn container(pod: usize, name: &str) -> Container {
    let cpu = LinuxCpu {
        quota: Some(OptionalInt64 { value: 150_000 }),
        period: Some(OptionalUInt64 { value: 100_000 }),
        ..LinuxCpu::default()
    };
    let resources = LinuxResources { cpu: Some(cpu), ..LinuxResources::default() };
    Container {
        id: id(pod, name),
        pod_sandbox_id: format!("sandbox-{pod}"),
        name: name.into(),
        linux: Some(LinuxContainer { resources: Some(resources), ..LinuxContainer::default() }),
        ..Container::default()
    }
}
