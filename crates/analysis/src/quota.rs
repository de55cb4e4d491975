//! CPU limits: quotas that throttle, quotas that are not in force, and fractions of a core.

use api::{Language, OBJECTIVE};

use crate::collections::limit_with_larger_heap;
use crate::facts::Facts;
use crate::patch;
use crate::request;
use crate::rules::{Answer, Change, THROTTLED_SHARE};

/// Minimum relevant time throttled by an ancestor, seconds per second.
const ANCESTOR_THROTTLED_RATE: f64 = 0.05;
/// A 95th percentile of use below this share of the limit means that only bursts exceed the limit.
const FAR_BELOW: f64 = 0.5;

pub(crate) fn throttled_by_own_quota(facts: &Facts) -> Answer {
    let share = facts.throttled_share.filter(|&share| share > THROTTLED_SHARE)?;
    let limit = facts.own_limit_cores?;
    let mut figures = vec![("throttledShare", share), ("limitCores", limit)];
    figures.extend(advised_limit(facts, limit).map(|advised| ("recommendedLimitCores", advised)));
    figures.extend(with_todays_heap(facts).map(|cores| ("limitCoresWithTodaysHeap", cores)));
    Some((figures, raised_limit(facts, limit)))
}

/// The average fits the limit, some periods do not: a burst allowance would work as well as a
/// higher limit.
pub(crate) fn limit_too_tight_for_bursts(facts: &Facts) -> Answer {
    let share = facts.throttled_share.filter(|&share| share > OBJECTIVE)?;
    let (limit, p95) = (facts.own_limit_cores?, facts.cpu.request_cores?);
    let burst = facts.cpu.burst_seconds.filter(|_| p95 < limit * FAR_BELOW)?;
    let figures = vec![
        ("throttledShare", share),
        ("limitCores", limit),
        ("useP95Cores", p95),
        ("recommendedBurstSeconds", burst),
    ];
    // No field of a pod's spec sets cpu.max.burst.
    Some((figures, raised_limit(facts, limit)))
}

/// The limit that the replay advises for all work, if a larger heap removes part of it.
fn with_todays_heap(facts: &Facts) -> Option<f64> {
    let limit = facts.cpu.limit?.cores;
    limit_with_larger_heap(facts).filter(|&with| with < limit).map(|_| limit)
}

/// The advised limit, if it is above the current one, and more CPUs can be the remedy. Does not
/// include the work that an advised larger heap removes.
fn advised_limit(facts: &Facts, in_force: f64) -> Option<f64> {
    if has_exclusive_cpus(facts) {
        return None;
    }
    let cores = limit_with_larger_heap(facts).unwrap_or(facts.cpu.limit?.cores);
    let advised = request::whole_if_whole(facts, cores);
    Some(at_most_node(facts, advised)).filter(|&advised| advised > in_force)
}

/// A limit above the node's CPUs has no effect, and a request above them fits nowhere.
fn at_most_node(facts: &Facts, cores: f64) -> f64 {
    facts.node_cpus.map_or(cores, |cpus| cores.min(f64::from(cpus)))
}

/// The limit after the container's own findings are applied, if it has a limit.
pub(crate) fn limit_to_be(facts: &Facts) -> Option<f64> {
    let in_force = facts.limit_cores?;
    let raised = throttled_by_own_quota(facts).or_else(|| limit_too_tight_for_bursts(facts));
    let is_raised = raised.is_some_and(|(_, change)| matches!(change, Change::Patch(_)));
    Some(advised_limit(facts, in_force).filter(|_| is_raised).unwrap_or(in_force))
}

fn raised_limit(facts: &Facts, in_force: f64) -> Change {
    if has_exclusive_cpus(facts) {
        return Change::none(without_quota(facts));
    }
    if facts.is_throttled_at_start_only {
        return Change::none(
            "throttled only in the first minute after each start: a limit for the start would be too high for the rest \
             of its life; allow bursts, or raise the limit in place during the start",
        );
    }
    match advised_limit(facts, in_force) {
        Some(advised) => container_limit(facts, advised),
        None if with_todays_heap(facts).is_some_and(|cores| cores > in_force) => Change::none(
            "the limit is enough for the work that a larger heap leaves: set the heap's variables first",
        ),
        None => Change::none("no higher limit is recommended yet"),
    }
}

/// A change of the container's limit. Kubernetes rejects one above the pod's own, and a lower one
/// than the spec's may be below the request.
fn container_limit(facts: &Facts, cores: f64) -> Change {
    let spec = facts.spec.unwrap_or_default();
    let of_pod = facts.pod.filter(|pod| pod.is_of_the_spec).map(|pod| pod.limit_cores);
    if of_pod.into_iter().chain(spec.pod_limit_cores).any(|limit| cores > limit) {
        return Change::none("the pod-level limit is lower: raise it first");
    }
    if spec.limit_cores.is_some_and(|limit| cores <= limit) {
        return Change::none("the limit of the spec is higher than the quota in force");
    }
    // Pod-level requests bound the sum of the containers' and decide the QoS class.
    Change::Patch(match request::is_guaranteed(facts) && !spec.pod_requests_cpu {
        true => patch::cpu_limit_and_request(&facts.container, cores),
        false => patch::cpu_limit(&facts.container, cores),
    })
}

