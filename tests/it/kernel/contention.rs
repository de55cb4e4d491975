//! The verdict about a slow service, from real waits to the metrics, the finding and the Event. The
//! Event comes after a minute, and so the test lasts longer.
//!
//! With `CPUWARDEN_INCIDENT=DIR` the pods have two CPUs, and what the agent says about them is saved:
//! the files of `tests/fixtures/incident`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::pinning::agent::kubelet;
use super::pinning::events::Cluster;
use crate::support::{Agent, Qos, RealTree, Workload, binary, poll, running_pod};

/// Namespace, name and CPU request of each pod, and the end of its UID and of its container's ID.
const PODS: [[&str; 4]; 3] = [
    ["shop", "checkout", "10m", "0311"],
    ["shop", "cart", "200m", "0312"],
    ["batch", "report", "500m", "0313"],
];
/// Ticks, one a second, after which the verdict knows a service.
const KNOWN_AFTER: u64 = 65;
/// The minute, and a busy machine.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Each check is work for an emulated CPU.
const POLL: Duration = Duration::from_millis(500);

fn uid(end: &str) -> String {
    format!("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c{end}")
}

fn id(end: &str) -> String {
    format!("8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb865{end}")
}

/// The pod in the kubelet's list.
fn listed([namespace, name, request, end]: [&str; 4]) -> Value {
    let mut pod = running_pod(&uid(end), namespace, name, &id(end));
    let mut resources = json!({"requests": {"cpu": request}});
    if name == "cart" {
        resources["limits"] = json!({"cpu": request});
    }
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

/// A server of 3 ms each 20 ms, a cart of 30 ms each 500 ms, and six spinning threads.
fn workload(name: &str) -> Workload {
    let ms = Duration::from_millis;
    match name {
        "checkout" => Workload::Burst { threads: 1, cpu: ms(3), every: ms(20) },
        "cart" => Workload::Burst { threads: 1, cpu: ms(30), every: ms(500) },
        _ => Workload::Spin { threads: 6 },
    }
}

#[test]
fn a_slowed_service_is_named_with_its_cause_by_metrics_advice_and_event() {
    let (tree, cluster) = (RealTree::new(), Cluster::start());
    let directory = std::env::var_os("CPUWARDEN_INCIDENT").map(PathBuf::from);
    let list = json!({"kind": "PodList", "apiVersion": "v1", "items": PODS.map(listed)});
    let own = [
        format!("--kubepods={}", tree.kubepods().path().display()),
        "--pod-source=readonly".to_owned(),
        format!("--kubelet-readonly-url=http://{}", kubelet(&list)),
        "--sched-trace=on".to_owned(),
        "--sched-trace-budget=1".to_owned(),
        // In an emulated machine a sample costs a hundred times as much.
        "--cpu-budget=1".to_owned(),
        "--events".to_owned(),
    ];
    let agent = Agent::start(&[cluster.flags(), own.to_vec()].concat());
    let run = |[_, name, request, end]: [&str; 4]| {
        let pod = tree.pod(Qos::Burstable, &uid(end));
        // As the kubelet does: by weights, not by luck, the service gets less than it wants.
        pod.set_request_milli(request.strip_suffix('m').unwrap().parse().unwrap());
        let container = pod.child(&id(end));
        if directory.is_none() {
            container.write("cpuset", "cpuset.cpus", "0");
        }
        if name == "cart" {
            container.set_quota_usec(20_000, 100_000);
        }
        container.spawn(&workload(name))
    };
    let [checkout, cart, report] = PODS;
    let _service = run(checkout);
    // Known as a service: it sleeps in between while nobody is in its way.
    let began = agent.metrics().ticks();
    let is_known = || agent.metrics().ticks() >= began + KNOWN_AFTER;
    poll(POLL, TIMEOUT, || agent.log(), is_known);
    // In this order: in an emulated node a process needs seconds to start, and until then the cart is
    // the only other one.
    let _others = [report, cart].map(run);
    let is_of_checkout = |event: &&Value| {
        event["regarding"]["uid"] == uid("0311") && event["reason"] == "CpuContention"
    };
    // A busy host, or an agent that is slow in emulation, is named before another pod runs.
    let names_a_pod = |event: &Value| is_of_checkout(&event) && !event["related"].is_null();
    let slowed = || {
        let page = agent.metrics();
        let rows = page.with_prefix("cpuwarden_pod_slowed").map(|one| format!("{one:?}"));
        format!("{}\n{}", rows.collect::<Vec<_>>().join("\n"), agent.log())
    };
    poll(POLL, TIMEOUT, slowed, || cluster.server.events().iter().any(names_a_pod));
    let events = cluster.server.events();
    let event = events.iter().find(|event| names_a_pod(event)).unwrap();
    let found = (&event["type"], &event["related"]["name"]);
    assert_eq!(found, (&"Warning".into(), &"report".into()), "{event:#}");
    let note = event["note"].as_str().unwrap();
    assert!(note.starts_with("Slowed ×") && note.contains(" by batch/report,"), "{note}");
    assert!(note.contains(": raise its CPU request: "), "{note}");

    let [namespace, pod] = [("namespace", "shop"), ("pod", "checkout")];
    let by_report = [namespace, pod, ("aggressor_workload", "report"), ("beyond_request", "true")];
    let mut page = agent.metrics();
    poll(POLL, TIMEOUT, slowed, || {
        page = agent.metrics();
        page.value("cpuwarden_pod_slowed_by_seconds_total", &by_report) > Some(20.0)
    });
    let of_neighbor = [namespace, pod, ("reason", "neighbor")];
    assert!(page.value("cpuwarden_pod_slowed_seconds_total", &of_neighbor) > Some(20.0));
    // Neither the cause nor a best effort of its own is slowed.
    let of_report = [("namespace", "batch"), ("pod", "report"), ("reason", "neighbor")];
    assert_eq!(page.value("cpuwarden_pod_slowed_seconds_total", &of_report), None);

    if let Some(directory) = directory {
        fs::write(directory.join("before.prom"), &page.text).unwrap();
        save(&agent, &directory);
    }
    let (status, advice) = agent.get("/api/v1/advice");
    assert_eq!(status, 200, "{advice}");
    let advice: Value = serde_json::from_str(&advice).unwrap();
    let findings = advice["containers"].as_array().unwrap().iter().flat_map(|container| {
        let kind = |finding: &Value| {
            let summary = finding["summary"].as_str().unwrap_or_default().to_owned();
            (container["pod"].as_str().unwrap_or_default().to_owned(), summary)
        };
        let all = container["findings"].as_array().unwrap().iter();
        all.filter(|finding| finding["kind"] == "slowed-by-others").map(kind).collect::<Vec<_>>()
    });
    let findings: Vec<_> = findings.collect();
    let of = |pod: &str| findings.iter().find(|(name, _)| name == pod).map(|(_, text)| text);
    assert!(of("checkout").unwrap().contains(" by batch/report,"), "{findings:?}");
    assert!(of("report").is_none(), "{findings:?}");
}

/// Saves the metrics twenty seconds later, the advice, and the last three minutes.
fn save(agent: &Agent, directory: &Path) {
    fs::write(directory.join("after.prom"), agent.after_ticks(20).text).unwrap();
    fs::write(directory.join("advice.json"), agent.get("/api/v1/advice").1).unwrap();
    let mut snapshot = Command::new(binary());
    snapshot.args(["snapshot", "--last=3m", &format!("--address={}", agent.address()), "-o"]);
    let status = snapshot.arg(directory.join("incident.cpuwarden")).status().unwrap();
    assert!(status.success(), "{status}");
}
