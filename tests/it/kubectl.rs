//! The kubectl plugin against a running agent. The cluster is a script in the place of kubectl,
//! which answers what a cluster would and records each call; `cargo xtask cluster test` runs the
//! plugin against a real one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::http;
use crate::support::{
    Agent, Kubelet, Qos, RealTree, Running, Workload, binary, eventually, pod_list, running_pod,
    write_program,
};
use crate::terminal::Tmux;

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
/// A pod that an agent measures.
struct Pod {
    name: &'static str,
    app: &'static str,
    /// Whether the pod is on the other node.
    is_other: bool,
}

const fn pod(name: &'static str, app: &'static str, is_other: bool) -> Pod {
    Pod { name, app, is_other }
}

/// Two pods of a Deployment, one whose name begins as theirs, one of nobody, and those of a
/// Deployment on several nodes.
const PODS: [Pod; 6] = [
    pod("web-1", "web", false),
    pod("web-2", "web", false),
    pod("web-10", "admin", false),
    pod("other", "other", false),
    pod("spread-1", "spread", false),
    pod("spread-2", "spread", true),
];

/// Two nodes with throttled pods and an agent each, and a cluster that knows them and a third node,
/// whose agent does not answer.
struct Cluster {
    dir: tempfile::TempDir,
    agents: [Agent; 2],
    _running: Vec<Running>,
    _kubelets: Vec<Kubelet>,
    _tree: RealTree,
}

impl Cluster {
    fn new() -> Self {
        let tree = RealTree::beside_others();
        let uid = |number: usize| format!("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c002{number}");
        let id = |number: usize| format!("{}{number}", "b".repeat(63));
        let running = (0..PODS.len()).map(|number| {
            let container = tree.pod(Qos::Burstable, &uid(number)).child(&id(number));
            container.set_quota_usec(2_000, 100_000);
            container.set_memory_limit_bytes(64 << 20);
            container.spawn(&Workload::Spin { threads: 1 })
        });
        let running = running.collect();
        // Both agents see the cgroups of this machine; each knows the pods of its own kubelet.
        let kubelet = |is_other: bool| {
            let pods = PODS.iter().enumerate().filter(|(_, pod)| pod.is_other == is_other);
            let listed =
                pods.map(|(number, pod)| running_pod(&uid(number), "shop", pod.name, &id(number)));
            Kubelet::start(pod_list(&listed.collect::<Vec<Value>>()))
        };
        let kubelets = [kubelet(false), kubelet(true)];
        let agents = kubelets.each_ref().map(|kubelet| {
            let mut flags = kubelet.flags();
            flags.extend([
                format!("--kubepods={}", tree.kubepods().path().display()),
                "--sched-trace=off".to_owned(),
            ]);
            Agent::start(&flags)
        });
        let is_throttled = |row: &Value| {
            let findings = row["findings"].as_array().unwrap();
            findings.iter().any(|found| found["kind"] == "throttled-by-own-quota")
                && findings.iter().any(|found| !found["patch"].is_null())
        };
        eventually("findings and a change for all pods", || {
            let known = agents.iter().map(|agent| {
                let report: Value = serde_json::from_str(&agent.get("/api/v1/advice").1).unwrap();
                let rows = report["containers"].as_array().unwrap();
                rows.iter().filter(|row| row["namespace"] == "shop" && is_throttled(row)).count()
            });
            known.sum::<usize>() == PODS.len()
        });
        let cluster = Self {
            dir: tempfile::tempdir().unwrap(),
            _running: running,
            _kubelets: kubelets.into(),
            _tree: tree,
            agents,
        };
        cluster.write_objects();
        cluster.write_program();
        cluster
    }

