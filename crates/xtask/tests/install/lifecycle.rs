//! Upgrade, rollback and uninstall.

use std::time::Duration;

use super::agent::{self, NAMESPACE};
use super::pin;
use xtask::cluster::{Cluster, ClusterError, NODE_NAME, ensure, pods, wait_until};
use xtask::image;

/// Maximum time for pods to end.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The new pod of an upgrade takes the pins up, as does that of a rollback. Counters begin again,
/// as documented.
pub(super) fn upgrade_and_rollback_keep_pins(cluster: &Cluster) -> Result<String, ClusterError> {
    let values = ["profile=pin", "config.pinning=enforce"];
    let before = pin::pinned_sets(cluster)?;
    let old = agent::pod(cluster)?;
    let took = agent::install(cluster, &[&values[..], &["config.maxSeries=150000"]].concat())?;
    ensure(agent::pod(cluster)? != old, || {
        "an upgrade that changes the configuration has the same pod".into()
    })?;
    pin::await_pins(cluster)?;
    ensure(pin::pinned_sets(cluster)? == before, || {
        "the upgrade moved a pod to other CPUs".into()
    })?;
    cluster.helm(&["rollback", "cpuwarden", "--namespace", NAMESPACE])?;
    let back = agent::await_ready(cluster)?;
    pin::await_pins(cluster)?;
    ensure(pin::pinned_sets(cluster)? == before, || {
        "the rollback moved a pod to other CPUs".into()
    })?;
    Ok(format!("upgrade: {took}; rollback: {back}; pins {before:?} unmoved"))
}

/// Files that stay in the state directory after a drain: locks, and its result.
const LEFT: [&str; 3] = ["drain", "lock", "yield.lock"];
const VANISHED: &str = "vanished-lse";

/// The checkpoint of an agent that is gone names pods that are gone, too. The command of the
/// documentation for such a node succeeds, and leaves no checkpoint.
pub(super) fn drain_succeeds_after_all_pods_vanished(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    agent::install(cluster, &["profile=pin", "config.pinning=enforce"])?;
    pin::await_enforcing(cluster)?;
    cluster.apply(&pin::exclusive_pod(VANISHED, "LSE"))?;
    let pod = format!("pod/{VANISHED}");
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=300s", &pod])?;
    let own = pin::await_exclusive(cluster, VANISHED)?;
    agent::uninstall(cluster)?;
    let checkpoints = "cd /var/lib/cpuwarden && ls";
    let before = cluster.in_node(checkpoints)?;
    // Static pods end with their manifests.
    cluster
        .in_node("mkdir /root/manifests && mv /etc/kubernetes/manifests/*.yaml /root/manifests/")?;
    cluster.kubectl(&["delete", "pods", "--all", "--wait"])?;
    wait_until("node without pods", TIMEOUT, || Ok(pin::cpusets(cluster)?.is_empty()))?;
    let output = drain(cluster);
    let after = cluster.in_node(checkpoints)?;
    cluster
        .in_node("mv /root/manifests/*.yaml /etc/kubernetes/manifests/ && rmdir /root/manifests")?;
    let output = output?;
    let left: Vec<_> = after.split_whitespace().filter(|file| !LEFT.contains(file)).collect();
    ensure(left.is_empty(), || format!("left: {left:?}"))?;
    Ok(format!(
        "CPUs of the pod after {:.0} s; files before: {}; after all pods ended: {}",
        own.as_secs_f64(),
        before.split_whitespace().collect::<Vec<_>>().join(" "),
        output.trim()
    ))
}

/// Runs the command of `deploy/docs/upgrade.md` for a node without an agent. Returns its output.
fn drain(cluster: &Cluster) -> Result<String, ClusterError> {
    let root = cluster.work().join("root.json");
    xtask::cluster::write(&root, r#"{"securityContext": {"runAsUser": 0}}"#)?;
    let node = format!("node/{NODE_NAME}");
    let image = format!("--image=localhost/cpuwarden:{}", image::VERSION);
    let custom = format!("--custom={}", root.display());
    cluster.kubectl(&[
        "debug",
        &node,
        &image,
        "--profile=sysadmin",
        &custom,
        "--",
        "/cpuwarden",
        "drain",
        "--cgroup-root=/host/sys/fs/cgroup",
        "--state-dir=/host/var/lib/cpuwarden",
    ])?;
    let mut name = String::new();
    let mut phase = String::new();
    let is_done = || {
        let list = cluster.get(&["pods"])?;
        let mut pods = pods::items(&list);
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let debugger =
            pods.find(|pod| text(&pod["metadata"]["name"]).starts_with("node-debugger-"));
        if let Some(pod) = debugger {
            (name, phase) = (text(&pod["metadata"]["name"]), text(&pod["status"]["phase"]));
        }
        Ok(["Succeeded", "Failed"].contains(&phase.as_str()))
    };
    wait_until("end of the drain", TIMEOUT, is_done)?;
    let output = cluster.kubectl(&["logs", &name])?;
    ensure(phase == "Succeeded", || format!("the drain failed: {output}"))?;
    cluster.kubectl(&["delete", "pod", &name])?;
    Ok(output)
}

/// The documented way: an upgrade with `drainOnStop`, then the uninstall. No pin, no checkpoint and
/// no object is left; of the state directory, only the lock and the result of the drain.
pub(super) fn uninstall_leaves_nothing(cluster: &Cluster) -> Result<String, ClusterError> {
    agent::install(cluster, &["profile=pin", "config.pinning=enforce", "drainOnStop=true"])?;
    agent::uninstall(cluster)?;
    let online = cluster.in_node("cat /sys/devices/system/cpu/online")?;
    let narrow: Vec<_> = pin::cpusets(cluster)?
        .into_iter()
        .filter(|(_, cpus)| !cpus.is_empty() && *cpus != online.trim())
        .collect();
    ensure(narrow.is_empty(), || format!("still pinned: {narrow:?}"))?;
    let state = cluster.in_node("ls -A /var/lib/cpuwarden")?;
    let unexpected: Vec<_> = state.split_whitespace().filter(|file| !LEFT.contains(file)).collect();
    ensure(unexpected.is_empty(), || format!("left in /var/lib/cpuwarden: {unexpected:?}"))?;
    let kinds = "daemonset,configmap,serviceaccount,networkpolicy,clusterrole,clusterrolebinding";
    let selector = "--selector=app.kubernetes.io/name=cpuwarden";
    let left = cluster.kubectl(&["get", kinds, "--all-namespaces", selector, "--output=name"])?;
    ensure(left.trim().is_empty(), || format!("objects left: {left}"))?;
    Ok("no pin, checkpoint or object left".into())
}