/// The kubelet enforces quotas of the container and of the pod; the driver of the claim can lift
/// only the container's (KEP-5517).
pub(crate) fn claimed_cpus_throttled(facts: &Facts) -> Answer {
    let rate = facts.ancestor_throttled_rate.filter(|&rate| rate > ANCESTOR_THROTTLED_RATE)?;
    let pod = facts.pod.filter(|pod| pod.throttles && claims_cpus(facts))?;
    let mut figures = vec![("throttledSecondsPerSecond", rate), ("podLimitCores", pod.limit_cores)];
    figures.extend(facts.cpus.map(|cpus| ("cpus", f64::from(cpus))));
    let reason = if pod.is_of_the_spec {
        "remove the CPU limit of the pod's spec: the claim already bounds the CPUs"
    } else {
        "remove the CPU limits of the pod's containers: the pod's quota is their sum, and the claim \
         already bounds the CPUs"
    };
    Some((figures, Change::none(reason)))
}

fn claims_cpus(facts: &Facts) -> bool {
    facts.claims_cpus || facts.runtime.as_ref().is_some_and(|runtime| runtime.claims_cpus)
}

/// Whether the container has CPUs of its own: those of a claim, or as many as its whole request, on
/// a node with more.
fn has_exclusive_cpus(facts: &Facts) -> bool {
    let has_requested = || {
        let (cpus, request) = (facts.cpus?, facts.request_cores?);
        Some(cpus < facts.node_cpus? && f64::from(cpus) == request)
    };
    claims_cpus(facts)
        || request::may_have_exclusive_cpus(facts) && has_requested().unwrap_or(false)
}

/// On exclusive CPUs a quota only delays: the CPUs themselves are the bound.
fn without_quota(facts: &Facts) -> &'static str {
    if claims_cpus(facts) {
        "the quota is the cause: remove the CPU limit, because the claim already bounds the CPUs"
    } else {
        "the quota is the cause, as the container has exclusive CPUs: let the kubelet set none on them \
         (DisableCPUQuotaWithExclusiveCPUs for its own static policy, else cpuCFSQuota: false)"
    }
}

/// Only without a claim: a higher limit does not help against the throttling of claimed CPUs.
pub(crate) fn throttled_by_ancestor(facts: &Facts) -> Answer {
    if claimed_cpus_throttled(facts).is_some() {
        return None;
    }
    let rate = facts.ancestor_throttled_rate.filter(|&rate| rate > ANCESTOR_THROTTLED_RATE)?;
    let mut figures = vec![("throttledSecondsPerSecond", rate)];
    let Some(pod) = facts.pod.filter(|pod| pod.throttles) else {
        return Some((
            figures,
            Change::none("the quota is above the pod: on its QoS class or on kubepods"),
        ));
    };
    figures.push(("podLimitCores", pod.limit_cores));
    if has_exclusive_cpus(facts) {
        return Some((figures, Change::none(without_quota(facts))));
    }
    let advised = pod.advised_cores.map(|advised| at_most_node(facts, advised));
    let advised = advised.filter(|&advised| advised > pod.limit_cores);
    figures.extend(advised.map(|advised| ("recommendedPodLimitCores", advised)));
    let change = if pod.is_of_the_spec {
        let patch =
            advised.map(|advised| patch::pod_cpu_limit(advised, request::is_guaranteed(facts)));
        Change::or(patch, "no higher pod limit is recommended yet")
    } else {
        Change::none(
            "the pod's quota is the sum of its containers' limits: raise the limit that is too low",
        )
    };
    Some((figures, change))
}

/// The kubelet sets no quota where the container has exclusive CPUs, and a driver of claims lifts
/// it.
pub(crate) fn limit_not_in_force(facts: &Facts) -> Answer {
    let spec = facts.spec.filter(|spec| !spec.is_resizing)?;
    let limit = spec.limit_cores.filter(|_| facts.has_no_quota && !has_exclusive_cpus(facts))?;
    let reason = "the kernel enforces no quota on the container: the kubelet has cpuCFSQuota: false, or something \
                  on the node removed the quota";
    Some((vec![("specLimitCores", limit)], Change::none(reason)))
}

/// Only for the container's own limit if that is the lowest: other containers share the pod's. With
/// fewer threads than the limit the fraction is never reached, and with more, or with little use,
/// it matters little.
pub(crate) fn fractional_limit(facts: &Facts) -> Answer {
    let limit = facts.own_limit_cores.filter(|limit| limit.fract() > 1e-6)?;
    if facts.limit_cores.is_some_and(|lowest| lowest < limit) {
        return None;
    }
    let runtime = facts.runtime.as_ref()?;
    if runtime.parallelism.is_some_and(|threads| f64::from(threads) != limit.ceil()) {
        return None;
    }
    let is_used = facts.cpu.request_cores.is_some_and(|p95| p95 >= limit * FAR_BELOW);
    let is_possible = facts.node_cpus.is_none_or(|cpus| limit < f64::from(cpus));
    let takes_whole = matches!(runtime.language, Language::Go | Language::Jvm | Language::Dotnet);
    (is_used && is_possible && takes_whole)
        .then(|| (vec![("limitCores", limit)], container_limit(facts, limit.ceil())))
}