    fn write_objects(&self) {
        let pod = |name: &str, app: &str, node: &str| {
            json!({
                "kind": "Pod",
                "metadata": { "namespace": "shop", "name": name, "labels": { "app": app } },
                "spec": { "nodeName": node },
                "status": { "phase": "Running" },
            })
        };
        let pods_of = |app: &str| -> Vec<Value> {
            let pods = PODS.iter().filter(|pod| pod.app == app);
            pods.map(|one| pod(one.name, app, if one.is_other { NODES[1] } else { NODES[0] }))
                .collect()
        };
        let mut spread = pods_of("spread");
        spread.push(pod("spread-3", "spread", NODES[2]));
        let agent = |node: &str| {
            json!({
                "metadata": { "namespace": "cpuwarden", "name": format!("agent-{node}") },
                "spec": {
                    "nodeName": node,
                    "containers": [{ "ports": [{ "name": "metrics", "containerPort": 9753 }] }],
                },
                "status": { "phase": "Running" },
            })
        };
        let deployment = |name: &str| {
            json!({
                "kind": "Deployment",
                "metadata": { "namespace": "shop", "name": name },
                "spec": { "selector": { "matchLabels": { "app": name } } },
            })
        };
        let mut of_job = pod("other", "other", NODES[0]);
        of_job["metadata"]["ownerReferences"] =
            json!([{ "kind": "Job", "name": "report-29412345", "controller": true }]);
        let mut of_another = pod("web-1", "web", NODES[0]);
        of_another["metadata"]["ownerReferences"] =
            json!([{ "kind": "Job", "name": "report-daily-29412345", "controller": true }]);
        let of_shop: Vec<Value> = ["web", "admin", "other"].into_iter().flat_map(pods_of).collect();
        let named = |kind: &str, name: &str| json!({ "kind": kind, "metadata": { "namespace": "shop", "name": name } });
        let nobody = json!({ "kind": "ConfigMap", "metadata": { "namespace": "shop" } });
        for (file, object) in [
            ("deploy-web", deployment("web")),
            ("deploy-spread", deployment("spread")),
            ("pod-other", pod("other", "other", NODES[0])),
            ("pod-web-1", pod("web-1", "web", NODES[0])),
            ("pods-web", json!({ "items": pods_of("web") })),
            ("pods-spread", json!({ "items": spread })),
            ("agents", json!({ "items": NODES.map(agent) })),
            ("namespace", named("Namespace", "shop")),
            ("cronjob", named("CronJob", "report")),
            ("pods-of-jobs", json!({ "items": [of_another, of_job] })),
            ("pods-of-shop", json!({ "items": of_shop })),
            ("configmap", nobody),
            ("none", json!({ "items": [] })),
        ] {
            fs::write(self.dir.path().join(file), object.to_string()).unwrap();
        }
    }

    fn write_program(&self) {
        let [first, second] = self.agents.each_ref().map(Agent::address);
        let silent = http::free_address();
        let dir = self.dir.path().display();
        let script = format!(
            r#"#!/bin/sh
echo "$*" >> {dir}/calls
for last in "$@"; do :; done
case "$*" in
*"get --output=json deploy/web" | *"get --output=json deploy/spread") cat {dir}/deploy-"${{last#*/}}" ;;
*"get --output=json pod/other" | *"get --output=json pod/web-1") cat {dir}/pod-"${{last#*/}}" ;;
*"get --output=json namespace/shop") cat {dir}/namespace ;;
*"get --output=json cronjob/report") cat {dir}/cronjob ;;
*"get --output=json pods --namespace shop --selector job-name") cat {dir}/pods-of-jobs ;;
*"get --output=json pods --namespace shop") cat {dir}/pods-of-shop ;;
*"config view --minify "*) printf shop ;;
*"get --output=json cm/settings") cat {dir}/configmap ;;
*"get --output=json pods --namespace shop --selector app="*) cat {dir}/pods-"${{last#*=}}" ;;
*"get --output=json pods --namespace cpuwarden --selector "*) cat {dir}/agents ;;
*"get --output=json pods --namespace elsewhere "*) cat {dir}/none ;;
*"port-forward --address=127.0.0.1 --namespace cpuwarden pod/agent-"*":9753")
    case "$*" in *node-1\ *) at={first} ;; *node-2\ *) at={second} ;; *) at={silent} ;; esac
    echo $$ > {dir}/forward; echo "Forwarding from $at -> 9753"; exec sleep 600 ;;
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
    assert_nodes_are_merged_and_a_silent_one_is_named(&cluster);
    assert_each_node_of_a_workload_is_shown(&cluster);
    assert_a_pod_stands_for_itself(&cluster);
    assert_a_namespace_a_cron_job_and_the_cluster_have_advice(&cluster);
    assert_the_node_with_most_slowed_pods_is_shown(&cluster);
    assert_the_workloads_of_all_nodes_are_shown(&cluster);
    assert_the_node_of_a_pod_is_shown(&cluster);
    assert_a_view_forwards_its_port_again(&cluster);
    assert_errors_name_the_remedy(&cluster);
    eventually("the end of each forwarded port", || {
        let dir = cluster.dir.path().to_str().unwrap();
        let list = Command::new("ps").args(["-eo", "args="]).output().unwrap();
        !String::from_utf8_lossy(&list.stdout).lines().any(|line| line.contains(dir))
    });
}

