//! The connection to the container runtime, and placement, of an agent that gets little CPU time,
//! and of one that hangs.

use super::{agent, nri, pin};
use xtask::cluster::{Cluster, ClusterError, pods};

const SPINNING: &str = "spinning";
const EXCLUSIVE: [&str; 2] = ["starved-lse", "hung-lse"];
const SHARED: [&str; 2] = ["starved-0", "starved-1"];
/// Sets the weight of the agent's pod to the least, that of two shares.
const STARVE: &str = "pid=$(pgrep -x cpuwarden) && read -r line < /proc/$pid/cgroup && scope=${line#0::} && \
     echo 1 > /sys/fs/cgroup${scope%/*}/cpu.weight";

/// Containers that start next to an agent that is starved or hangs get their CPUs at the latest when
/// the agent is connected again.
pub(super) fn placement_is_repaired(cluster: &Cluster) -> Result<String, ClusterError> {
    let values = ["profile=pin", "config.pinning=enforce", "nri.enabled=true"];
    agent::install(cluster, &values)?;
    nri::await_connection(cluster)?;
    pin::await_enforcing(cluster)?;
    let starved = start_starved(cluster)?;

    cluster.in_node("kill -STOP $(pgrep -x cpuwarden)")?;
    let hung = create(cluster, EXCLUSIVE[1], true);
    cluster.in_node("kill -CONT $(pgrep -x cpuwarden)")?;
    hung?;
    let repaired = pin::await_exclusive(cluster, EXCLUSIVE[1])?;
    nri::await_connection(cluster)?;
    let counters = nri::counters(cluster)?;
    let pods = EXCLUSIVE.iter().chain(&SHARED).copied();
    let delete: Vec<_> = ["delete", "pod", "--wait"].into_iter().chain(pods).collect();
    cluster.kubectl(&delete)?;
    Ok(format!(
        "{starved}; agent hung: CPUs {:.0} s after it continued, then {counters}",
        repaired.as_secs_f64()
    ))
}

/// Starts and ends pods while the agent has the least weight and loops take all CPUs.
fn start_starved(cluster: &Cluster) -> Result<String, ClusterError> {
    let cpus = cluster.in_node("nproc")?.trim().parse::<usize>().unwrap_or(1);
    let loops =
        format!("{}while true; do true; done", "(while true; do true; done) & ".repeat(cpus - 1));
    let spinning = pods::container("main", &loops, "{requests: {cpu: \"1\"}}");
    cluster.apply(&pods::pod(SPINNING, "", &spinning))?;
    await_pod(cluster, SPINNING)?;
    cluster.in_node(STARVE)?;
    create(cluster, EXCLUSIVE[0], true)?;
    for name in SHARED {
        create(cluster, name, false)?;
    }
    let exclusive = pin::await_exclusive(cluster, EXCLUSIVE[0])?;
    cluster.kubectl(&["delete", "pod", SPINNING, "--wait"])?;
    nri::await_connection(cluster)?;
    let counters = nri::counters(cluster)?;
    Ok(format!(
        "agent starved: CPUs {:.0} s after the last start, {counters}",
        exclusive.as_secs_f64()
    ))
}

fn create(cluster: &Cluster, name: &str, is_exclusive: bool) -> Result<(), ClusterError> {
    let shared = || pods::container("main", "sleep 1000000", "{requests: {cpu: 10m}}");
    let manifest =
        if is_exclusive { pin::exclusive_pod(name, "LSE") } else { pods::pod(name, "", &shared()) };
    cluster.apply(&manifest)?;
    await_pod(cluster, name)
}

fn await_pod(cluster: &Cluster, name: &str) -> Result<(), ClusterError> {
    let pod = format!("pod/{name}");
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=600s", &pod]).map(drop)
}
