//! The kubectl plugin against a running agent. The cluster is a script in the place of kubectl, which
//! answers what a cluster would and records each call; `cargo xtask cluster test` runs the plugin
//! against a real one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{
    Agent, Kubelet, Qos, RealTree, Running, Workload, binary, eventually, pod_list, running_pod,
    write_program,
};

const NODE: &str = "node-1";
/// The two pods of a Deployment, and one of nobody.
const PODS: [(&str, &str); 3] = [("web-1", "web"), ("web-2", "web"), ("other", "other")];

/// A node with three throttled pods and an agent, and a cluster that knows them.
struct Cluster {
    dir: tempfile::TempDir,
    agent: Agent,
    _running: Vec<Running>,
    _kubelet: Kubelet,
    _tree: RealTree,
}

impl Cluster {
    fn new() -> Self {
        let tree = RealTree::new();
        let uid = |number: usize| format!("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c002{number}");
        let id = |number: usize| format!("{}{number}", "b".repeat(63));
        let list: Vec<Value> = PODS
            .iter()
            .enumerate()
            .map(|(number, (name, _))| running_pod(&uid(number), "shop", name, &id(number)))
            .collect();
        let kubelet = Kubelet::start(pod_list(&list));
        let running = (0..PODS.len()).map(|number| {
            let container = tree.pod(Qos::Burstable, &uid(number)).child(&id(number));
            container.set_quota_usec(10_000, 100_000);
            container.set_memory_limit_bytes(64 << 20);
            container.spawn(&Workload::Spin { threads: 1 })
        });
        let running = running.collect();
        let mut flags = kubelet.flags();
        flags.extend([
            format!("--kubepods={}", tree.kubepods().path().display()),
            "--sched-trace=off".to_owned(),
        ]);
        let agent = Agent::start(&flags);
        let is_throttled = |row: &Value| {
            let findings = row["findings"].as_array().unwrap();
            findings.iter().any(|found| found["kind"] == "throttled-by-own-quota")
                && findings.iter().any(|found| !found["patch"].is_null())
        };
        eventually("findings and a change for all three", || {
            let report: Value = serde_json::from_str(&agent.get("/api/v1/advice").1).unwrap();
            let rows = report["containers"].as_array().unwrap();
            rows.iter().filter(|row| is_throttled(row)).count() == PODS.len()
        });
        let cluster = Self {
            dir: tempfile::tempdir().unwrap(),
            _running: running,
            _kubelet: kubelet,
            _tree: tree,
            agent,
        };
        cluster.write_objects();
        cluster
    }

    fn write_objects(&self) {
        let pod = |(name, app): &(&str, &str)| {
            json!({
                "kind": "Pod",
                "metadata": { "namespace": "shop", "name": name, "labels": { "app": app } },
                "spec": { "nodeName": NODE },
                "status": { "phase": "Running" },
            })
        };
        let pods: Vec<Value> = PODS.iter().filter(|(_, app)| *app == "web").map(pod).collect();
        let agent = json!({
            "metadata": { "namespace": "cpuwarden", "name": "cpuwarden-x" },
            "spec": {
                "nodeName": NODE,
                "containers": [{ "ports": [{ "name": "metrics", "containerPort": 9753 }] }],
            },
            "status": { "phase": "Running" },
        });
        let deployment = json!({
            "kind": "Deployment",
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": { "selector": { "matchLabels": { "app": "web" } } },
        });
        let nobody = json!({ "kind": "ConfigMap", "metadata": { "namespace": "shop" } });
        for (file, object) in [
            ("deployment", deployment),
            ("pod", pod(&PODS[2])),
            ("pods", json!({ "items": pods })),
            ("agents", json!({ "items": [agent] })),
            ("configmap", nobody),
            ("none", json!({ "items": [] })),
        ] {
            fs::write(self.dir.path().join(file), object.to_string()).unwrap();
        }
        let address = self.agent.address();
        let dir = self.dir.path().display();
        let script = format!(
            r#"#!/bin/sh
echo "$*" >> {dir}/calls
case "$*" in
*"get --output=json deploy/web") cat {dir}/deployment ;;
*"get --output=json pod/other") cat {dir}/pod ;;
*"get --output=json cm/settings") cat {dir}/configmap ;;
*"get --output=json pods --namespace shop --selector app=web") cat {dir}/pods ;;
*"get --output=json pods --namespace cpuwarden --selector "*) cat {dir}/agents ;;
*"get --output=json pods --namespace elsewhere "*) cat {dir}/none ;;
*"port-forward --address=127.0.0.1 --namespace cpuwarden pod/cpuwarden-x :9753")
    echo "Forwarding from {address} -> 9753"; exec sleep 600 ;;
*) echo "Error from server (NotFound): $*" >&2; exit 1 ;;
esac
"#
        );
        write_program(&self.kubectl(), script.as_bytes());
        symlink(binary(), self.plugin()).unwrap();
    }

    fn kubectl(&self) -> PathBuf {
        self.dir.path().join("kubectl")
    }

    fn plugin(&self) -> PathBuf {
        self.dir.path().join("kubectl-cpuwarden")
    }

    /// Runs the plugin, as kubectl does.
    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(self.plugin());
        command.args(args).arg("--kubectl").arg(self.kubectl()).output().unwrap()
    }

    /// Standard output of the plugin, which must succeed.
    fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The calls of kubectl so far, which are then forgotten.
    fn calls(&self) -> String {
        let path = self.dir.path().join("calls");
        let calls = fs::read_to_string(&path).unwrap();
        fs::remove_file(path).unwrap();
        calls
    }
}

