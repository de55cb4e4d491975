//! Answers of the whole agent to a container runtime: 250 pods with two containers each run on the
//! node and are synchronized; then 2,000 containers of new pods are created, each with 64
//! variables, 30 annotations and 20 mounts. Every answer has CPUs, GOMAXPROCS and GOMEMLIMIT. The
//! agent samples and plans meanwhile, as always.
//!
//! Printed: p50, p99 and maximum. Target: p99 below 5 ms.

use std::time::{Duration, Instant};

use nri::api::{
    Container, LinuxContainer, LinuxCpu, LinuxMemory, LinuxResources, Mount, OptionalInt64,
    OptionalUInt64, PodSandbox, SynchronizeRequest, SynchronizeResponse,
};
use serde_json::Value;

use crate::node::{Node, cpus_of, pod};
use crate::support::{Cgroup, Qos, running_pod};

const PODS: usize = 250;
const CREATIONS: usize = 2_000;

pub(crate) fn run() {
    let numbers = 0..PODS;
    let listed: Vec<Value> = numbers
        .clone()
        .map(|number| {
            let sandbox = pod(number);
            let mut listed = running_pod(&sandbox.uid, "bench", &sandbox.name, &id(number, 0));
            let second = running_pod(&sandbox.uid, "bench", &sandbox.name, &id(number, 1));
            let containers = [&listed, &second].map(|one| one["spec"]["containers"][0].clone());
            let statuses =
                [&listed, &second].map(|one| one["status"]["containerStatuses"][0].clone());
            listed["spec"]["containers"] = containers.to_vec().into();
            listed["status"]["containerStatuses"] = statuses.to_vec().into();
            for (list, field) in [("spec", "containers"), ("status", "containerStatuses")] {
                listed[list][field][1]["name"] = "second".into();
            }
            listed
        })
        .collect();
    let mut node = Node::start(&listed, &["--inject-env=annotated"]);
    let cgroups: Vec<Cgroup> = numbers
        .clone()
        .flat_map(|number| {
            let cgroup = node.tree.pod(Qos::Burstable, &pod(number).uid);
            [0, 1].map(|second| cgroup.child(&id(number, second)))
        })
        .collect();
    let containers = numbers
        .clone()
        .flat_map(|number| [0, 1].map(|second| container(&pod(number).id, &id(number, second))));
    let request = SynchronizeRequest {
        pods: numbers.map(annotated).collect(),
        containers: containers.collect(),
        more: false,
    };
    let start = Instant::now();
    let _: SynchronizeResponse = node.runtime.call("Synchronize", &request);
    println!("synchronization of {} containers: {:?}", cgroups.len(), start.elapsed());

    let mut times: Vec<Duration> = (PODS..PODS + CREATIONS)
        .map(|number| {
            let pod = annotated(number);
            let container = container(&pod.id, &id(number, 0));
            let start = Instant::now();
            let answer = node.create(&pod, container);
            let time = start.elapsed();
            assert!(cpus_of(&answer).is_some(), "no CPUs: {answer:?}");
            let variables = answer.adjust.unwrap().env;
            assert_eq!(variables.len(), 2, "{variables:?}");
            node.forget(pod);
            time
        })
        .collect();
    times.sort_unstable();
    let at = |share: f64| times[(share * (CREATIONS - 1) as f64) as usize];
    let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
    println!(
        "{CREATIONS} creations: p50 {p50:?}, p99 {p99:?}, longest {max:?}; target: p99 below 5 ms"
    );
}

fn id(pod: usize, container: usize) -> String {
    format!("{:064x}", pod * 2 + container + 0x1_0000)
}

/// A shared pod that asks for variables, also before the kubelet lists it.
fn annotated(number: usize) -> PodSandbox {
    let annotations = [("inject-env", "true"), ("inject-env-containers", "main")];
    let annotations = annotations.map(|(key, value)| (format!("cpuwarden.io/{key}"), value.into()));
    PodSandbox { annotations: annotations.into(), ..pod(number) }
}

fn container(sandbox: &str, id: &str) -> Container {
    let text = |what: &str, number: usize| format!("{what}-{number}-{}", "x".repeat(30));
    let mount = |number| Mount {
        destination: text("/mnt", number),
        r#type: "bind".into(),
        source: text("/var/lib/kubelet", number),
        options: vec!["rbind".into(), "rprivate".into(), "rw".into()],
    };
    let cpu = LinuxCpu {
        quota: Some(OptionalInt64 { value: 150_000 }),
        period: Some(OptionalUInt64 { value: 100_000 }),
        ..LinuxCpu::default()
    };
    let memory =
        LinuxMemory { limit: Some(OptionalInt64 { value: 1 << 30 }), ..LinuxMemory::default() };
    let resources =
        LinuxResources { cpu: Some(cpu), memory: Some(memory), ..LinuxResources::default() };
    Container {
        id: id.into(),
        pod_sandbox_id: sandbox.into(),
        name: "main".into(),
        env: (0..64).map(|number| format!("KEY_{number}={}", text("value", number))).collect(),
        annotations: (0..30).map(|number| (text("key", number), text("value", number))).collect(),
        mounts: (0..20).map(mount).collect(),
        linux: Some(LinuxContainer { resources: Some(resources), ..LinuxContainer::default() }),
        ..Container::default()
    }
}