fn assert_findings_of_all_pods_are_merged(cluster: &Cluster) {
    let text = cluster.text(&["advise", "deploy/web"]);
    assert!(text.starts_with("Deployment shop/web on 1 node\nmain:  2 pods  "), "{text}");
    assert!(text.contains("  ! throttled-by-own-quota in 2 of 2, most in web-"), "{text}");
    assert!(text.contains(": limit 0."), "in words: {text}");
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

fn assert_nodes_are_merged_and_a_silent_one_is_named(cluster: &Cluster) {
    let output = cluster.run(&["advise", "deploy/spread"]);
    let [text, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{errors}");
    let head = "Deployment shop/spread on 3 nodes, 1 without an answer\nmain:  2 pods  ";
    assert!(text.starts_with(head), "{text}");
    assert!(text.contains("  ! throttled-by-own-quota in 2 of 2, most in spread-"), "{text}");
    assert!(errors.contains("node node-3: no agent answers at "), "{errors}");
    let output = cluster.run(&["advise", "deploy/spread", "-o", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["nodes"], &json["missing"]), (&3.into(), &1.into()), "{json}");
}

fn assert_each_node_of_a_workload_is_shown(cluster: &Cluster) {
    // The view is of one node.
    let output = cluster.run(&["top", "deploy/spread", "--once"]);
    let [table, note] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(table.contains("shop/spread-1") && !table.contains("spread-2"), "{table}");
    assert!(note.contains("this is node-1 with 1 of its 3 pods; --node shows another"), "{note}");
    let table = cluster.text(&["top", "deploy/spread", "--once", "--node=node-2"]);
    assert!(table.contains("shop/spread-2") && !table.contains("spread-1"), "{table}");

    let silent = |output: &Output| {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains("node node-3: no agent answers at "), "{errors}");
        assert!(errors.contains("no answer from 1 of 3 nodes"), "{errors}");
        assert_eq!(output.status.code(), Some(69), "{errors}");
    };
    let output = cluster.run(&["pins", "deploy/spread"]);
    let pins = String::from_utf8_lossy(&output.stdout);
    let heads: Vec<&str> = pins.lines().filter(|line| line.starts_with("node/")).collect();
    assert_eq!(heads, ["node/node-1", "node/node-2"], "{pins}");
    assert_eq!(pins.matches("no pod on this node").count(), 2, "{pins}");
    silent(&output);
    let output = cluster.run(&["pins", "deploy/spread", "--json"]);
    let pins: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(pins, json!({ "node-1": [], "node-2": [] }));
    silent(&output);

    let output = cluster.run(&["doctor", "deploy/web", "--json"]);
    let reports: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reports.as_object().unwrap().len(), 1, "{reports}");
    assert_eq!(output.status.code(), exit_code(&reports["node-1"]), "{reports}");
    let output = cluster.run(&["doctor", "deploy/spread"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("node/node-1\n") && text.contains("\n\nnode/node-2\n"), "{text}");
    silent(&output);

    let file = |name: &str| cluster.dir.path().join(name);
    let path = file("spread.cpuwarden");
    let output =
        cluster.run(&["snapshot", "deploy/spread", "--last=1m", "-o", path.to_str().unwrap()]);
    silent(&output);
    assert!(!path.exists() && !file("spread-node-3.cpuwarden").exists());
    for (name, pod) in [("spread-node-1", "spread-1"), ("spread-node-2", "spread-2")] {
        let path = file(&format!("{name}.cpuwarden"));
        let replay = Command::new(binary()).arg("replay").arg(path).arg("--once").output().unwrap();
        let replay = String::from_utf8(replay.stdout).unwrap();
        assert!(replay.contains(&format!("shop/{pod}")), "{name}: {replay}");
    }
}

/// Exit code of `doctor` for a report: that of the worst finding, as of the agent's own command.
fn exit_code(report: &Value) -> Option<i32> {
    let code = ["good", "lacking", "broken"].iter().position(|level| report["worst"] == *level);
    code.map(|code| code as i32)
}

fn assert_a_pod_stands_for_itself(cluster: &Cluster) {
    cluster.calls();
    let text = cluster.text(&["advise", "other", "--context=prod", "-n", "shop"]);
    assert!(text.starts_with("Pod shop/other\nmain:  "), "{text}");
    let calls = cluster.calls();
    assert!(
        calls.lines().all(|call| call.starts_with("--context=prod --namespace=shop ")),
        "{calls}"
    );
}

fn assert_a_namespace_a_cron_job_and_the_cluster_have_advice(cluster: &Cluster) {
    let of_namespace = cluster.text(&["advise"]);
    assert!(of_namespace.contains(" in 4 of 4 workloads, 4 containers\n"), "{of_namespace}");
    let heads = |text: &str| text.lines().filter(|line| line.contains(" shop/")).count();
    let target = cluster.text(&["advise", "namespace/shop", "--warnings"]);
    assert_eq!((heads(&of_namespace), heads(&target)), (4, 4), "{of_namespace}{target}");
    let of_cluster = cluster.run(&["advise", "-A", "--kind=throttled-by-own-quota"]);
    let text = String::from_utf8(of_cluster.stdout).unwrap();
    assert_eq!(heads(&text), PODS.len(), "{text}");
    let errors = String::from_utf8(of_cluster.stderr).unwrap();
    assert!(errors.contains("node node-3: no agent answers at "), "{errors}");
    let report = cluster.text(&["advise", "cronjob/report"]);
    assert!(report.starts_with("CronJob shop/report, pod other on 1 node\nmain:  "), "{report}");
}

fn assert_the_node_with_most_slowed_pods_is_shown(cluster: &Cluster) {
    let output = cluster.run(&["top", "--once"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.contains("--node shows another: "), "{errors}");
}

fn assert_the_workloads_of_all_nodes_are_shown(cluster: &Cluster) {
    cluster.calls();
    let run = || cluster.run(&["fleet", "-o", "json"]);
    let names = |report: &Value| -> Vec<String> {
        let rows = report["throttled"].as_array().into_iter().flatten();
        rows.map(|row| row["workload"].as_str().unwrap_or_default().to_owned()).collect()
    };
    eventually("throttled workloads of both nodes", || {
        let report: Value = serde_json::from_slice(&run().stdout).unwrap();
        let names = names(&report);
        ["web-1", "spread-2"].iter().all(|pod| names.iter().any(|name| name == pod))
    });
    cluster.calls();
    let output = cluster.run(&["fleet"]);
    let [text, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert_eq!(output.status.code(), Some(69), "one does not answer: {errors}");
    assert!(text.contains("Workloads slowed by CPU limits, cores lost:\nWORKLOAD"), "{text}");
    let source = "from the agents of 3 nodes, 1 without an answer, 2 without the trace, which do not \
                  know by whom: pods that are slowed now; 7 requests to the API server\n";
    assert!(text.ends_with(source), "{text}");
    assert!(errors.contains("no answer from 1 of 3 nodes"), "{errors}");
    let calls = cluster.calls();
    let count = |verb: &str| calls.lines().filter(|call| call.starts_with(verb)).count();
    assert_eq!(
        (count("get "), count("port-forward "), calls.lines().count()),
        (1, 3, 4),
        "{calls}"
    );
}

fn assert_the_node_of_a_pod_is_shown(cluster: &Cluster) {
    let table = cluster.text(&["top", "other", "--once"]);
    assert!(table.contains("shop/other") && !table.contains("web-1"), "{table}");
    let table = cluster.text(&["top", "web-1", "--once"]);
    assert!(table.contains("web-1") && !table.contains("web-10"), "{table}");
    let table = cluster.text(&["top", "deploy/web", "--once"]);
    assert!(table.contains("web-1") && table.contains("web-2"), "{table}");
    assert!(!table.contains("web-10") && !table.contains("shop/other"), "{table}");
    let pins: Value = serde_json::from_str(&cluster.text(&["pins", "other", "--json"])).unwrap();
    assert_eq!(pins, json!([]));
    assert!(cluster.text(&["pins", "other"]).contains("no pod on this node"));
    let output = cluster.run(&["doctor", "other", "--json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    assert_eq!(output.status.code(), exit_code(&report), "{report}");
    assert!(report["findings"].as_array().unwrap().len() > 5, "{report}");
    let file = cluster.dir.path().join("incident");
    let path = file.to_str().unwrap();
    let text = cluster.text(&["snapshot", "other", "--last=1m", "-o", path]);
    assert!(text.contains("bytes; open it with cpuwarden replay"), "{text}");
    let replay = Command::new(binary()).args(["replay", path, "--once"]).output().unwrap();
    let replay = String::from_utf8(replay.stdout).unwrap();
    assert!(replay.contains("shop/other") && replay.contains("shop/web-1"), "{replay}");
}

fn assert_a_view_forwards_its_port_again(cluster: &Cluster) {
    cluster.calls();
    let tmux = Tmux::start(80, 24);
    let (plugin, kubectl) = (cluster.plugin(), cluster.kubectl());
    let command = format!("{} top other --kubectl {}", plugin.display(), kubectl.display());
    tmux.keys(&[&command, "Enter"]);
    let screen = tmux.wait_for("filter: shop/other");
    assert!(screen.contains("shop/other") && !screen.contains("shop/web-1"), "{screen}");
    // As when the agent's container ends.
    let pid = fs::read_to_string(cluster.dir.path().join("forward")).unwrap();
    kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    let again = format!("pod/agent-node-1 {}:9753", cluster.agents[0].address().port());
    let calls = || fs::read_to_string(cluster.dir.path().join("calls")).unwrap();
    eventually("the port to be forwarded again", || calls().contains(&again));
    tmux.keys(&["q"]);
    tmux.wait_for("ready>");
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
