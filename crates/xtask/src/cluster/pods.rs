//! Pods of every kind, next to which the agent is installed.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::session::{Cluster, wait_until};
use super::{ClusterError, ensure};

const IMAGE: &str = "localhost/workload:test";
/// Maximum time for the workload to start. The node is emulated.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Minimum number of pods beside the agent.
const MIN_PODS: usize = 20;

/// Static pods: file name and manifest.
pub(super) fn static_pods() -> Vec<(&'static str, String)> {
    ["static-a", "static-b"]
        .map(|name| {
            (name, pod(name, "", &container("main", "sleep 1000000", "{requests: {cpu: 10m}}")))
        })
        .map(|(name, manifest)| {
            (if name == "static-a" { "static-a.yaml" } else { "static-b.yaml" }, manifest)
        })
        .into()
}

/// Creates the pods, and waits until their containers run. Returns their figures.
///
/// # Errors
/// A pod does not run in time, or a failed command.
pub fn create(cluster: &Cluster) -> Result<String, ClusterError> {
    // Without its token no pod is admitted.
    wait_until("default service account", TIMEOUT, || {
        Ok(cluster.kubectl(&["get", "serviceaccount", "default"]).is_ok())
    })?;
    cluster.apply(&manifests())?;
    let mut last = String::new();
    let took = wait_until("running pods", TIMEOUT, || {
        let pods = cluster.get(&["pods"])?;
        let waiting: Vec<_> = items(&pods).filter(|pod| !is_running(pod)).map(name).collect();
        last = waiting.join(", ");
        Ok(items(&pods).count() >= MIN_PODS && waiting.is_empty())
    });
    let took =
        took.map_err(|error| ClusterError::Unexpected(format!("{error}: {last} do not run")))?;
    debug_container(cluster)?;
    let restarts = wait_until("restarted container", TIMEOUT, || {
        let pod = cluster.get(&["pod", "restarted"])?;
        Ok(pod["status"]["containerStatuses"][0]["restartCount"].as_u64() >= Some(1)
            && is_running(&pod))
    })?;
    let count = items(&cluster.get(&["pods"])?).count();
    ensure(count >= MIN_PODS, || format!("{count} pods"))?;
    Ok(format!(
        "{count} pods run after {:.0} s, restart after {:.0} s",
        took.as_secs_f64(),
        restarts.as_secs_f64()
    ))
}

/// Creates the pods, unless a test has created them in this cluster.
///
/// # Errors
/// As for [`create`].
pub fn ensure_pods(cluster: &Cluster) -> Result<(), ClusterError> {
    let exist = items(&cluster.get(&["pods"])?).count() >= MIN_PODS;
    if exist { Ok(()) } else { create(cluster).map(drop) }
}

