//! Environment variables through the Node Resource Interface of containerd: with the agent, while
//! it hangs, after it was killed, and without it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::agent;
use xtask::cluster::{Cluster, ClusterError, wait_until};
use xtask::cluster::{ensure, pods};

const TIMEOUT: Duration = Duration::from_secs(300);
pub(super) const VALUES: [&str; 2] = ["nri.enabled=true", "nri.injectEnv=annotated"];
pub(super) const VARIABLES: [&str; 2] = ["GOMAXPROCS=1", "GOMEMLIMIT="];
/// Pods that start together and do not name their containers.
const UNNAMED: usize = 20;
/// Annotation by which a pod asks for variables, and one that names its container.
pub(super) const ASKS: &str = "cpuwarden.io/inject-env: \"true\"";
const NAMES: &str = "cpuwarden.io/inject-env-containers: main";
/// The agent's process in the node. Its container has no other.
const AGENT: &str = "pgrep -x cpuwarden";

/// Containers start in each case, and have the variables if and only if the agent answers.
pub(super) fn variables_come_and_no_container_waits(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    let ready = agent::install(cluster, &VALUES)?;
    await_connection(cluster)?;
    let with = start_pod(cluster, "injected")?;
    ensure(with.has_variables, || "a new container lacks the variables".into())?;
    let unnamed = start_unnamed_pods(cluster)?;

    // Longer than the runtime's deadline of 2 s, and shorter than the liveness probe's timeout.
    cluster.in_node(&format!("kill -STOP $({AGENT})"))?;
    let hung = start_pod(cluster, "beside-hung");
    cluster.in_node(&format!("kill -CONT $({AGENT})"))?;
    let hung = hung?;
    ensure(!hung.has_variables, || "an agent that hangs has injected variables".into())?;
    await_connection(cluster)?;
    let again = start_pod(cluster, "after-hang")?;
    ensure(again.has_variables, || "no variables after the agent hung".into())?;

    cluster.in_node(&format!("kill -KILL $({AGENT})"))?;
    let killed = start_pod(cluster, "beside-killed")?;
    agent::await_ready(cluster)?;
    await_connection(cluster)?;
    let back = start_pod(cluster, "after-kill")?;
    ensure(back.has_variables, || "no variables after the agent was killed".into())?;

    agent::install(cluster, &[])?;
    let without = start_pod(cluster, "without-nri")?;
    ensure(!without.has_variables, || "variables without nri.enabled".into())?;
    Ok(format!(
        "{ready}; seconds until a pod runs: {with}, agent hung {hung}, killed {killed}, without NRI {without}; \
         variables in {unnamed} of {UNNAMED} pods that start together and name no container"
    ))
}

/// Start of a pod with the annotation.
struct Start {
    took: Duration,
    has_variables: bool,
}

impl std::fmt::Display for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = if self.has_variables { "with" } else { "without" };
        write!(f, "{:.0} ({words} variables)", self.took.as_secs_f64())
    }
}

/// Creates a pod that names its container, and deletes it when its variables are read.
fn start_pod(cluster: &Cluster, name: &str) -> Result<Start, ClusterError> {
    let start = Instant::now();
    cluster.apply(&manifest(name, &format!("{ASKS}, {NAMES}")))?;
    await_running(cluster, name)?;
    let took = start.elapsed();
    let has_variables = has_variables(cluster, name)?;
    Ok(Start { took, has_variables })
}

/// Creates pods with the first annotation alone, and returns how many of them have the variables:
/// the agent needs the kubelet's list before a pod's first container.
fn start_unnamed_pods(cluster: &Cluster) -> Result<usize, ClusterError> {
    let names: Vec<_> = (0..UNNAMED).map(|number| format!("unnamed-{number}")).collect();
    let manifests: Vec<_> = names.iter().map(|name| manifest(name, ASKS)).collect();
    cluster.apply(&manifests.join("\n---\n"))?;
    let mut count = 0;
    for name in &names {
        await_running(cluster, name)?;
        count += usize::from(has_variables(cluster, name)?);
    }
    Ok(count)
}

pub(super) fn manifest(name: &str, annotations: &str) -> String {
    let limits = "{requests: {cpu: 10m}, limits: {cpu: 500m, memory: 64Mi}}";
    let manifest = pods::pod(name, "", &pods::container("main", "sleep 1000000", limits));
    manifest.replacen("metadata: {", &format!("metadata: {{annotations: {{{annotations}}}, "), 1)
}

fn await_running(cluster: &Cluster, name: &str) -> Result<(), ClusterError> {
    wait_until("running pod", TIMEOUT, || {
        Ok(cluster.get(&["pod", name])?["status"]["phase"] == "Running")
    })
    .map(drop)
}

/// Whether a pod has all variables; it may not have some of them. Deletes it.
fn has_variables(cluster: &Cluster, name: &str) -> Result<bool, ClusterError> {
    let environment =
        cluster.kubectl(&["exec", name, "--", "/bin/busybox", "cat", "/proc/1/environ"])?;
    let variables: Vec<_> = environment.split('\0').collect();
    let is_there = |start: &str| variables.iter().any(|variable| variable.starts_with(start));
    let there = VARIABLES.iter().filter(|variable| is_there(variable)).count();
    ensure(there == 0 || there == VARIABLES.len(), || format!("{name}: {variables:?}"))?;
    cluster.kubectl(&["delete", "pod", name, "--wait=false"])?;
    Ok(there > 0)
}

/// Waits until containerd calls the agent.
pub(super) fn await_connection(cluster: &Cluster) -> Result<(), ClusterError> {
    let is_connected =
        |one: &agent::Series| one.name == "cpuwarden_nri_connected" && one.value > 0.0;
    wait_until("connection to containerd", TIMEOUT, || {
        // Not to be reached while it starts.
        Ok(agent::metrics(cluster).is_ok_and(|series| series.iter().any(is_connected)))
    })
    .map(drop)
}

/// The agent's counters of its connection to the runtime.
pub(super) fn counters(cluster: &Cluster) -> Result<String, ClusterError> {
    let names = [
        ("cpuwarden_nri_disconnected_seconds_total", "seconds without connection"),
        ("cpuwarden_nri_reconnections_total", "reconnections"),
        ("cpuwarden_nri_empty_answers_total", "empty answers"),
        ("cpuwarden_env_injections_missed_total", "without variables"),
    ];
    let mut sums = BTreeMap::from(names.map(|(name, _)| (name, 0.0)));
    for one in agent::metrics(cluster)? {
        if let Some(sum) = sums.get_mut(one.name.as_str()) {
            *sum += one.value;
        }
    }
    Ok(names.map(|(name, text)| format!("{:.0} {text}", sums[name])).join(", "))
}
