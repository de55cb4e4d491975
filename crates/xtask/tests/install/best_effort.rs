//! Best-effort pods that yield, in a kubelet's cgroups: all steps in force, a restart of the
//! kubelet, and an uninstall.

use std::time::Duration;

use super::agent;
use xtask::cluster::{Cluster, ClusterError, wait_until};
use xtask::cluster::{ensure, pods};

const TIMEOUT: Duration = Duration::from_secs(300);
const BUSY: &str = "while true; do true; done";
const BATCH: [&str; 2] = ["batch-0", "batch-1"];
/// Settings that the steps write: of the pods for `cpu.idle` and the quota, of containers for the
/// CPUs. Weights change with `cpu.idle`. The CPUs are the effective ones: the kernel does not empty
/// the cpuset of a cgroup with processes again, so that the agent writes all CPUs.
const SETTINGS: &str = "cd /sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice && \
     for d in $(find . -mindepth 1 -type d | sort); do for f in cpu.idle cpu.weight cpu.max cpuset.cpus.effective; do \
     echo \"$d $f $(cat $d/$f)\"; done; done";
/// Best-effort pods keep two CPUs: with fewer than three, step 2 writes nothing.
const MIN_CPUS: usize = 3;

/// All steps are taken while a service waits for best-effort pods. A kubelet that is restarted then
/// starts, and no container restarts. The uninstall restores all settings.
pub(super) fn steps_survive_the_kubelet(cluster: &Cluster) -> Result<String, ClusterError> {
    let cpus = cluster.in_node("nproc")?.trim().parse::<usize>().unwrap_or_default();
    ensure(cpus >= MIN_CPUS, || format!("the node has {cpus} CPUs; {MIN_CPUS} are needed"))?;
    start_batch(cluster)?;
    let before = settings(cluster)?;
    let values = ["profile=pin", "config.pinning=off", "config.bestEffort=enforce"];
    let ready = agent::install(cluster, &values)?;
    let busy = pods::container("main", BUSY, "{requests: {cpu: 100m}}");
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

    agent::uninstall(cluster)?;
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

/// Waits until all batch pods have `cpu.idle` and a quota, and all their containers fewer CPUs.
fn await_steps(cluster: &Cluster) -> Result<Duration, ClusterError> {
    let online = cluster.in_node("cat /sys/devices/system/cpu/online")?;
    let uids =
        BATCH.map(|name| cluster.kubectl(&["get", "pod", name, "-o", "jsonpath={.metadata.uid}"]));
    let uids = uids.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut last = String::new();
    let done = wait_until("all steps", TIMEOUT, || {
        last = settings(cluster)?;
        Ok(uids.iter().all(|uid| is_restricted(&last, uid.trim(), online.trim())))
    });
    done.map_err(|error| ClusterError::Unexpected(format!("{error}:\n{last}")))
}

/// Whether a pod and all its containers have all steps, by [`SETTINGS`].
fn is_restricted(settings: &str, uid: &str, online: &str) -> bool {
    let uid = uid.replace('-', "_");
    let of_pod = settings.lines().filter_map(|line| {
        let (cgroup, setting) = line.split_once(' ')?;
        let (file, value) = setting.split_once(' ')?;
        cgroup.contains(&uid).then_some((cgroup.matches('/').count(), file, value.trim()))
    });
    let (mut pods, mut containers) = (0, 0);
    for (depth, file, value) in of_pod {
        let has_step = match (depth, file) {
            (1, "cpu.idle") => value == "1",
            (1, "cpu.max") => !value.starts_with("max"),
            (2, "cpuset.cpus.effective") => value != online,
            _ => continue,
        };
        if !has_step {
            return false;
        }
        *if depth == 1 { &mut pods } else { &mut containers } += 1;
    }
    // The pause container has a cgroup, too.
    pods == 2 && containers > 2
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_all_steps_with_all_its_containers() {
        let pod = |uid: &str, idle: &str, quota: &str, cpus: [&str; 3]| {
            let pod = format!("./kubepods-besteffort-pod{uid}.slice");
            let mut lines =
                format!("{pod} cpu.idle {idle}\n{pod} cpu.weight 1\n{pod} cpu.max {quota}\n");
            lines += &format!("{pod} cpuset.cpus.effective 0-3\n");
            for (number, cpus) in cpus.iter().enumerate() {
                let container = format!("{pod}/cri-containerd-{number}.scope");
                lines += &format!("{container} cpu.idle 0\n{container} cpu.max max 100000\n");
                lines += &format!("{container} cpuset.cpus.effective {cpus}\n");
            }
            lines
        };
        let is = |idle, quota, cpus| {
            let proxy = pod("b_2", "0", "max 100000", ["0-3"; 3]);
            is_restricted(&(proxy + &pod("a_1", idle, quota, cpus)), "a-1", "0-3")
        };
        assert!(is("1", "5000 100000", ["0-1"; 3]));
        assert!(!is("0", "5000 100000", ["0-1"; 3]));
        assert!(!is("1", "max 100000", ["0-1"; 3]));
        assert!(!is("1", "5000 100000", ["0-1", "0-3", "0-1"]), "one container has all CPUs");
        assert!(!is_restricted("", "a-1", "0-3"));
    }
}
