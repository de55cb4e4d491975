//! A limit that shrinks in place while its container bursts.

use std::time::Duration;

use serde_json::Value;

use super::agent;
use xtask::cluster::{Cluster, ClusterError, NODE_NAME, ensure, pods, wait_until};

const TIMEOUT: Duration = Duration::from_secs(300);
const POD: &str = "bursting";
/// Has a whole CPU of its own by the kubelet's static policy.
const STATIC: &str = "static-cpu";
/// A limit of 600m is 60 ms per period, with a burst up to 120 ms in one.
const LIMITS: &str = "{requests: {cpu: 50m}, limits: {cpu: 600m}}";
const SMALL: &str = "100m";
const SMALL_QUOTA_USEC: u64 = 10_000;

/// Uses 65 ms of CPU time at once, then sleeps: over the quota of a period, a sixth of the limit.
/// The CPU time is the kernel's, because the speed of an emulated CPU is not known. There, the last
/// reading and the start of `sleep` add up to 40 ms, which still fits into the quota and a burst.
const LOAD: &str = "cd /sys/fs/cgroup; if test -e cpu.stat; \
     then used() { while read k v; do test $k = usage_usec && u=$v && break; done < cpu.stat; }; \
     else used() { read u < cpuacct/cpuacct.usage; u=$((u/1000)); }; fi; \
     while true; do used; e=$((u+65000)); while test $u -lt $e; do used; done; sleep 0.6; done";

/// With NRI the runtime asks the agent before it writes a quota, so no attempt fails.
pub(super) fn limit_shrinks_below_a_burst_with_nri(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    let bursting = Bursting::start(cluster, "nri.enabled=true")?;
    let shrunk = bursting.shrink(cluster)?;
    ensure(shrunk.errors == 0, || format!("the resize failed at first: {}", shrunk.text))?;
    delete_pod(cluster)?;
    Ok(format!("{bursting}; {}", shrunk.text))
}

/// Without NRI the agent reads the new limit from the kubelet's list. The first attempt of the
/// kubelet may be earlier; a later one succeeds.
pub(super) fn limit_shrinks_below_a_burst_without_nri(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    let bursting = Bursting::start(cluster, "nri.enabled=false")?;
    let shrunk = bursting.shrink(cluster)?;
    delete_pod(cluster)?;
    Ok(format!("{bursting}; {}", shrunk.text))
}

/// The kernel rejects the quota while the burst of a killed agent stands. The next agent restores
/// it, and the kubelet's next attempt succeeds.
pub(super) fn limit_shrinks_below_a_burst_of_a_killed_agent(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    let bursting = Bursting::start(cluster, "nri.enabled=true")?;
    cluster.in_node("kill -KILL $(pgrep -x cpuwarden)")?;
    let shrunk = bursting.shrink(cluster)?;
    agent::await_ready(cluster)?;
    delete_pod(cluster)?;
    Ok(format!("{bursting}, then killed; {}", shrunk.text))
}

/// Next to containers with exclusive CPUs of the kubelet: a burst is restored when the agent ends,
/// and a limit shrinks below the burst of the next agent. The exclusive CPUs stay as they are.
pub(super) fn limit_shrinks_next_to_static_cpus(cluster: &Cluster) -> Result<String, ClusterError> {
    cluster.in_node(&restart_kubelet(
        "printf \"cpuManagerPolicy: static\\nreservedSystemCPUs: \\\"0\\\"\\n\" >> $config",
    ))?;
    await_node(cluster)?;
    let whole = "{requests: {cpu: \"1\", memory: 32Mi}, limits: {cpu: \"1\", memory: 32Mi}}";
    cluster.apply(&pods::pod(STATIC, "", &pods::container("main", "sleep 1000000", whole)))?;
    wait_until("pod with static CPUs", TIMEOUT, || {
        Ok(pods::container_cgroup(cluster, STATIC).is_ok())
    })?;
    let Settings { cpus, quota, burst, .. } = Settings::of(cluster, STATIC)?;
    let settings = format!("cat {cpus} {quota} {burst}");
    let before = cluster.in_node(&settings)?;

    let first = Bursting::start(cluster, "nri.enabled=true")?;
    let quota = value(cluster, &first.settings.quota)?;
    agent::uninstall(cluster)?;
    let left = [value(cluster, &first.settings.burst)?, value(cluster, &first.settings.quota)?];
    ensure(left == [0, quota], || format!("burst and quota after the uninstall: {left:?} µs"))?;
    let second = Bursting::start(cluster, "nri.enabled=true")?;
    let shrunk = second.shrink(cluster)?;
    ensure(shrunk.errors == 0, || format!("the resize failed at first: {}", shrunk.text))?;
    let after = cluster.in_node(&settings)?;
    ensure(before == after, || format!("static CPUs: before {before}, after {after}"))?;

    cluster.kubectl(&["delete", "pod", STATIC, "--wait"])?;
    delete_pod(cluster)?;
    cluster.in_node(&restart_kubelet(
        "sed -i \"/^cpuManagerPolicy/d; /^reservedSystemCPUs/d\" $config",
    ))?;
    await_node(cluster)?;
    let cpus = before.lines().next().unwrap_or_default();
    Ok(format!("static CPU {cpus}; {first}, 0 after the uninstall; {second}; {}", shrunk.text))
}

