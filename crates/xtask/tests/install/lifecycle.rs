//! Upgrade, rollback and uninstall.

use std::time::Duration;

use super::agent::{self, NAMESPACE};
use super::pin;
use xtask::cluster::ensure;
use xtask::cluster::{Cluster, ClusterError, wait_until};

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

/// The documented way: an upgrade with `drainOnStop`, then the uninstall. No pin, no checkpoint and
/// no object is left; of the state directory, only the lock and the result of the drain.
pub(super) fn uninstall_leaves_nothing(cluster: &Cluster) -> Result<String, ClusterError> {
    agent::install(cluster, &["profile=pin", "config.pinning=enforce", "drainOnStop=true"])?;
    cluster.helm(&["uninstall", "cpuwarden", "--namespace", NAMESPACE])?;
    wait_until("end of the agent", Duration::from_secs(300), || {
        Ok(cluster.get(&["pods", "--namespace", NAMESPACE])?["items"]
            .as_array()
            .is_some_and(Vec::is_empty))
    })?;
    let online = cluster.in_node("cat /sys/devices/system/cpu/online")?;
    let narrow: Vec<_> = pin::cpusets(cluster)?
        .into_iter()
        .filter(|(_, cpus)| !cpus.is_empty() && *cpus != online.trim())
        .collect();
    ensure(narrow.is_empty(), || format!("still pinned: {narrow:?}"))?;
    let state = cluster.in_node("ls -A /var/lib/cpuwarden")?;
    let unexpected: Vec<_> =
        state.split_whitespace().filter(|file| !["drain", "lock"].contains(file)).collect();
    ensure(unexpected.is_empty(), || format!("left in /var/lib/cpuwarden: {unexpected:?}"))?;
    let kinds = "daemonset,configmap,serviceaccount,networkpolicy,clusterrole,clusterrolebinding";
    let selector = "--selector=app.kubernetes.io/name=cpuwarden";
    let left = cluster.kubectl(&["get", kinds, "--all-namespaces", selector, "--output=name"])?;
    ensure(left.trim().is_empty(), || format!("objects left: {left}"))?;
    Ok("no pin, checkpoint or object left".into())
}
