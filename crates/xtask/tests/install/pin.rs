//! The profile pin: observe, then enforce, beside systemd and the kubelet.

use std::collections::BTreeSet;
use std::time::Duration;

use super::agent;
use xtask::cluster::pods::{container, container_id, pod};
use xtask::cluster::{Cluster, ClusterError, ensure, wait_until};

/// Pods that ask for CPUs of their own, with their class.
const EXCLUSIVE: [(&str, &str); 2] = [("exclusive-lsr", "LSR"), ("exclusive-lse", "LSE")];
pub(super) const CPUS_EACH: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(300);

/// Observing, both pods are planned and no cpuset is written.
pub(super) fn observing_plans_and_writes_nothing(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    let took = agent::install(cluster, &["profile=pin"])?;
    cluster.apply(&EXCLUSIVE.map(|(name, class)| exclusive_pod(name, class)).join("---\n"))?;
    for (name, _) in EXCLUSIVE {
        cluster.kubectl(&[
            "wait",
            "--for=condition=Ready",
            "--timeout=300s",
            &format!("pod/{name}"),
        ])?;
    }
    wait_until("plan for both pods", TIMEOUT, || Ok(planned(cluster)?.len() == EXCLUSIVE.len()))?;
    let before = cpusets(cluster)?;
    let online = cluster.in_node("cat /sys/devices/system/cpu/online")?;
    let written: Vec<_> = before.iter().filter(|(_, cpus)| cpus != online.trim()).collect();
    ensure(written.is_empty(), || format!("written while observing: {written:?}"))?;
    Ok(format!("{took}; planned {:?}, {} cpusets untouched", planned(cluster)?, before.len()))
}

/// Enforcing, the pods have CPUs of their own, also after `systemctl daemon-reload` and a restart
/// of the kubelet.
pub(super) fn pins_survive_systemd_and_kubelet(cluster: &Cluster) -> Result<String, ClusterError> {
    let took = agent::install(cluster, &["profile=pin", "config.pinning=enforce"])?;
    await_pins(cluster)?;
    let granted = pinned_sets(cluster)?;
    cluster.in_node("systemctl daemon-reload")?;
    await_pins(cluster)?;
    ensure(pinned_sets(cluster)? == granted, || "other CPUs after a daemon-reload".into())?;
    cluster.in_node("systemctl restart kubelet")?;
    wait_until("kubelet", TIMEOUT, || Ok(cluster.in_node("systemctl is-active kubelet").is_ok()))?;
    // The kubelet looks after its containers' cgroups within its first half minute.
    std::thread::sleep(Duration::from_secs(40));
    await_pins(cluster)?;
    ensure(pinned_sets(cluster)? == granted, || {
        "other CPUs after a restart of the kubelet".into()
    })?;
    let repairs = agent::metrics(cluster)?
        .iter()
        .filter(|one| {
            one.name == "cpuwarden_pin_operations_total" && one.label("operation") == "repair"
        })
        .fold(0.0, |sum, one| sum + one.value);
    Ok(format!("{took}; {granted:?} kept, {repairs} repairs"))
}

pub(super) fn exclusive_pod(name: &str, class: &str) -> String {
    let resources = format!(
        "{{requests: {{cpu: \"{CPUS_EACH}\", memory: 32Mi}}, limits: {{cpu: \"{CPUS_EACH}\", memory: 32Mi}}}}"
    );
    let text = pod(name, "", &container("main", "sleep 1000000", &resources));
    let labels = format!("labels: {{koordinator.sh/qosClass: {class}}}");
    text.replacen("metadata: {", &format!("metadata: {{{labels}, "), 1)
}

/// Pods with planned or granted CPUs, with their number.
fn planned(cluster: &Cluster) -> Result<Vec<(String, f64)>, ClusterError> {
    let series = agent::metrics(cluster)?;
    let pinned = series.iter().filter(|one| one.name == "cpuwarden_pinned_cpus");
    Ok(pinned.map(|one| (one.label("pod").to_owned(), one.value)).collect())
}

/// Cgroup and effective CPUs of each container scope below kubepods. On cgroup v2 the agent writes
/// the cpusets of pods.
pub(super) fn cpusets(cluster: &Cluster) -> Result<Vec<(String, String)>, ClusterError> {
    let script = "cd /sys/fs/cgroup && for f in $(find kubepods.slice -path '*/cri-containerd-*.scope/cpuset.cpus.effective'); \
                  do echo \"${f%/*}:$(cat $f)\"; done";
    let text = cluster.in_node(script)?;
    let pairs = text.lines().filter_map(|line| line.rsplit_once(':'));
    Ok(pairs.map(|(cgroup, cpus)| (cgroup.to_owned(), cpus.to_owned())).collect())
}