/// A script that changes `$config`, the kubelet's, and restarts it. Another policy needs a new state.
fn restart_kubelet(change: &str) -> String {
    format!(
        "config=/etc/kubernetes/kubelet.yaml; systemctl stop kubelet && {change} && \
         rm -f /var/lib/kubelet/cpu_manager_state && systemctl start kubelet"
    )
}

/// Waits until the kubelet answers.
fn await_node(cluster: &Cluster) -> Result<(), ClusterError> {
    let path = format!("/api/v1/nodes/{NODE_NAME}/proxy/healthz");
    wait_until("kubelet", TIMEOUT, || Ok(cluster.kubectl(&["get", "--raw", &path]).is_ok()))
        .map(drop)
}

/// Paths in the node of the CPU settings of a container.
struct Settings {
    cpus: String,
    /// Its first number is the quota in microseconds.
    quota: String,
    burst: String,
    stat: String,
}

impl Settings {
    /// Those of a pod's only container.
    fn of(cluster: &Cluster, pod: &str) -> Result<Self, ClusterError> {
        Ok(Self::below(&pods::container_cgroup(cluster, pod)?))
    }

    fn below(cgroup: &str) -> Self {
        let stat = format!("{cgroup}/cpu.stat");
        match cgroup.strip_prefix("/sys/fs/cgroup/cpu/") {
            Some(path) => Self {
                cpus: format!("/sys/fs/cgroup/cpuset/{path}/cpuset.cpus"),
                quota: format!("{cgroup}/cpu.cfs_quota_us"),
                burst: format!("{cgroup}/cpu.cfs_burst_us"),
                stat,
            },
            None => Self {
                cpus: format!("{cgroup}/cpuset.cpus"),
                quota: format!("{cgroup}/cpu.max"),
                burst: format!("{cgroup}/cpu.max.burst"),
                stat,
            },
        }
    }
}

/// A container with a burst.
struct Bursting {
    settings: Settings,
    /// Report of the agent's start and of the time until the burst.
    text: String,
}

/// A limit that has shrunk.
struct Shrunk {
    /// Failed attempts, of those that could be seen.
    errors: usize,
    text: String,
}

impl Bursting {
    /// Installs the agent, creates the pod if it is missing, and waits for its burst.
    fn start(cluster: &Cluster, nri: &str) -> Result<Self, ClusterError> {
        let values = [
            "profile=pin",
            "config.pinning=off",
            "config.burst=enforce",
            "config.adviceAfter=20s",
            // Emulated CPUs are slow; with a longer sample interval a burst takes minutes.
            "config.cpuBudget=1",
        ];
        let ready = agent::install(cluster, &[&values[..], &[nri]].concat())?;
        cluster.apply(&pods::pod(POD, "", &pods::container("main", LOAD, LIMITS)))?;
        wait_until(
            "pod with bursts",
            TIMEOUT,
            || Ok(pods::container_cgroup(cluster, POD).is_ok()),
        )?;
        let settings = Settings::of(cluster, POD)?;
        let mut burst = 0;
        let took = wait_until("burst above the smaller quota", TIMEOUT, || {
            burst = value(cluster, &settings.burst)?;
            Ok(burst > SMALL_QUOTA_USEC)
        });
        // On a node without free CPUs the load is spread over more periods, and nothing throttles it.
        let took = took.map_err(|error| {
            let stat = cluster.in_node(&format!("cat {}", settings.stat)).unwrap_or_default();
            ClusterError::Unexpected(format!("{error}; cpu.stat of the container:\n{stat}"))
        })?;
        let text = format!("{ready}; {nri}: burst of {burst} µs after {:.0} s", took.as_secs_f64());
        Ok(Self { settings, text })
    }

