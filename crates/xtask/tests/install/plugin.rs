//! The kubectl plugin, with the rights that its documentation names and no others.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::agent;
use xtask::cluster::{Cluster, ClusterError, NODE_NAME, wait_until, write};
use xtask::cluster::{ensure, pods};
use xtask::{process, workspace};

/// Maximum time for two pods to start and get advice, on an emulated node.
const TIMEOUT: Duration = Duration::from_secs(600);
const USER: &str = "system:serviceaccount:default:oncall";
/// The rules of deploy/docs/views.md in the namespace of the targets and in that of the agents.
const RULES: [(&str, &str); 2] = [
    (
        "default",
        r#"[{apiGroups: [""], resources: [pods], verbs: [get, list]},
          {apiGroups: [apps], resources: [deployments], verbs: [get]}]"#,
    ),
    (
        agent::NAMESPACE,
        r#"[{apiGroups: [""], resources: [pods], verbs: [get, list]},
          {apiGroups: [""], resources: [pods/portforward], verbs: [create]}]"#,
    ),
];

/// Each command of the plugin answers a user with the documented rights for a pod, a workload and
/// the node, and names the missing right to one without them.
pub(super) fn commands_need_only_the_documented_rights(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    pods::ensure_pods(cluster)?;
    let values = ["extraEnv[0].name=CPUWARDEN_ADVICE_AFTER", "extraEnv[0].value=20s"];
    let ready = agent::install(cluster, &values)?;
    create_workload(cluster)?;
    let plugin = Plugin::new(cluster)?;

    let refused = plugin.run(&["advise", "pod/throttled"]).err().map(|error| error.to_string());
    let reason = refused.unwrap_or_default();
    ensure(reason.contains("pods \"throttled\" is forbidden"), || format!("no right: {reason}"))?;
    grant(cluster)?;

    let advised = advises_the_pod_and_the_workload(cluster, &plugin)?;
    let frames = shows(cluster, &plugin, "pod/throttled", &["throttled"])?;
    shows(cluster, &plugin, "deploy/checkout", &["checkout-"])?;
    let node = format!("node/{NODE_NAME}");
    let refused = plugin.run(&["pins", &node]).err().map(|error| error.to_string());
    let reason = refused.unwrap_or_default();
    ensure(reason.contains("nodes") && reason.contains("forbidden"), || {
        format!("a node without the right to read nodes: {reason}")
    })?;
    grant_nodes(cluster)?;
    let both = ["throttled", "checkout-"];
    shows(cluster, &plugin, &node, &both)?;
    let advice = plugin.run(&["advise", "--output=json", &node])?;
    let names_all = both.iter().all(|pod| advice.contains(&format!("\"pod\": \"{pod}")));
    ensure(names_all, || format!("{node}: {advice}"))?;
    let requests = requests(cluster)?;
    // Later tests need free CPUs.
    cluster.kubectl(&["delete", "deployment", "checkout", "--wait=false"])?;
    Ok(format!("{ready}; advice {advised}; {frames} seconds saved; requests: {requests}"))
}

/// Two pods of a deployment that are throttled.
fn create_workload(cluster: &Cluster) -> Result<(), ClusterError> {
    let busy = "while true; do true; done";
    let limits = "{requests: {cpu: 10m}, limits: {cpu: 300m}}";
    let pod = pods::pod("checkout", "", &pods::container("app", busy, limits));
    let (_, spec) = pod.split_once("spec:\n").unwrap_or_default();
    let spec: String = spec.lines().map(|line| format!("    {line}\n")).collect();
    cluster.apply(&format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: checkout, namespace: default}}\n\
         spec:\n  replicas: 2\n  selector: {{matchLabels: {{app: checkout}}}}\n  template:\n    \
         metadata: {{labels: {{app: checkout}}}}\n    spec:\n{spec}"
    ))?;
    wait_until("two pods of the deployment", TIMEOUT, || {
        let deployment = cluster.get(&["deployment", "checkout"])?;
        Ok(deployment["status"]["readyReplicas"] == 2)
    })
    .map(drop)
}

