//! A start of the node: all its pods at once, the agent among them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{agent, nri};
use xtask::cluster::{Cluster, ClusterError, NODE_NAME, ensure, pods, wait_until};

/// Pods that ask for variables and do not name their container.
const PODS: usize = 20;
const LABEL: &str = "start=together";
const TIMEOUT: Duration = Duration::from_secs(900);
/// Commands that bring the node into the state after a boot: no process of a pod, and nothing below
/// `/run`. The old containers stay in containerd's database.
const RESTART: &str = "systemctl stop kubelet containerd && echo 1 > /sys/fs/cgroup/kubepods.slice/cgroup.kill && \
     { pkill -KILL -x containerd-shim; \
     for mount in $(grep -oE ' /run/(containerd|netns)/[^ ]+' /proc/mounts | sort -r); do umount -l $mount; done; \
     rm -rf /run/containerd /run/netns; systemctl start --no-block kubelet; }";
/// Lines of container ID and environment, one per container that runs.
const ENVIRONMENTS: &str = "for scope in $(find /sys/fs/cgroup/kubepods.slice -name cri-containerd-\\*.scope); do \
     read pid < $scope/cgroup.procs && echo \"$scope $(tr \"\\0\" \" \" < /proc/$pid/environ)\"; done; true";

/// All pods run, whether the agent already answers or not, and no creation of a container fails.
/// Next to an agent that runs, all have their variables. At the node's start the agent counts those
/// that it could not give any.
pub(super) fn pods_start_with_the_agent(cluster: &Cluster) -> Result<String, ClusterError> {
    agent::install(cluster, &nri::VALUES)?;
    nri::await_connection(cluster)?;
    let before = Creations::of(cluster)?;
    create_pods(cluster)?;
    let first = await_containers(cluster, &BTreeMap::new())?;
    let creations = Creations::of(cluster)?.since(&before);
    creations.ensure_no_failure()?;
    let figures = format!("next to an agent that runs: {first}; {creations}");
    ensure(first.injected == PODS, || figures.clone())?;

    cluster.in_node(RESTART)?;
    let second = await_containers(cluster, &first.started)?;
    let creations = Creations::of(cluster)?;
    creations.ensure_no_failure()?;
    let missed = missed(cluster)?;
    let counters = nri::counters(cluster)?;
    let figures =
        format!("{PODS} pods {figures}; at the node's start: {second}; {creations}; {counters}");
    ensure(missed <= (PODS - second.injected) as f64, || figures.clone())?;
    cluster.kubectl(&["delete", "pod", "--selector", LABEL, "--wait"])?;
    Ok(figures)
}

/// The start of all pods.
struct Starts {
    took: Duration,
    /// Times by container ID.
    started: BTreeMap<String, String>,
    /// Number of containers with all variables.
    injected: usize,
    /// Time of the agent's container.
    agent: String,
}

impl std::fmt::Display for Starts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { took, started, injected, agent } = self;
        let before = started.values().filter(|time| *time < agent).count();
        let edges = started.values().min().zip(started.values().max());
        let (first, last) = edges.map_or(("", ""), |(first, last)| (first, last));
        let took = took.as_secs_f64();
        write!(
            f,
            "all run after {took:.0} s, {injected} with variables; started at {first} to {last}, \
             the agent at {agent}, {before} earlier"
        )
    }
}

/// Waits until the container of each pod runs and is none of the `earlier` ones, and containerd
/// calls the agent.
fn await_containers(
    cluster: &Cluster,
    earlier: &BTreeMap<String, String>,
) -> Result<Starts, ClusterError> {
    let mut started = BTreeMap::new();
    let took = wait_until("running pods", TIMEOUT, || {
        let list = cluster.get(&["pods", "--selector", LABEL])?;
        started = running(&list);
        started.retain(|id, _| !earlier.contains_key(id));
        Ok(started.len() == PODS)
    });
    let took = took.map_err(|error| {
        ClusterError::Unexpected(format!("{error}: {} of {PODS} run", started.len()))
    })?;
    nri::await_connection(cluster)?;
    let environments = cluster.in_node(ENVIRONMENTS)?;
    let injected = started.keys().filter(|id| has_variables(&environments, id)).count();
    let pods = cluster.get(&["pods", "--namespace", agent::NAMESPACE])?;
    let agent = running(&pods).into_values().max().unwrap_or_default();
    Ok(Starts { took, started, injected, agent })
}

