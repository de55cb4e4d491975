//! `cpuwarden advise` against a running agent that knows the names of two pods.

use std::cell::RefCell;
use std::process::Command;

use k8s_openapi::DeepMerge as _;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use crate::support::{
    Agent, Kubelet, Qos, RealTree, Running, Workload, binary, eventually, pod_list, running_pod,
};

/// Two pods, each with a container `main` limited to 64 MiB without a request, and an agent that
/// knows their names.
struct Node {
    agent: Agent,
    _running: Vec<Running>,
    _kubelet: Kubelet,
    _tree: RealTree,
}

const PODS: [(&str, &str, u32); 2] = [("shop", "cart", 1), ("bank", "ledger", 2)];
const MEMORY_BYTES: u64 = 64 << 20;

impl Node {
    fn new() -> Self {
        let tree = RealTree::beside_others();
        let uid = |last: u32| format!("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c001{last}");
        let id = |last: u32| {
            format!("aa7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9{last}")
        };
        let pods =
            PODS.map(|(namespace, name, last)| running_pod(&uid(last), namespace, name, &id(last)));
        let kubelet = Kubelet::start(pod_list(&pods));
        let running = PODS.map(|(_, _, last)| {
            let container = tree.pod(Qos::Burstable, &uid(last)).child(&id(last));
            container.set_quota_usec(20_000, 100_000);
            container.set_memory_limit_bytes(MEMORY_BYTES);
            container.spawn(&Workload::Spin { threads: 1 })
        });
        let mut flags = kubelet.flags();
        flags.extend([
            format!("--kubepods={}", tree.kubepods().path().display()),
            "--sched-trace=off".to_owned(),
        ]);
        let node = Self {
            agent: Agent::start(&flags),
            _running: running.into(),
            _kubelet: kubelet,
            _tree: tree,
        };
        let is_complete = |row: &Value| {
            let findings = row["findings"].as_array().unwrap();
            let has_patch = findings.iter().any(|found| !found["patch"].is_null());
            has_patch
                && findings[0]["kind"] == "throttled-by-own-quota"
                && row["runtime"]["language"] == "rust"
        };
        eventually("the findings and runtimes of both", || {
            node.json(&[]).iter().filter(|row| is_complete(row)).count() == PODS.len()
        });
        node
    }

    fn advise(&self, output: &str, filters: &[&str]) -> String {
        advise(&self.agent, output, filters)
    }

    /// Containers in the JSON output.
    fn json(&self, filters: &[&str]) -> Vec<Value> {
        let report: Value = serde_json::from_str(&self.advise("json", filters)).unwrap();
        assert_eq!(report["objective"], 0.01);
        report["containers"].as_array().unwrap().clone()
    }
}

