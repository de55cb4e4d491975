//! The real binary, with a kubelet that lists the pods on its read-only port.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::scene::{Scene, all_classes, container_id, effective, online};
use crate::support::{Agent, Qos, binary, eventually};

/// Serves this list of pods to all clients, for the lifetime of the test binary.
pub(in crate::kernel) fn kubelet(pods: &Value) -> SocketAddr {
    let body = pods.to_string();
    changing_kubelet(move || body.clone())
}

/// As [`kubelet`], with a list that may change.
pub(in crate::kernel) fn changing_kubelet(
    list: impl Fn() -> String + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let body = list();
            let length = body.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
            );
            let _ = write!(stream, "{head}connection: close\r\n\r\n{body}");
        }
    });
    address
}

fn pod(scene: &Scene, at: usize, annotations: &Value) -> Value {
    let uid = &*scene.pods[at].0;
    let (class, cpus) = (pinning::class_name(scene.class(uid)), scene.request(at).cpus.to_string());
    let labels = json!({"koordinator.sh/qosClass": class});
    let resources = if cpus == "0" {
        json!({})
    } else {
        json!({"requests": {"cpu": cpus}, "limits": {"cpu": cpus}})
    };
    json!({
        "metadata": {"namespace": "test", "name": format!("pod-{at}"), "uid": uid, "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "c", "containerID": format!("containerd://{}", container_id(at)), "restartCount": 0, "state": {"running": {}},
        }]},
    })
}

pub(super) fn list(scene: &Scene) -> Value {
    // An invalid annotation of one pod must not affect the others.
    let forged = json!({"scheduling.koordinator.sh/resource-spec": "{\"preferredCPUBindPolicy\": \"Mine\"}"});
    let annotations = |at| if at == 0 { forged.clone() } else { json!({}) };
    let items: Vec<Value> =
        (0..scene.pods.len()).map(|at| pod(scene, at, &annotations(at))).collect();
    json!({"kind": "PodList", "apiVersion": "v1", "items": items})
}

/// Adds a pod whose container has a claim of dynamic resource allocation.
pub(super) fn add_claimant(list: &mut Value, uid: &str, id: usize) {
    let resources = json!({"claims": [{"name": "cpu"}]});
    let pod = json!({
        "metadata": {"namespace": "test", "name": format!("pod-{uid}"), "uid": uid},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [{
            "name": "c", "containerID": format!("containerd://{}", container_id(id)), "restartCount": 0,
            "state": {"running": {}},
        }]},
    });
    list["items"].as_array_mut().unwrap().push(pod);
}

pub(super) fn options(scene: &Scene, kubelet: SocketAddr) -> Vec<String> {
    let config = scene.config(true);
    vec![
        format!("--kubepods={}", config.node.kubepods[0]),
        "--pod-source=readonly".to_owned(),
        format!("--kubelet-readonly-url=http://{kubelet}"),
        format!("--cpu-manager-state={}", config.node.cpu_manager_state.display()),
        format!("--state-dir={}", config.node.state_dir.display()),
        "--share-floor=1".to_owned(),
    ]
}

pub(in crate::kernel) fn command(name: &str, options: &[String], more: &[&str]) -> Output {
    Command::new(binary()).arg(name).args(options).args(more).output().unwrap()
}

pub(in crate::kernel) fn stdout_of(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn pins_survive_the_agent_and_a_drain_removes_them() {
    let scene = Scene::new(&all_classes());
    let options = options(&scene, kubelet(&list(&scene)));
    let run: Vec<String> =
        [&options[..], &["--pinning=enforce".into(), "--cpu-budget=1000".into()]].concat();
    let agent = Agent::start(&run);
    let expected = scene.request(2).cpus as usize;
    eventually("a grant", || {
        scene.effective(2).len() == expected && scene.effective(0).is_disjoint(&scene.effective(2))
    });
    let pinned =
        [("namespace", "test"), ("pod", "pod-2"), ("cpu_qos", "LSE"), ("bind_policy", "FullPCPUs")];
    // A scrape may see a part of a pass's metrics; the rejections come last.
    let rejected = ("cpuwarden_pin_rejections_total", [("reason", "resource_spec_malformed")]);
    eventually("metrics", || agent.metrics().value(rejected.0, &rejected.1) == Some(1.0));
    let page = agent.metrics();
    assert_eq!(page.value("cpuwarden_pinned_cpus", &pinned), Some(expected as f64));
    assert_eq!(page.value("cpuwarden_pinning_enforcing", &[("reason", "")]), Some(1.0));
    let late = scene
        .tree
        .pod(Qos::Burstable, "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0dffff")
        .child(&container_id(99));
    eventually("a new pod to be confined", || effective(&late).is_disjoint(&scene.effective(2)));

    let table = stdout_of(&command("pins", &options, &[]));
    assert!(
        table.contains("test/pod-2") && table.contains("yes") && !table.contains("NO"),
        "{table}"
    );
    let shown: Value =
        serde_json::from_str(&stdout_of(&command("topology", &options, &["--json"]))).unwrap();
    let owners: Vec<_> = shown["cpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cpu| cpu["owner"].as_str().unwrap())
        .collect();
    assert_eq!(owners.iter().filter(|owner| **owner == "test/pod-2 (LSE)").count(), expected);

    let bytes = scene.bytes();
    assert!(agent.signal(Signal::TERM).0.success());
    assert_eq!(scene.bytes(), bytes, "pins stay when the agent ends");

    let agent = Agent::start(&run);
    eventually("the agent to take up its pins", || {
        agent.metrics().value("cpuwarden_pinning_enforcing", &[("reason", "")]) == Some(1.0)
    });
    assert_eq!(scene.bytes(), bytes, "and when it starts again");
    stdout_of(&command("drain", &options, &[]));
    assert!(
        (0..scene.pods.len()).all(|at| scene.effective(at) == online()),
        "{:?}",
        scene.all_effective()
    );
    eventually("the agent to say so", || {
        let page = agent.metrics();
        page.with(&[]).iter().any(|sample| {
            sample.name == "cpuwarden_pinning_enforcing"
                && sample.label("reason").contains("drained")
                && sample.value == 0.0
        })
    });
    assert!((0..scene.pods.len()).all(|at| scene.effective(at) == online()), "it stays drained");
}