/// Containers of pods of one container that run: their times by ID.
fn running(pods: &Value) -> BTreeMap<String, String> {
    let containers = pods::items(pods).filter_map(|pod| {
        let status = &pod["status"]["containerStatuses"][0];
        let time = status["state"]["running"]["startedAt"].as_str()?;
        let id = status["containerID"].as_str()?.strip_prefix("containerd://")?;
        Some((id.to_owned(), time.to_owned()))
    });
    containers.collect()
}

/// Number of containers without variables, by the agent.
fn missed(cluster: &Cluster) -> Result<f64, ClusterError> {
    let series = agent::metrics(cluster)?;
    let missed = series.iter().filter(|one| one.name == "cpuwarden_env_injections_missed_total");
    Ok(missed.map(|one| one.value).sum())
}

fn create_pods(cluster: &Cluster) -> Result<(), ClusterError> {
    wait_until("default service account", TIMEOUT, || {
        Ok(cluster.kubectl(&["get", "serviceaccount", "default"]).is_ok())
    })?;
    let (key, value) = LABEL.split_once('=').unwrap_or_default();
    let labels = format!("metadata: {{labels: {{{key}: {value}}}, ");
    let manifest = |number: usize| {
        nri::manifest(&format!("together-{number}"), nri::ASKS).replacen("metadata: {", &labels, 1)
    };
    let manifests: Vec<_> = (0..PODS).map(manifest).collect();
    cluster.apply(&manifests.join("\n---\n")).map(drop)
}

/// Whether the container has all variables, by [`ENVIRONMENTS`].
fn has_variables(environments: &str, id: &str) -> bool {
    let line = environments.lines().find(|line| line.contains(id));
    let line = line.unwrap_or_default();
    nri::VARIABLES.iter().all(|variable| line.contains(&format!(" {variable}")))
}

/// Creations of containers, by the kubelet.
struct Creations {
    count: f64,
    seconds: f64,
    failed: f64,
}

impl Creations {
    /// Those since the kubelet's start.
    fn of(cluster: &Cluster) -> Result<Self, ClusterError> {
        let path = format!("/api/v1/nodes/{NODE_NAME}/proxy/metrics");
        let text = cluster.kubectl(&["get", "--raw", &path])?;
        let all: Vec<_> = text.lines().filter_map(agent::Series::parse).collect();
        let sum = |name: &str| {
            let named = all.iter().filter(|one| {
                one.name == format!("kubelet_runtime_operations_{name}")
                    && one.label("operation_type") == "create_container"
            });
            named.fold(0.0, |sum, one| sum + one.value)
        };
        Ok(Self {
            count: sum("duration_seconds_count"),
            seconds: sum("duration_seconds_sum"),
            failed: sum("errors_total"),
        })
    }

    fn since(self, before: &Self) -> Self {
        Self {
            count: self.count - before.count,
            seconds: self.seconds - before.seconds,
            failed: self.failed - before.failed,
        }
    }

    /// Also fails if the kubelet does not count creations.
    fn ensure_no_failure(&self) -> Result<(), ClusterError> {
        ensure(self.failed == 0.0 && self.count >= PODS as f64, || self.to_string())
    }
}

impl std::fmt::Display for Creations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, seconds, failed } = self;
        write!(f, "{count} creations of containers took {seconds:.1} s together, {failed} failed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_those_of_the_container() {
        let environments = "/a/cri-containerd-12.scope PATH=/ GOMAXPROCS=1 GOMEMLIMIT=60397978\n\
                            /a/cri-containerd-34.scope PATH=/ GOMAXPROCS=1\n";
        assert!(has_variables(environments, "12"));
        assert!(!has_variables(environments, "34") && !has_variables(environments, "56"));
    }
}