/// Gives the user the documented rights.
fn grant(cluster: &Cluster) -> Result<(), ClusterError> {
    for (namespace, rules) in RULES {
        cluster.apply(&format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n\
             metadata: {{name: oncall, namespace: {namespace}}}\nrules: {rules}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
             metadata: {{name: oncall, namespace: {namespace}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: oncall}}\n\
             subjects: [{{kind: ServiceAccount, name: oncall, namespace: default}}]\n"
        ))?;
    }
    Ok(())
}

/// Gives the user the right to read nodes.
fn grant_nodes(cluster: &Cluster) -> Result<(), ClusterError> {
    let roles = cluster.apply(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: oncall}\n\
         rules: [{apiGroups: [\"\"], resources: [nodes], verbs: [get]}]\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n\
         metadata: {name: oncall}\n\
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: oncall}\n\
         subjects: [{kind: ServiceAccount, name: oncall, namespace: default}]\n",
    );
    roles.map(drop)
}

/// `top`, `doctor`, `pins` and `snapshot` of a target answer; `pods` are in the table and in the
/// recording. Returns the number of recorded seconds.
fn shows(
    cluster: &Cluster,
    plugin: &Plugin,
    target: &str,
    pods: &[&str],
) -> Result<usize, ClusterError> {
    let table = plugin.run(&["top", "--once", target])?;
    // The middle of a long name is cut.
    let has_row = |pod: &&str| table.contains(&format!("default/{}", pod.get(..2).unwrap_or(pod)));
    ensure(pods.iter().all(has_row), || format!("top {target}: {table}"))?;
    // For a workload, an object has the answers by node.
    let of_node = |mut answer: Value| {
        if target.starts_with("deploy/") {
            answer.get_mut(NODE_NAME).map(Value::take).unwrap_or_default()
        } else {
            answer
        }
    };
    let doctor = of_node(json_of(&plugin.findings(&["doctor", "--json", target])?)?);
    ensure(doctor["findings"].is_array(), || format!("doctor {target}: {doctor}"))?;
    let pins = of_node(json_of(&plugin.run(&["pins", "--json", target])?)?);
    ensure(pins.as_array().is_some_and(Vec::is_empty), || format!("pins {target}: {pins}"))?;
    saves_a_recording(cluster, plugin, target, pods)
}

/// Returns the time after which the workload had advice.
fn advises_the_pod_and_the_workload(
    cluster: &Cluster,
    plugin: &Plugin,
) -> Result<String, ClusterError> {
    let mut patch = String::new();
    let took = wait_until("advice on the workload", TIMEOUT, || {
        patch = plugin.run(&["advise", "--output=patch", "deploy/checkout"])?;
        Ok(!patch.is_empty())
    })?;
    let text = plugin.run(&["advise", "deploy/checkout"])?;
    for part in ["Deployment default/checkout on 1 node", "app:  2 pods", "in 2 of 2"] {
        ensure(text.contains(part), || format!("{part:?} is not in: {text}"))?;
    }
    // The API server accepts the change.
    let path = cluster.work().join("advice.yaml");
    write(&path, &patch)?;
    cluster.kubectl(&[
        "patch",
        "deployment",
        "checkout",
        "--dry-run=server",
        "--patch-file",
        &path.display().to_string(),
    ])?;
    let report = json_of(&plugin.run(&["advise", "--output=json", "pod/throttled"])?)?;
    let rows = report["containers"].as_array().map_or(0, Vec::len);
    let row = &report["containers"][0];
    ensure(rows == 1 && row["pod"] == "throttled", || format!("pod/throttled: {report}"))?;
    Ok(format!("after {:.0} s", took.as_secs_f64()))
}

/// Returns the number of recorded seconds.
fn saves_a_recording(
    cluster: &Cluster,
    plugin: &Plugin,
    target: &str,
    pods: &[&str],
) -> Result<usize, ClusterError> {
    let file = cluster.work().join("incident.cpuwarden");
    let path = file.display().to_string();
    plugin.run(&["snapshot", "--last=30s", "--output", &path, target])?;
    let mut replay = Command::new(&plugin.agent);
    replay.args(["replay", &path, "--output=json"]);
    let text = String::from_utf8_lossy(&process::output_of(&mut replay)?).into_owned();
    for pod in pods {
        ensure(text.contains(&format!("\"pod\":\"{pod}")), || {
            format!("{pod} is not in the recording of {target}")
        })?;
    }
    Ok(text.lines().count())
}

/// The user's requests in the audit log, by verb and resource.
fn requests(cluster: &Cluster) -> Result<String, ClusterError> {
    let log = cluster.audit_log()?;
    let of_user = log.iter().filter(|event| event["user"]["username"] == USER);
    let of_user = of_user.filter(|event| event["objectRef"]["resource"].is_string());
    let request = |event: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (object, verb) = (&event["objectRef"], text(&event["verb"]));
        let resource = [text(&object["resource"]), text(&object["subresource"])].join("/");
        format!("{verb} {}", resource.trim_end_matches('/'))
    };
    let mut requests: Vec<String> = of_user.map(request).collect();
    requests.sort();
    requests.dedup();
    let known =
        ["create pods/portforward", "get deployments", "get nodes", "get pods", "list pods"];
    // kubectl may try WebSockets first, for which the right is missing, and then falls back.
    let others = requests.iter().filter(|request| *request != "get pods/portforward");
    ensure(others.eq(known.iter()), || format!("{requests:?}"))?;
    Ok(requests.join(", "))
}

/// The plugin as a user's kubectl runs it: a program in `PATH`, with a kubeconfig.
struct Plugin {
    kubectl: PathBuf,
    path: OsString,
    kubeconfig: PathBuf,
    /// The same program under its own name.
    agent: PathBuf,
}

impl Plugin {
    /// Builds the plugin, and a kubeconfig of a user without rights.
    fn new(cluster: &Cluster) -> Result<Self, ClusterError> {
        let agent = build()?;
        let directory = cluster.work().join("plugin");
        std::fs::create_dir_all(&directory).map_err(ClusterError::io(&directory))?;
        let program = directory.join("kubectl-cpuwarden");
        std::fs::copy(&agent, &program).map_err(ClusterError::io(&program))?;
        let kubeconfig = directory.join("kubeconfig");
        write(&kubeconfig, user(cluster)?.to_string())?;
        let path = [directory.as_os_str(), OsStr::new(":"), &cluster.path()?].into_iter().collect();
        Ok(Self { kubectl: cluster.program("kubectl"), path, kubeconfig, agent })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut kubectl = Command::new(&self.kubectl);
        kubectl.arg("cpuwarden").args(arguments);
        kubectl.env("PATH", &self.path).env("KUBECONFIG", &self.kubeconfig);
        kubectl
    }

    /// Standard output of a command that succeeds.
    fn run(&self, arguments: &[&str]) -> Result<String, ClusterError> {
        let output = process::output_of(&mut self.command(arguments))?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Standard output of `doctor`, which ends with status 2 if it found something.
    fn findings(&self, arguments: &[&str]) -> Result<String, ClusterError> {
        let output = process::output_with(&mut self.command(arguments), &[0, 2])?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }
}

/// Builds this checkout's program with all its commands.
fn build() -> Result<PathBuf, ClusterError> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(workspace::root()).args(["build", "--quiet", "--bin", "cpuwarden"]);
    process::run(&mut cargo)?;
    Ok(workspace::target_dir().join("debug/cpuwarden"))
}

/// The administrator's kubeconfig with the token of a service account in the place of its user.
fn user(cluster: &Cluster) -> Result<Value, ClusterError> {
    cluster.apply(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: oncall, namespace: default}\n",
    )?;
    let token = cluster.kubectl(&["create", "token", "oncall", "--namespace", "default"])?;
    let text = cluster.kubectl(&["config", "view", "--minify", "--raw", "--output=json"])?;
    let mut config = json_of(&text)?;
    config["users"][0]["user"] = json!({"token": token.trim()});
    Ok(config)
}

fn json_of(text: &str) -> Result<Value, ClusterError> {
    serde_json::from_str(text).map_err(|error| ClusterError::Unexpected(format!("{error}: {text}")))
}
