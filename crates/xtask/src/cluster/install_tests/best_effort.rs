//! Best-effort pods that yield, in a kubelet's cgroups: all steps in force, a restart of the kubelet,
//! and an uninstall.

use std::time::Duration;

use super::super::ClusterError;
use super::super::session::{Cluster, wait_until};
use super::agent::{self, NAMESPACE};
use super::{ensure, pods};

const TIMEOUT: Duration = Duration::from_secs(300);
const BUSY: &str = "while true; do true; done";
const BATCH: [&str; 2] = ["batch-0", "batch-1"];
/// Settings that the steps write: of the pods for `cpu.idle` and the quota, of containers for the
/// CPUs. Weights change with `cpu.idle`.
const SETTINGS: &str = "cd /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice && \
     for d in $(find . -mindepth 1 -type d | sort); do for f in cpu.idle cpu.weight cpu.max cpuset.cpus; do \
     echo \"$d $f $(cat $d/$f)\"; done; done";
/// Best-effort pods keep two CPUs: with fewer than three, step 2 writes nothing.
const LEAST_CPUS: usize = 3;

/// All steps are taken while a service waits for best-effort pods. A kubelet that is restarted then
/// starts, and no container restarts. The uninstall restores all settings.
pub(super) fn steps_survive_the_kubelet(cluster: &Cluster) -> Result<String, ClusterError> {
    let cpus = cluster.in_node("nproc")?.trim().parse::<usize>().unwrap_or_default();
    ensure(cpus >= LEAST_CPUS, || format!("the node has {cpus} CPUs; {LEAST_CPUS} are needed"))?;
    start_batch(cluster)?;
    let before = settings(cluster)?;
    let values = ["profile=pin", "config.pinning=off", "config.bestEffort=enforce"];
    let ready = agent::install(cluster, &values)?;
    let busy = pods::container("main", BUSY, "{requests: {cpu: 50m}}");
    for number in 0..cpus {
        cluster.apply(&pods::pod(&format!("service-{number}"), "", &busy))?;
    }
    let steps = await_steps(cluster)?;
    let restarts = restarts(cluster)?;

    cluster.in_node("systemctl restart kubelet")?;
    wait_until("kubelet", TIMEOUT, || Ok(cluster.in_node("systemctl is-active kubelet").is_ok()))?;
    // It looks after the cgroups of its QoS classes at its start and every minute.
    std::thread::sleep(Duration::from_secs(70));
    cluster.in_node("systemctl is-active kubelet")?;
    let after = await_steps(cluster)?;
    let restarts_after = self::restarts(cluster)?;
    ensure(restarts == restarts_after, || format!("restarts: {restarts:?}, {restarts_after:?}"))?;

    cluster.helm(&["uninstall", "cpuwarden", "--namespace", NAMESPACE])?;
    wait_until("end of the agent", TIMEOUT, || {
        Ok(pods::items(&cluster.get(&["pods", "--namespace", NAMESPACE])?).next().is_none())
    })?;
    let left = settings(cluster)?;
    ensure(left == before, || format!("before:\n{before}\nafter the uninstall:\n{left}"))?;
    for number in 0..cpus {
        cluster.kubectl(&["delete", "pod", &format!("service-{number}"), "--wait=false"])?;
    }
    for name in BATCH {
        cluster.kubectl(&["delete", "pod", name, "--wait=false"])?;
    }
    Ok(format!(
        "{ready}; all steps after {:.0} s, again {:.0} s after the kubelet's restart, no container restarted; \
         {} settings as before",
        steps.as_secs_f64(),
        after.as_secs_f64() + 70.0,
        before.lines().count()
    ))
}

fn start_batch(cluster: &Cluster) -> Result<(), ClusterError> {
    wait_until("default service account", TIMEOUT, || {
        Ok(cluster.kubectl(&["get", "serviceaccount", "default"]).is_ok())
    })?;
    for name in BATCH {
        let containers = ["a", "b"].map(|name| pods::container(name, BUSY, "{}")).concat();
        cluster.apply(&pods::pod(name, "", &containers))?;
    }
    for name in BATCH {
        let pod = format!("pod/{name}");
        cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=300s", &pod])?;
    }
    Ok(())
}

/// Waits until the pods have `cpu.idle`, fewer CPUs and a quota.
fn await_steps(cluster: &Cluster) -> Result<Duration, ClusterError> {
    let online = cluster.in_node("cat /sys/devices/system/cpu/online")?;
    let mut last = String::new();
    let done = wait_until("all steps", TIMEOUT, || {
        last = settings(cluster)?;
        let value = |setting: &'static str| {
            last.lines()
                .filter_map(move |line| line.split_once(setting))
                .map(|(_, value)| value.trim())
        };
        let is_quota = |text: &str| !text.starts_with("max");
        let is_fewer = |text: &str| !text.is_empty() && text != online.trim();
        Ok(value("cpu.idle").any(|text| text == "1")
            && value("cpuset.cpus").any(is_fewer)
            && value("cpu.max").any(is_quota))
    });
    done.map_err(|error| ClusterError::Unexpected(format!("{error}:\n{last}")))
}

/// A line per setting: cgroup, file, value.
fn settings(cluster: &Cluster) -> Result<String, ClusterError> {
    cluster.in_node(SETTINGS)
}

/// Restarts of all containers, by pod.
fn restarts(cluster: &Cluster) -> Result<Vec<(String, u64)>, ClusterError> {
    let pods = cluster.get(&["pods", "--all-namespaces"])?;
    let of = |pod: &serde_json::Value| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        (name, statuses.filter_map(|status| status["restartCount"].as_u64()).sum())
    };
    let mut all: Vec<_> = pods::items(&pods).map(of).collect();
    all.sort();
    Ok(all)
}
