//! The node condition: two pods that share a CPU, and the agent's requests.

use std::time::Duration;

use super::agent;
use super::audit::{AGENT, requests_of};
use xtask::cluster::{Cluster, ClusterError, wait_until};
use xtask::cluster::{ensure, pods};

/// The condition is about the last minute.
const TIMEOUT: Duration = Duration::from_secs(300);
const PODS: [&str; 2] = ["rival-0", "rival-1"];
const BUSY: &str = "while true; do true; done";
/// Emulated, the trace needs more than its budget, and estimates give no condition.
const VALUES: [&str; 3] = ["profile=trace", "nodeCondition=true", "config.schedTraceBudget=1"];

/// The condition is False, True while two pods share a CPU, and False again. The agent's account
/// only patches the status of the node.
pub(super) fn follows_the_waits_of_pods(cluster: &Cluster) -> Result<String, ClusterError> {
    let earlier = cluster.audit_log()?.len();
    let ready = agent::install(cluster, &VALUES)?;
    await_status(cluster, "False")?;
    for name in PODS {
        let busy = pods::container("main", BUSY, "{requests: {cpu: 50m}}");
        cluster.apply(&pods::pod(name, "", &busy))?;
    }
    for name in PODS {
        let pod = format!("pod/{name}");
        cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=300s", &pod])?;
        let cgroup = pods::container_cgroup(cluster, name)?;
        cluster.in_node(&format!("echo 0 > {cgroup}/cpuset.cpus"))?;
    }
    let contended = await_status(cluster, "True")?;
    for name in PODS {
        cluster.kubectl(&["delete", "pod", name, "--wait=false"])?;
    }
    let relieved = await_status(cluster, "False")?;
    let log = cluster.audit_log()?;
    let requests = requests_of(log.get(earlier..).unwrap_or(&log), AGENT);
    let is_patch = |request: &String| {
        request.starts_with("patch /api/v1/nodes/") && request.contains("/status")
    };
    ensure(!requests.is_empty() && requests.keys().all(is_patch), || {
        format!("requests of {AGENT}: {requests:?}")
    })?;
    Ok(format!(
        "{ready}; False, True after {:.0} s, False after {:.0} s; {} patches of the node's status, nothing else",
        contended.as_secs_f64(),
        relieved.as_secs_f64(),
        requests.values().sum::<usize>()
    ))
}

/// Waits until the node's condition has this status.
fn await_status(cluster: &Cluster, wanted: &str) -> Result<Duration, ClusterError> {
    let mut last = String::new();
    let done = wait_until("node condition", TIMEOUT, || {
        let nodes = cluster.get(&["nodes"])?;
        let conditions =
            pods::items(&nodes).filter_map(|node| node["status"]["conditions"].as_array());
        let mut conditions = conditions.flatten().filter(|one| one["type"] == "CPUContention");
        last = conditions.next().map_or_else(|| "none".to_owned(), ToString::to_string);
        Ok(last.contains(&format!(r#""status":"{wanted}""#)))
    });
    done.map_err(|error| ClusterError::Unexpected(format!("{error}: not {wanted}, but {last}")))
}