    /// The kubelet lowers the container's limit below the burst, and the kernel accepts the quota.
    fn shrink(&self, cluster: &Cluster) -> Result<Shrunk, ClusterError> {
        let patch = format!(
            r#"{{"spec": {{"containers": [{{"name": "main", "resources": {{"limits": {{"cpu": "{SMALL}"}}}}}}]}}}}"#
        );
        cluster.kubectl(&["patch", "pod", POD, "--subresource=resize", "--patch", &patch])?;
        let mut errors = 0;
        let took = wait_until("smaller limit", TIMEOUT, || {
            let pod = cluster.get(&["pod", POD])?;
            errors += usize::from(has_resize_error(&pod));
            Ok(pod["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"] == SMALL)
        })?;
        errors += resize_events(&cluster.get(&["events"])?);
        let quota = value(cluster, &self.settings.quota)?;
        let lowered = value(cluster, &self.settings.burst)?;
        ensure(quota == SMALL_QUOTA_USEC && lowered <= quota, || {
            format!("quota {quota} µs, burst {lowered} µs")
        })?;
        let status = &cluster.get(&["pod", POD])?["status"]["containerStatuses"][0];
        let restarts = status["restartCount"].as_u64().unwrap_or(u64::MAX);
        ensure(restarts == 0, || format!("{restarts} restarts"))?;
        let text = format!(
            "limit 600m to {SMALL} in {:.0} s, seen as failed {errors} times, burst then {lowered} µs",
            took.as_secs_f64(),
        );
        Ok(Shrunk { errors, text })
    }
}

impl std::fmt::Display for Bursting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Deletes the pod and its Events: the next test has a pod of the same name.
fn delete_pod(cluster: &Cluster) -> Result<(), ClusterError> {
    cluster.kubectl(&["delete", "pod", POD, "--wait"])?;
    let selector = format!("involvedObject.name={POD}");
    cluster.kubectl(&["delete", "events", "--field-selector", &selector]).map(drop)
}

/// Whether the last attempt of the kubelet to resize the pod failed.
fn has_resize_error(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "PodResizeInProgress" && one["reason"] == "Error")
}

/// Number of the pod's Events about a failed resize, which also show attempts between two polls.
fn resize_events(events: &Value) -> usize {
    let of_pod = pods::items(events).filter(|event| event["involvedObject"]["name"] == POD);
    of_pod.filter(|event| event["reason"] == "ResizeError").count()
}

/// The first number of a file in the node.
fn value(cluster: &Cluster, path: &str) -> Result<u64, ClusterError> {
    let text = cluster.in_node(&format!("cat {path}"))?;
    let number = text.split_whitespace().next().and_then(|number| number.parse().ok());
    number.ok_or_else(|| ClusterError::Unexpected(format!("{path}: {text}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_in_the_hierarchy_of_their_controller() {
        let v2 = Settings::below("/sys/fs/cgroup/kubepods.slice/a.scope");
        assert_eq!(v2.cpus, "/sys/fs/cgroup/kubepods.slice/a.scope/cpuset.cpus");
        assert_eq!(v2.burst, "/sys/fs/cgroup/kubepods.slice/a.scope/cpu.max.burst");
        let v1 = Settings::below("/sys/fs/cgroup/cpu/kubepods.slice/a.scope");
        assert_eq!(v1.cpus, "/sys/fs/cgroup/cpuset/kubepods.slice/a.scope/cpuset.cpus");
        assert_eq!(v1.burst, "/sys/fs/cgroup/cpu/kubepods.slice/a.scope/cpu.cfs_burst_us");
    }

    #[test]
    fn failed_resizes_are_found_in_the_condition_and_in_events() {
        let pod = |reason: &str| {
            json!({"status": {"conditions": [
                {"type": "Ready", "reason": "Error"},
                {"type": "PodResizeInProgress", "reason": reason},
            ]}})
        };
        assert!(has_resize_error(&pod("Error")) && !has_resize_error(&pod("")));
        let event =
            |name: &str, reason: &str| json!({"involvedObject": {"name": name}, "reason": reason});
        let events = json!({"items": [
            event(POD, "ResizeError"),
            event(POD, "ResizeCompleted"),
            event("other", "ResizeError"),
        ]});
        assert_eq!(resize_events(&events), 1);
    }
}