#[test]
fn the_plugin_shows_a_workload_a_pod_or_the_reason_why_not() {
    let cluster = Cluster::new();
    assert_findings_of_all_pods_are_merged(&cluster);
    assert_a_pod_stands_for_itself(&cluster);
    assert_the_node_of_a_pod_is_shown(&cluster);
    assert_errors_name_the_remedy(&cluster);
    eventually("the end of each forwarded port", || {
        let dir = cluster.dir.path().to_str().unwrap();
        let list = Command::new("ps").args(["-eo", "args="]).output().unwrap();
        !String::from_utf8_lossy(&list.stdout).lines().any(|line| line.contains(dir))
    });
}

fn assert_findings_of_all_pods_are_merged(cluster: &Cluster) {
    let text = cluster.text(&["advise", "deploy/web"]);
    assert!(text.starts_with("Deployment shop/web on 1 node\nmain: 2 pods\n"), "{text}");
    assert!(text.contains("  ! throttled-by-own-quota in 2 of 2, most in web-"), "{text}");
    let command = text.lines().find(|line| line.starts_with("kubectl ")).unwrap();
    assert!(
        command.starts_with("kubectl --namespace shop patch deployment web --patch '"),
        "{text}"
    );
    // Nothing but the object, its pods, the agent and the port: the user needs no further right.
    let calls = cluster.calls();
    let verbs: Vec<&str> = calls.lines().map(|call| call.split(' ').next().unwrap()).collect();
    assert_eq!(verbs, ["get", "get", "get", "port-forward"], "{calls}");

    let json: Value =
        serde_json::from_str(&cluster.text(&["advise", "deploy/web", "-o", "json"])).unwrap();
    assert_eq!((&json["kind"], &json["name"]), (&"Deployment".into(), &"web".into()));
    let findings = json["containers"][0]["findings"].as_array().unwrap();
    let merged = findings.iter().find(|one| one["kind"] == "throttled-by-own-quota").unwrap();
    assert_eq!((&merged["pods"], &merged["of"]), (&2.into(), &2.into()), "{merged}");
    let patch: Value =
        serde_saphyr::from_str(&cluster.text(&["advise", "deploy/web", "-o", "patch"])).unwrap();
    assert_eq!(patch["spec"]["template"]["spec"]["containers"][0]["name"], "main");
}

fn assert_a_pod_stands_for_itself(cluster: &Cluster) {
    cluster.calls();
    let text = cluster.text(&["advise", "other", "--context=prod", "-n", "shop"]);
    let heads: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    assert!(heads.len() == 1 && heads[0].starts_with("shop/other/main"), "{text}");
    let calls = cluster.calls();
    assert!(
        calls.lines().all(|call| call.starts_with("--context=prod --namespace=shop ")),
        "{calls}"
    );
}

fn assert_the_node_of_a_pod_is_shown(cluster: &Cluster) {
    let table = cluster.text(&["top", "other", "--once"]);
    assert!(table.contains("other") && !table.contains("web-1"), "{table}");
    let pins: Value = serde_json::from_str(&cluster.text(&["pins", "other", "--json"])).unwrap();
    assert_eq!(pins, json!([]));
    assert!(cluster.text(&["pins", "other"]).contains("no pod on this node"));
    // The exit code is that of the worst finding, as of the agent's own command.
    let output = cluster.run(&["doctor", "other", "--json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    let code = ["good", "lacking", "broken"].iter().position(|level| report["worst"] == *level);
    assert_eq!(output.status.code().map(|code| code as usize), code, "{report}");
    assert!(report["findings"].as_array().unwrap().len() > 5, "{report}");
    let file = cluster.dir.path().join("incident");
    let path = file.to_str().unwrap();
    let text = cluster.text(&["snapshot", "other", "--last=1m", "-o", path]);
    assert!(text.contains("bytes; open it with cpuwarden replay"), "{text}");
    let replay = Command::new(binary()).args(["replay", path, "--once"]).output().unwrap();
    let replay = String::from_utf8(replay.stdout).unwrap();
    assert!(replay.contains("shop/other") && replay.contains("shop/web-1"), "{replay}");
}

fn assert_errors_name_the_remedy(cluster: &Cluster) {
    let cases: [(&[&str], &str); 5] = [
        (
            &["snapshot", "other", "-o", "/nonexistent/file"],
            "--output: cannot write /nonexistent/file",
        ),
        (&["advise", "deploy/missing"], "Error from server (NotFound)"),
        (&["advise", "cm/settings"], "has no selector of pods; use a pod, a Deployment"),
        (&["advise", "other", "--agent-namespace=elsewhere"], "set --agent-namespace"),
        (&["advise", "other", "--tls-cert=/nonexistent", "--server-name=a"], ""),
    ];
    for (args, expected) in cases {
        let output = cluster.run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(expected), "{args:?}: {errors}");
        assert_eq!(errors.trim_end().lines().count(), 1, "{args:?}: {errors}");
    }
    let output = Command::new(cluster.plugin())
        .args(["advise", "other"])
        .env("PATH", "/nonexistent")
        .output();
    let errors = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(errors.contains("install kubectl, or set --kubectl"), "{errors}");
}
