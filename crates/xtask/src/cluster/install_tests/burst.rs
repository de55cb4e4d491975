//! A limit that shrinks in place while its container bursts.

use std::time::Duration;

use super::super::ClusterError;
use super::super::session::{Cluster, wait_until};
use super::{agent, ensure, pods};

const TIMEOUT: Duration = Duration::from_secs(300);
const POD: &str = "bursting";
/// Of 300m: 30 ms per period.
const LIMITS: &str = "{requests: {cpu: 50m}, limits: {cpu: 300m}}";
const SMALL: &str = "100m";
const SMALL_QUOTA_USEC: u64 = 10_000;

/// Uses 45 ms of CPU time at once, then sleeps: over the quota of a period, a sixth of the limit.
/// The CPU time is the kernel's, because the speed of an emulated CPU is not known.
const LOAD: &str = "used() { while read k v; do test $k = usage_usec && u=$v && break; done < /sys/fs/cgroup/cpu.stat; }; \
     while true; do used; e=$((u+45000)); while test $u -lt $e; do used; done; sleep 0.6; done";

/// The container gets a burst. Then the kubelet lowers its limit below the burst, and the kernel
/// accepts the quota.
pub(super) fn limit_shrinks_below_a_burst(cluster: &Cluster) -> Result<String, ClusterError> {
    let ready = agent::install(
        cluster,
        &[
            "profile=pin",
            "nri.enabled=true",
            "config.pinning=off",
            "config.burst=enforce",
            "config.adviceAfter=20s",
        ],
    )?;
    cluster.apply(&pods::pod(POD, "", &pods::container("main", LOAD, LIMITS)))?;
    wait_until("pod with bursts", TIMEOUT, || Ok(cgroup(cluster).is_ok()))?;
    let cgroup = cgroup(cluster)?;
    let mut burst = 0;
    let took = wait_until("burst above the smaller quota", TIMEOUT, || {
        burst = value(cluster, &format!("{cgroup}/cpu.max.burst"))?;
        Ok(burst > SMALL_QUOTA_USEC)
    })?;
    let patch = format!(
        r#"{{"spec": {{"containers": [{{"name": "main", "resources": {{"limits": {{"cpu": "{SMALL}"}}}}}}]}}}}"#
    );
    cluster.kubectl(&["patch", "pod", POD, "--subresource=resize", "--patch", &patch])?;
    let mut errors = 0;
    let shrunk = wait_until("smaller limit", TIMEOUT, || {
        let pod = cluster.get(&["pod", POD])?;
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut conditions = conditions.filter(|one| one["type"] == "PodResizeInProgress");
        errors += u32::from(conditions.any(|one| one["reason"] == "Error"));
        Ok(pod["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"] == SMALL)
    })?;
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
    Ok(format!(
        "{ready}; burst of {burst} µs after {:.0} s; limit 300m to {SMALL} in {:.0} s, seen as failed {errors} times, \
         burst then {lowered} µs",
        took.as_secs_f64(),
        shrunk.as_secs_f64(),
    ))
}

/// The container's directory in the node.
fn cgroup(cluster: &Cluster) -> Result<String, ClusterError> {
    let id = pods::container_id(cluster, POD)?;
    let script =
        format!("find /sys/fs/cgroup/kubepods.slice -type d -name 'cri-containerd-{id}.scope'");
    let found = cluster.in_node(&script)?;
    ensure(!found.trim().is_empty(), || format!("no cgroup of {id}"))?;
    Ok(found.trim().to_owned())
}

/// The first number of a file in the node.
fn value(cluster: &Cluster, path: &str) -> Result<u64, ClusterError> {
    let text = cluster.in_node(&format!("cat {path}"))?;
    let number = text.split_whitespace().next().and_then(|number| number.parse().ok());
    number.ok_or_else(|| ClusterError::Unexpected(format!("{path}: {text}")))
}