/// CPUs of each exclusive pod's container, by the kernel.
pub(super) fn pinned_sets(cluster: &Cluster) -> Result<Vec<(String, String)>, ClusterError> {
    let sets = cpusets(cluster)?;
    let mut pinned = Vec::new();
    for (name, _) in EXCLUSIVE {
        let status = cluster.get(&["pod", name])?;
        let id = status["status"]["containerStatuses"][0]["containerID"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let id = id.trim_start_matches("containerd://");
        let set = sets.iter().find(|(cgroup, _)| !id.is_empty() && cgroup.contains(id));
        pinned.push((name.to_owned(), set.map(|(_, cpus)| cpus.clone()).unwrap_or_default()));
    }
    Ok(pinned)
}

/// Waits until the agent writes cpusets.
pub(super) fn await_enforcing(cluster: &Cluster) -> Result<(), ClusterError> {
    let is_enforcing =
        |one: &agent::Series| one.name == "cpuwarden_pinning_enforcing" && one.value > 0.0;
    wait_until("pinning in force", TIMEOUT, || {
        Ok(agent::metrics(cluster)?.iter().any(is_enforcing))
    })
    .map(drop)
}

/// Waits until both pods have their number of CPUs, disjoint, and the LSE pod shares with nobody.
pub(super) fn await_pins(cluster: &Cluster) -> Result<(), ClusterError> {
    let mut state = String::new();
    let done = wait_until("CPUs of their own for both pods", TIMEOUT, || {
        let pinned = pinned_sets(cluster)?;
        let sets = cpusets(cluster)?;
        let cpus: Vec<_> = pinned.iter().map(|(_, list)| cpu_list(list)).collect();
        let own = cpus.iter().all(|set| set.len() == CPUS_EACH) && cpus[0].is_disjoint(&cpus[1]);
        let mut others = sets.iter().filter(|(_, list)| !pinned.iter().any(|(_, own)| own == list));
        let intruder = others.find(|(_, list)| !cpu_list(list).is_disjoint(&cpus[1]));
        state = format!("{pinned:?}, beside them {intruder:?}");
        Ok(own && intruder.is_none())
    });
    done.map(drop).map_err(|error| ClusterError::Unexpected(format!("{error}: {state}")))
}

/// Waits until a pod has its CPUs, which no container of another pod may use.
pub(super) fn await_exclusive(cluster: &Cluster, pod: &str) -> Result<Duration, ClusterError> {
    let id = container_id(cluster, pod)?;
    let mut last = String::new();
    let done = wait_until("CPUs of its own", TIMEOUT, || {
        let sets = cpusets(cluster)?;
        last = format!("{pod} ({id}): {sets:?}");
        Ok(is_exclusive(&sets, &id))
    });
    done.map_err(|error| ClusterError::Unexpected(format!("{error}: {last}")))
}

fn is_exclusive(sets: &[(String, String)], id: &str) -> bool {
    let Some((cgroup, cpus)) = sets.iter().find(|(cgroup, _)| cgroup.contains(id)) else {
        return false;
    };
    let (own, pod) = (cpu_list(cpus), parent(cgroup));
    let mut others = sets.iter().filter(|(cgroup, _)| parent(cgroup) != pod);
    own.len() == CPUS_EACH && others.all(|(_, cpus)| cpu_list(cpus).is_disjoint(&own))
}

fn parent(cgroup: &str) -> &str {
    cgroup.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// CPUs of a list such as `0-2,5`.
pub(super) fn cpu_list(text: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_parsed() {
        assert_eq!(cpu_list("0-2,5"), [0, 1, 2, 5].into());
        assert_eq!(cpu_list(""), [].into());
    }

    #[test]
    fn an_exclusive_pod_has_its_class_and_whole_cpus() {
        let text = exclusive_pod("a", "LSE");
        assert!(
            text.contains("metadata: {labels: {koordinator.sh/qosClass: LSE}, name: a,"),
            "{text}"
        );
        assert!(text.contains("requests: {cpu: \"2\""), "{text}");
    }

    #[test]
    fn cpus_are_exclusive_to_a_pod_with_all_its_containers() {
        let sets = |other: &str| {
            [("k/pod-a/pause", "0-1"), ("k/pod-a/12", "0-1"), ("k/pod-b/34", other)]
                .map(|(cgroup, cpus)| (cgroup.to_owned(), cpus.to_owned()))
        };
        assert!(is_exclusive(&sets("2-7"), "12"));
        assert!(!is_exclusive(&sets("1-7"), "12") && !is_exclusive(&sets("2-7"), "34"));
        assert!(!is_exclusive(&sets("2-7"), "56"), "no such container");
    }
}
