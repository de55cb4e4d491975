//! The installed agent: helm, its pod, and its exposition.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use xtask::cluster::pods::items;
use xtask::cluster::{Cluster, ClusterError, wait_until};
use xtask::image;
use xtask::workspace;

pub(super) const NAMESPACE: &str = "cpuwarden";
/// Maximum time for a profile to become Ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time for the agent's pods to end.
const END_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum time for the node to start the pod's containers. The node is emulated: on a busy machine
/// a sandbox may need more than the kubelet's timeout of four minutes, and a second attempt.
const START_TIMEOUT: Duration = Duration::from_secs(900);

/// Values for this cluster: the image, and before 1.33 a pod source that its kubelets allow.
fn values(cluster: &Cluster) -> Vec<String> {
    let mut values = vec![
        "image.repository=localhost/cpuwarden".to_owned(),
        format!("image.tag={}", image::VERSION),
    ];
    if !cluster.release().has_fine_grained_authorization() {
        values.push("rbac.nodesProxy=true".into());
    }
    values
}

/// Makes the namespace as the quickstart does.
pub(super) fn make_namespace(cluster: &Cluster) -> Result<(), ClusterError> {
    if cluster.kubectl(&["get", "namespace", NAMESPACE]).is_err() {
        cluster.kubectl(&["create", "namespace", NAMESPACE])?;
    }
    cluster.kubectl(&[
        "label",
        "--overwrite",
        "namespace",
        NAMESPACE,
        "pod-security.kubernetes.io/enforce=privileged",
    ])?;
    Ok(())
}

/// Installs or upgrades with this cluster's values and `extra`, and waits until the new pod is
/// Ready. Returns the times it took, for the report.
///
/// # Errors
/// The agent needs more than [`READY_TIMEOUT`] from its container's start.
pub(super) fn install(cluster: &Cluster, extra: &[&str]) -> Result<String, ClusterError> {
    let values = values(cluster);
    let values: Vec<_> = values.iter().map(String::as_str).chain(extra.iter().copied()).collect();
    install_with(cluster, &values)
}

/// Installs as the README does, with the image alone (before 1.33 also the pod source) and `--wait`.
pub(super) fn helm_install(cluster: &Cluster, timeout: &str) -> Result<String, ClusterError> {
    let (chart, values) = (chart(), values(cluster));
    let mut arguments = vec!["install", "cpuwarden", &chart, "--namespace", NAMESPACE, "--wait"];
    arguments.push(timeout);
    values.iter().for_each(|value| arguments.extend(["--set", value]));
    cluster.helm(&arguments)
}

fn chart() -> String {
    workspace::root().join("deploy/chart/cpuwarden").display().to_string()
}

fn install_with(cluster: &Cluster, values: &[&str]) -> Result<String, ClusterError> {
    make_namespace(cluster)?;
    let chart = chart();
    let mut arguments = vec!["upgrade", "--install", "cpuwarden", &chart, "--namespace", NAMESPACE];
    values.iter().for_each(|value| arguments.extend(["--set", value]));
    cluster.helm(&arguments)?;
    await_ready(cluster)
}

/// Uninstalls the agent, and waits until its pods have ended.
pub(super) fn uninstall(cluster: &Cluster) -> Result<(), ClusterError> {
    cluster.helm(&["uninstall", "cpuwarden", "--namespace", NAMESPACE])?;
    wait_until("end of the agent", END_TIMEOUT, || {
        Ok(items(&cluster.get(&["pods", "--namespace", NAMESPACE])?).next().is_none())
    })
    .map(drop)
}

/// Waits until the DaemonSet has rolled out and its pod is Ready.
pub(super) fn await_ready(cluster: &Cluster) -> Result<String, ClusterError> {
    let rollout = wait_until("Ready agent", START_TIMEOUT + READY_TIMEOUT, || {
        let set = cluster.get(&["daemonset", "cpuwarden", "--namespace", NAMESPACE])?;
        let (status, wanted) = (&set["status"], &set["status"]["desiredNumberScheduled"]);
        Ok(wanted.as_u64() >= Some(1)
            && status["observedGeneration"] == set["metadata"]["generation"]
            && status["updatedNumberScheduled"] == *wanted
            && status["numberReady"] == *wanted)
    })?;
    let own = time_to_ready(&cluster.get(&["pod", &pod(cluster)?, "--namespace", NAMESPACE])?)?;
    let text = format!(
        "Ready {} s after its start, {:.0} s after helm",
        own.as_secs(),
        rollout.as_secs_f64()
    );
    if own <= READY_TIMEOUT { Ok(text) } else { Err(ClusterError::Unexpected(text)) }
}

/// Time from the start of a pod's first container to its readiness, by the kubelet's clock.
fn time_to_ready(pod: &Value) -> Result<Duration, ClusterError> {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions
        .filter(|one| one["type"] == "Ready")
        .find_map(|one| one["lastTransitionTime"].as_str());
    let started = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"].as_str();
    let seconds = started.and_then(second_of_day).zip(ready.and_then(second_of_day));
    let (started, ready) =
        seconds.ok_or_else(|| ClusterError::Unexpected("the agent's pod has no times".into()))?;
    Ok(Duration::from_secs((ready + DAY - started) % DAY))
}

