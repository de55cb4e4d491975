//! A start of the node: all its pods at once, the agent among them.

use std::collections::{BTreeMap, BTreeSet};
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
/// Next to an agent that runs, all have their variables. At the node's start those that the runtime
/// creates once it calls the agent have them, or the agent counts them.
pub(super) fn pods_start_with_the_agent(cluster: &Cluster) -> Result<String, ClusterError> {
    agent::install(cluster, &nri::VALUES)?;
    nri::await_connection(cluster)?;
    let before = Creations::of(cluster)?;
    create_pods(cluster)?;
    let first = await_containers(cluster, &BTreeMap::new())?;
    let creations = Creations::of(cluster)?.since(&before);
    creations.ensure_no_failure()?;
    let missed = sum(&agent::metrics(cluster)?, MISSED);
    let figures = format!("next to an agent that runs: {first}; {creations}; {missed} missed");
    ensure(first.injected.len() == PODS && missed == 0.0, || figures.clone())?;

    cluster.in_node(RESTART)?;
    let second = await_containers(cluster, &first.started)?;
    let creations = Creations::of(cluster)?;
    creations.ensure_no_failure()?;
    let late = created_after_connection(cluster, &second)?;
    let without = late.difference(&second.injected).count();
    let counters = nri::counters(cluster)?;
    let figures = format!(
        "{PODS} pods {figures}; at the node's start: {second}; {} created after the connection, \
         {without} of them without variables; {creations}; {counters}",
        late.len(),
    );
    let series = agent::metrics(cluster)?;
    let missed = sum(&series, MISSED);
    // While the agent was not connected, or answered too late, it counts no container.
    let is_steady = FAULTS.iter().all(|name| sum(&series, name) == 0.0);
    let without = without as f64;
    ensure(missed == without || !is_steady && missed < without, || figures.clone())?;
    cluster.kubectl(&["delete", "pod", "--selector", LABEL, "--wait"])?;
    Ok(figures)
}

/// Containers that started without variables, by the agent.
const MISSED: &str = "cpuwarden_env_injections_missed_total";
/// Faults of the agent's connection to the runtime.
const FAULTS: [&str; 2] =
    ["cpuwarden_nri_reconnections_total", "cpuwarden_nri_empty_answers_total"];

fn sum(series: &[agent::Series], name: &str) -> f64 {
    series.iter().filter(|one| one.name == name).map(|one| one.value).sum()
}

/// The containers that the runtime created after the agent was first connected. The runtime does
/// not connect a plugin during a creation.
fn created_after_connection(
    cluster: &Cluster,
    starts: &Starts,
) -> Result<BTreeSet<String>, ClusterError> {
    let pod = agent::pod(cluster)?;
    let log = cluster.kubectl(&["logs", "--namespace", agent::NAMESPACE, &pod])?;
    let connected = log.lines().find(|line| line.contains("NRI: connected"));
    let connected = connected.and_then(|line| line.split(' ').next()).map(fraction);
    let connected = connected.ok_or_else(|| ClusterError::Unexpected(format!("log: {log}")))?;
    let ids: Vec<_> = starts.started.keys().map(String::as_str).collect();
    let script = format!(
        "for id in {}; do echo $id $(ctr --namespace k8s.io containers info $id | grep -m 1 CreatedAt); done",
        ids.join(" ")
    );
    let created = cluster.in_node(&script)?;
    let times: BTreeMap<_, _> = created.lines().filter_map(creation).collect();
    ensure(times.len() == ids.len(), || format!("times of creations: {created}"))?;
    Ok(times.into_iter().filter(|(_, time)| *time > connected).map(|(id, _)| id.into()).collect())
}

/// Container ID and time of a line such as `12 "CreatedAt": "2026-11-27T21:20:57.3Z",`.
fn creation(line: &str) -> Option<(&str, &str)> {
    let (id, created) = line.split_once(' ')?;
    Some((id, fraction(created.split('"').nth(3)?)))
}

/// A time without its final `Z`: the order of the texts is that of the times, whatever the number
/// of decimals.
fn fraction(time: &str) -> &str {
    time.trim_end_matches('Z')
}

/// The start of all pods.
struct Starts {
    took: Duration,
    /// Times by container ID.
    started: BTreeMap<String, String>,
    /// IDs of the containers with all variables.
    injected: BTreeSet<String>,
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
            "all run after {took:.0} s, {} with variables; started at {first} to {last}, \
             the agent at {agent}, {before} earlier",
            injected.len()
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
    let injected = started.keys().filter(|id| has_variables(&environments, id)).cloned().collect();
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

    #[test]
    fn times_of_creations_are_ordered_as_texts() {
        let of = |time: &str| format!("12 \"CreatedAt\": \"{time}\",");
        let lines = ["2026-11-27T21:20:57Z", "2026-11-27T21:20:57.3Z", "2026-11-27T21:20:57.301Z"];
        let lines = lines.map(of);
        let times = lines.each_ref().map(|line| creation(line).unwrap());
        assert!(times.is_sorted() && times[0] == ("12", "2026-11-27T21:20:57"));
        assert_eq!(creation("12 "), None);
    }
}