/// Adds an ephemeral container and waits until it runs.
fn debug_container(cluster: &Cluster) -> Result<(), ClusterError> {
    let arguments =
        ["debug", "burstable-0", "--image", IMAGE, "--container=debugger", "--quiet", "--"];
    cluster.kubectl(&[&arguments[..], &["/bin/busybox", "sleep", "1000000"]].concat())?;
    wait_until("ephemeral container", TIMEOUT, || {
        let pod = cluster.get(&["pod", "burstable-0"])?;
        Ok(pod["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_object())
    })?;
    Ok(())
}

/// All containers of a pod that run, of each kind.
pub fn running_containers(pod: &Value) -> impl Iterator<Item = &str> {
    let kinds = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let statuses = kinds.into_iter().filter_map(|kind| pod["status"][kind].as_array()).flatten();
    statuses
        .filter(|status| status["state"]["running"].is_object())
        .filter_map(|status| status["name"].as_str())
}

/// Id of a pod's only container.
///
/// # Errors
/// The pod does not exist, or has no container yet.
pub fn container_id(cluster: &Cluster, pod: &str) -> Result<String, ClusterError> {
    let pod = cluster.get(&["pod", pod])?;
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str();
    let id = id.and_then(|id| id.strip_prefix("containerd://")).map(str::to_owned);
    id.ok_or_else(|| ClusterError::Unexpected(format!("no container of {}", name(&pod))))
}

/// Directory in the node of a pod's only container; on cgroup v1 that of the controller `cpu`.
///
/// # Errors
/// As for [`container_id`]; the container has no cgroup.
pub fn container_cgroup(cluster: &Cluster, pod: &str) -> Result<String, ClusterError> {
    let id = container_id(cluster, pod)?;
    let script = format!(
        "find /sys/fs/cgroup/kubepods.slice /sys/fs/cgroup/cpu/kubepods.slice -type d \
         -name 'cri-containerd-{id}.scope' 2> /dev/null; true"
    );
    let found = cluster.in_node(&script)?;
    ensure(!found.trim().is_empty(), || format!("no cgroup of {id}"))?;
    Ok(found.trim().to_owned())
}

/// The items of a list.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_running(pod: &Value) -> bool {
    let containers = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    pod["status"]["phase"] == "Running"
        && statuses.filter(|status| status["state"]["running"].is_object()).count() == containers
}

/// All limits are at least 300m: emulated, runc needs seconds of CPU time in the new cgroup to
/// start a container, and with less the runtime's deadline passes.
fn manifests() -> String {
    let mut text = String::new();
    let mut add = |name: &str, extra: &str, containers: &[String]| {
        let _ = write!(text, "---\n{}", pod(name, extra, &containers.concat()));
    };
    let sleep = |name: &str, resources: &str| container(name, "sleep 1000000", resources);
    for number in 0..6 {
        add(&format!("best-effort-{number}"), "", &[sleep("main", "{}")]);
    }
    for number in 0..5 {
        let limited = sleep("limited", "{requests: {cpu: 10m}, limits: {cpu: 500m, memory: 64Mi}}");
        add(
            &format!("burstable-{number}"),
            "",
            &[limited, sleep("free", "{requests: {cpu: 10m}}")],
        );
    }
    for number in 0..3 {
        let equal = "{requests: {cpu: 300m, memory: 64Mi}, limits: {cpu: 300m, memory: 64Mi}}";
        add(&format!("guaranteed-{number}"), "", &[sleep("main", equal)]);
    }
    let setup = container("setup", "true", "{}");
    let proxy = format!("{}    restartPolicy: Always\n", sleep("proxy", "{requests: {cpu: 10m}}"));
    let init = format!("  initContainers:\n{setup}{proxy}");
    for number in 0..2 {
        add(&format!("sidecar-{number}"), &init, &[sleep("main", "{}")]);
    }
    let busy = "while true; do true; done";
    add("throttled", "", &[container("busy", busy, "{requests: {cpu: 10m}, limits: {cpu: 300m}}")]);
    // Ends once, then stays: the file is in a volume, which outlives the container.
    let once = "test -e /state/seen && sleep 1000000; echo > /state/seen; exit 1";
    let volume = "  volumes: [{name: state, emptyDir: {}}]\n";
    let mounted = format!(
        "{}    volumeMounts: [{{name: state, mountPath: /state}}]\n",
        container("main", once, "{}")
    );
    add("restarted", volume, &[mounted]);
    text
}

/// A pod with further lines of its spec and its containers.
pub fn pod(name: &str, extra: &str, containers: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  \
         terminationGracePeriodSeconds: 0\n  enableServiceLinks: false\n  automountServiceAccountToken: false\n{extra}  \
         containers:\n{containers}"
    )
}

/// A container that runs a shell script.
pub fn container(name: &str, script: &str, resources: &str) -> String {
    // An applet of busybox by its name: the image has no other files.
    let script = script.replace("sleep ", "/bin/busybox sleep ");
    format!(
        "  - name: {name}\n    image: {IMAGE}\n    imagePullPolicy: Never\n    \
         command: [/bin/busybox, sh, -c, '{script}']\n    resources: {resources}\n"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn there_are_pods_of_every_kind_and_at_least_twenty() {
        let text = manifests();
        assert!(text.matches("kind: Pod").count() + static_pods().len() >= MIN_PODS, "{text}");
        for kind in ["initContainers", "restartPolicy: Always", "limits", "resources: {}"] {
            assert!(text.contains(kind), "{kind}");
        }
    }

    #[test]
    fn containers_that_run_are_found_in_every_list() {
        let running = |name: &str| json!({"name": name, "state": {"running": {}}});
        let pod = json!({"status": {
            "containerStatuses": [running("main"), {"name": "done", "state": {"terminated": {}}}],
            "initContainerStatuses": [running("proxy")],
            "ephemeralContainerStatuses": [running("debugger")],
        }});
        assert_eq!(running_containers(&pod).collect::<Vec<_>>(), ["main", "proxy", "debugger"]);
    }
}