/// Output of `cpuwarden advise`.
fn advise(agent: &Agent, output: &str, filters: &[&str]) -> String {
    let address = agent.address().to_string();
    let mut command = Command::new(binary());
    let output = command
        .args(["advise", "--address", &address, "-o", output])
        .args(filters)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_command_prints_in_every_format_what_is_asked_for() {
    let node = Node::new();
    assert_formats_agree(&node);
    assert_filters_keep_their_own(&node);
    assert_a_patch_is_one(&node);
    let series = || {
        let page = node.agent.metrics();
        let labels =
            [("namespace", "shop"), ("pod", "cart"), ("container", "main"), ("runtime", "rust")];
        page.value("cpuwarden_container_runtime_info", &labels)
    };
    eventually("the series of what it runs", || series() == Some(1.0));
}

#[test]
fn the_first_answer_says_what_is_known_and_when_the_rest_comes() {
    let tree = RealTree::beside_others();
    let container =
        tree.pod(Qos::Burstable, "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0013").child(&"f".repeat(64));
    container.set_quota_usec(20_000, 100_000);
    let _running = container.spawn(&Workload::Spin { threads: 1 });
    let kubepods = format!("--kubepods={}", tree.kubepods().path().display());
    let agent = Agent::start(&["--pod-source=none", "--sched-trace=off", &kubepods]);
    let first = RefCell::new(String::new());
    eventually("an answer about the container", || {
        *first.borrow_mut() = advise(&agent, "table", &[]);
        !first.borrow().starts_with("no containers")
    });
    let text = first.into_inner();
    assert!(text.lines().nth(1).unwrap().contains("  limit 0.2"), "{text}");
    let rest = text.lines().find(|line| line.starts_with("  · not enough history: ")).unwrap();
    assert!(rest.ends_with(" of 24 h; limits from 5 min, lower requests from 24 h"), "{text}");
    // What follows from so few seconds is a finding, or none so far.
    let known = text.lines().nth(2).unwrap();
    assert!(known.starts_with("  ! ") || known == "  · nothing to change so far", "{text}");
}

fn assert_formats_agree(node: &Node) {
    // The load continues, so figures of two runs differ: compare only the names.
    let names = |report: &Value| -> Vec<_> {
        let rows = report["containers"].as_array().unwrap().iter();
        rows.map(|row| (row["namespace"].clone(), row["pod"].clone(), row["container"].clone()))
            .collect()
    };
    let json: Value = serde_json::from_str(&node.advise("json", &[])).unwrap();
    let yaml: Value = serde_saphyr::from_str(&node.advise("yaml", &[])).unwrap();
    assert_eq!((names(&json).len(), names(&json)), (2, names(&yaml)));
    let kind = |report: &Value| report["containers"][0]["findings"][0]["kind"].clone();
    assert_eq!(
        (kind(&json), kind(&yaml)),
        ("throttled-by-own-quota".into(), "throttled-by-own-quota".into())
    );
    let table = node.advise("table", &[]);
    assert!(table.contains(" in 2 of 2 workloads, 2 containers\n"), "{table}");
    for pod in ["bank/ledger", "shop/cart"] {
        assert!(table.contains(&format!("\nPod {pod}\nmain:  Rust 1.")), "{table}");
    }
    assert_eq!(table.matches("  limit 0.2").count(), 2, "{table}");
    let findings = table
        .lines()
        .filter(|line| line.starts_with("  ! throttled-by-own-quota: limit 0.2 cores, "));
    assert_eq!(findings.count(), 2, "{table}");
}

fn assert_filters_keep_their_own(node: &Node) {
    for (filters, expected) in [
        (&["--namespace", "shop"][..], &["cart"][..]),
        (&["--pod", "ledger"], &["ledger"]),
        (&["--namespace", "bank", "--pod", "ledger"], &["ledger"]),
        (&["--pod", "ledger", "--kind", "memory-limit-not-request"], &["ledger"]),
        (&["--kind=kernel-slice-expiry"], &[]),
    ] {
        let pods: Vec<_> =
            node.json(filters).iter().map(|row| row["pod"].as_str().unwrap().to_owned()).collect();
        assert_eq!(pods, expected, "{filters:?}");
        assert_eq!(
            node.advise("patch", filters).matches("---\n").count(),
            expected.len(),
            "{filters:?}"
        );
    }
    for (filters, named) in [
        (&["--namespace", "bank", "--pod", "cart"][..], "namespace bank, pod cart"),
        (&["--namespace", "sho"], "namespace sho"),
        (&["--workload", "web"], "workload web"),
        (&["--pod", "nosuch"], "pod nosuch"),
    ] {
        let address = node.agent.address().to_string();
        let mut command = Command::new(binary());
        let output = command.args(["advise", "--address", &address]).args(filters).output();
        let output = output.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(&format!("no running container of {named} on this")), "{error}");
        assert_eq!(output.status.code(), Some(69), "{error}");
    }
    assert_eq!(node.advise("table", &["--kind=kernel-slice-expiry"]), "no such findings\n");
}

/// Asserts that the output is a strategic-merge patch that changes the named container.
fn assert_a_patch_is_one(node: &Node) {
    let text = node.advise("patch", &["--namespace", "shop"]);
    assert!(text.starts_with("---\n# Pod shop/cart\n"), "{text}");
    let patch: Value = serde_saphyr::from_str(&text).unwrap();
    let typed: Deployment = serde_json::from_value(patch.clone()).unwrap();
    let back = serde_json::to_value(&typed).unwrap();
    let spec = "/spec/template/spec";
    assert_eq!(back.pointer(spec), patch.pointer(spec), "a field that Kubernetes does not know");

    // Merge like the API server: lists of containers by name, keeping everything the patch does not
    // name.
    let resources =
        json!({ "limits": { "memory": "64Mi" }, "requests": { "memory": "1Mi", "cpu": "1" } });
    let (main, other) = (
        json!({ "name": "main", "image": "a", "resources": resources }),
        json!({ "name": "other" }),
    );
    let workload = json!({ "spec": { "template": { "spec": { "containers": [other, main] } } } });
    let mut workload: Deployment = serde_json::from_value(workload).unwrap();
    workload.merge_from(typed);
    let containers = workload.spec.unwrap().template.spec.unwrap().containers;
    let names: Vec<_> = containers.iter().map(|container| &*container.name).collect();
    assert_eq!((names, containers[0].resources.is_none()), (vec!["other", "main"], true));
    let resources = serde_json::to_value(containers[1].resources.as_ref().unwrap()).unwrap();
    assert_eq!(resources["requests"], json!({ "memory": MEMORY_BYTES.to_string(), "cpu": "1" }));
    assert_eq!(
        (&resources["limits"]["memory"], containers[1].image.as_deref()),
        (&"64Mi".into(), Some("a"))
    );
}

#[test]
fn without_an_agent_the_error_names_the_address() {
    let output =
        Command::new(binary()).args(["advise", "--address", "127.0.0.1:1"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(69), "{text}");
    assert!(text.contains("no agent answers at 127.0.0.1:1"), "{text}");
}
