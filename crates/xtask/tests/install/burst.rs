//! A limit that shrinks in place while its container bursts.

use std::time::Duration;

use serde_json::Value;

use super::agent;
use xtask::cluster::{Cluster, ClusterError, wait_until};
use xtask::cluster::{ensure, pods};

const TIMEOUT: Duration = Duration::from_secs(300);
const POD: &str = "bursting";
/// A limit of 600m is 60 ms per period, with a burst up to 120 ms in one.
const LIMITS: &str = "{requests: {cpu: 50m}, limits: {cpu: 600m}}";
const SMALL: &str = "100m";
const SMALL_QUOTA_USEC: u64 = 10_000;

/// Uses 65 ms of CPU time at once, then sleeps: over the quota of a period, a sixth of the limit.
/// The CPU time is the kernel's, because the speed of an emulated CPU is not known. There, the last
/// reading and the start of `sleep` add up to 40 ms, which still fits into the quota and a burst.
const LOAD: &str = "used() { while read k v; do test $k = usage_usec && u=$v && break; done < /sys/fs/cgroup/cpu.stat; }; \
     while true; do used; e=$((u+65000)); while test $u -lt $e; do used; done; sleep 0.6; done";

/// With NRI the runtime asks the agent before it writes a quota, so no attempt fails.
pub(super) fn limit_shrinks_below_a_burst_with_nri(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    let shrunk = shrink_below_burst(cluster, "nri.enabled=true")?;
    ensure(shrunk.errors == 0, || format!("the resize failed at first: {}", shrunk.text))?;
    Ok(shrunk.text)
}

/// Without NRI the agent reads the new limit from the kubelet's list. The first attempt of the
/// kubelet may be earlier; a later one succeeds.
pub(super) fn limit_shrinks_below_a_burst_without_nri(
    cluster: &Cluster,
) -> Result<String, ClusterError> {
    Ok(shrink_below_burst(cluster, "nri.enabled=false")?.text)
}

/// A limit that has shrunk.
struct Shrunk {
    /// Failed attempts, of those that could be seen.
    errors: usize,
    text: String,
}

/// The container gets a burst. Then the kubelet lowers its limit below the burst, and the kernel
/// accepts the quota.
fn shrink_below_burst(cluster: &Cluster, nri: &str) -> Result<Shrunk, ClusterError> {
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
    wait_until("pod with bursts", TIMEOUT, || Ok(pods::container_cgroup(cluster, POD).is_ok()))?;
    let cgroup = pods::container_cgroup(cluster, POD)?;
    let mut burst = 0;
    let took = wait_until("burst above the smaller quota", TIMEOUT, || {
        burst = value(cluster, &format!("{cgroup}/cpu.max.burst"))?;
        Ok(burst > SMALL_QUOTA_USEC)
    });
    // On a node without free CPUs the load is spread over more periods, and nothing throttles it.
    let took = took.map_err(|error| {
        let stat = cluster.in_node(&format!("cat {cgroup}/cpu.stat")).unwrap_or_default();
        ClusterError::Unexpected(format!("{error}; cpu.stat of the container:\n{stat}"))
    })?;
    let patch = format!(
        r#"{{"spec": {{"containers": [{{"name": "main", "resources": {{"limits": {{"cpu": "{SMALL}"}}}}}}]}}}}"#
    );
    cluster.kubectl(&["patch", "pod", POD, "--subresource=resize", "--patch", &patch])?;
    let mut errors = 0;
    let shrunk = wait_until("smaller limit", TIMEOUT, || {
        let pod = cluster.get(&["pod", POD])?;
        errors += usize::from(has_resize_error(&pod));
        Ok(pod["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"] == SMALL)
    })?;
    errors += resize_events(&cluster.get(&["events"])?);
    let quota = value(cluster, &format!("{cgroup}/cpu.max"))?;
    let lowered = value(cluster, &format!("{cgroup}/cpu.max.burst"))?;
    ensure(quota == SMALL_QUOTA_USEC && lowered <= quota, || {
        format!("quota {quota} µs, burst {lowered} µs")
    })?;
    let restarts = cluster.get(&["pod", POD])?["status"]["containerStatuses"][0]["restartCount"]
        .as_u64()
        .unwrap_or(u64::MAX);
    ensure(restarts == 0, || format!("{restarts} restarts"))?;
    cluster.kubectl(&["delete", "pod", POD, "--wait"])?;
    // The next test has a pod of the same name.
    cluster.kubectl(&[
        "delete",
        "events",
        "--field-selector",
        &format!("involvedObject.name={POD}"),
    ])?;
    let text = format!(
        "{ready}; {nri}: burst of {burst} µs after {:.0} s; limit 600m to {SMALL} in {:.0} s, seen as failed {errors} \
         times, burst then {lowered} µs",
        took.as_secs_f64(),
        shrunk.as_secs_f64(),
    );
    Ok(Shrunk { errors, text })
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