const DAY: u64 = 24 * 60 * 60;

/// Seconds since midnight of a time such as `2026-11-22T12:33:50Z`.
fn second_of_day(time: &str) -> Option<u64> {
    let clock = time.split_once('T')?.1.trim_end_matches('Z');
    clock.split(':').try_fold(0, |sum, part| Some(sum * 60 + part.parse::<u64>().ok()?))
}

/// Name of the agent's pod.
pub(super) fn pod(cluster: &Cluster) -> Result<String, ClusterError> {
    let pods = cluster.get(&["pods", "--namespace", NAMESPACE])?;
    let alive = items(&pods).find(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let name = alive.and_then(|pod| pod["metadata"]["name"].as_str());
    name.map(str::to_owned).ok_or_else(|| ClusterError::Unexpected("no pod of the agent".into()))
}

/// Runs a command of the agent in its pod.
pub(super) fn exec(cluster: &Cluster, arguments: &[&str]) -> Result<String, ClusterError> {
    let pod = pod(cluster)?;
    let first =
        ["exec", "--namespace", NAMESPACE, &pod, "--container=cpuwarden", "--", "/cpuwarden"];
    cluster.kubectl(&[&first[..], arguments].concat())
}

/// The agent's series, asked for as the quickstart does.
pub(super) fn metrics(cluster: &Cluster) -> Result<Vec<Series>, ClusterError> {
    let pod = pod(cluster)?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:9753/proxy/metrics");
    Ok(cluster.kubectl(&["get", "--raw", &path])?.lines().filter_map(Series::parse).collect())
}

/// The last events of the agent's pods, its last lines of log and the node's load, after a failure.
pub(super) fn state(cluster: &Cluster) -> String {
    let selector = "--selector=app.kubernetes.io/name=cpuwarden";
    let log = cluster.kubectl(&[
        "logs",
        "--namespace",
        NAMESPACE,
        selector,
        "--all-containers",
        "--tail=15",
    ]);
    let events = cluster.kubectl(&["events", "--namespace", NAMESPACE]).unwrap_or_default();
    let events: Vec<_> = events.lines().rev().take(10).collect();
    let events: Vec<_> = events.into_iter().rev().collect();
    let load = cluster.in_node("cat /proc/loadavg").unwrap_or_default();
    let (log, events) = (log.unwrap_or_default(), events.join("\n"));
    format!("\nevents of the agent:\n{events}\nlog of the agent:\n{log}\nload of the node: {load}")
}

/// A series of an exposition with its value.
#[derive(Debug, PartialEq)]
pub(super) struct Series {
    /// Name of the metric.
    pub(super) name: String,
    /// Labels with their values.
    pub(super) labels: BTreeMap<String, String>,
    /// Value.
    pub(super) value: f64,
}

impl Series {
    /// Parses a line such as `name{label="value"} 1`; `None` for a comment. No label of the agent
    /// holds `",`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.strip_suffix('}').unwrap_or(labels).trim_end_matches('"');
        let pairs = labels.split("\",").filter_map(|pair| pair.split_once("=\""));
        let labels = pairs.map(|(label, value)| (label.to_owned(), value.to_owned())).collect();
        Some(Self { name: name.to_owned(), labels, value: value.parse().ok()? })
    }

    /// Value of a label; empty without it.
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// The gauge of a feature: whether it is in force, and the reason.
pub(super) fn feature(series: &[Series], feature: &str) -> Option<(bool, String)> {
    let gauge = series
        .iter()
        .find(|one| one.name == "cpuwarden_feature_enabled" && one.label("feature") == feature);
    gauge.map(|one| (one.value > 0.0, one.label("reason").to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_ready_counts_from_the_containers_start() {
        let pod = |started: &str, ready: &str| {
            serde_json::json!({"status": {
                "containerStatuses": [{"state": {"running": {"startedAt": started}}}],
                "conditions": [{"type": "Initialized"}, {"type": "Ready", "lastTransitionTime": ready}],
            }})
        };
        let seconds = |pod: &Value| time_to_ready(pod).map(|time| time.as_secs()).ok();
        assert_eq!(seconds(&pod("2026-11-22T12:33:50Z", "2026-11-22T12:34:02Z")), Some(12));
        assert_eq!(seconds(&pod("2026-11-22T23:59:50Z", "2026-11-23T00:00:05Z")), Some(15));
        assert_eq!(seconds(&Value::Null), None);
    }

    #[test]
    fn series_are_parsed_with_their_labels() {
        let series =
            Series::parse(r#"cpuwarden_feature_enabled{feature="pod_names",reason="a, b"} 0"#)
                .unwrap();
        assert_eq!((series.label("feature"), series.label("reason")), ("pod_names", "a, b"));
        assert_eq!(feature(&[series], "pod_names"), Some((false, "a, b".into())));
        assert_eq!(Series::parse("up 1").unwrap().value, 1.0);
        assert_eq!(Series::parse("# HELP up"), None);
    }
}
