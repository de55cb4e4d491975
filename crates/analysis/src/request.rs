//! CPU requests: missing, too high, too low. A request is lowered late and step by step, because it
//! is the container's guaranteed share of a busy node.

use crate::facts::Facts;
use crate::patch;
use crate::rules::{Answer, Change, Figures, SMALL_CORES};

/// A request above this multiple of the 95th percentile of use is far above it.
const FAR_ABOVE: f64 = 2.0;
/// A request below this multiple of the 95th percentile of use is far below it.
const FAR_BELOW: f64 = 0.5;
/// Minimum of an advised request, cores, unless the limit is lower.
pub const LEAST_REQUEST_CORES: f64 = 0.025;
/// Minimum fraction of a request that one patch keeps.
pub const LEAST_REQUEST_PART: f64 = 0.1;
/// Reasons for no patch.
const NO_HISTORY: &str = "not enough history to recommend a request";
const OF_THE_POD: &str = "the pod-level request applies to all containers: raise it first";
/// Minimum time lost to other pods that is shown, core-seconds per second.
const LEAST_LOST_CORES: f64 = 0.001;
/// Observation time before a request is lowered, seconds: a day includes its peak.
pub const REQUEST_AFTER_SECONDS: u64 = 24 * 3600;

pub(crate) fn none(facts: &Facts) -> Answer {
    let has_request = facts.request_cores.is_some_and(|request| request > 0.0);
    if facts.spec?.pod_requests_cpu || has_request || is_said(facts) {
        return None;
    }
    let used = used_cores(facts);
    let figures = used.map(|p95| ("useP95Cores", p95)).into_iter().chain(lost(facts)).collect();
    let change = match used {
        Some(p95) => Change::Patch(patch::cpu_request(
            &facts.container,
            at_most_limit(facts, p95.max(LEAST_REQUEST_CORES)),
        )),
        None => Change::none(NO_HISTORY),
    };
    Some((figures, change))
}

/// Whether the finding about a slowed pod contains the change of the request.
fn is_said(facts: &Facts) -> bool {
    facts.slowed.as_ref().is_some_and(|verdict| verdict.request_too_low && verdict.is_harm())
}

pub(crate) fn above_use(facts: &Facts) -> Answer {
    let (request, p95, figures) = request_and_use(facts)?;
    let lowered =
        whole_if_whole(facts, p95.max(LEAST_REQUEST_CORES).max(request * LEAST_REQUEST_PART));
    let is_far = request > p95 * FAR_ABOVE && request - lowered >= SMALL_CORES;
    is_far.then(|| (figures, lower(facts, request, lowered)))
}

/// The request of a container of a slowed pod that uses more than it requests, raised to the use.
pub(crate) fn raised(facts: &Facts) -> Change {
    if facts.spec.is_some_and(|spec| spec.pod_requests_cpu) {
        return Change::none(OF_THE_POD);
    }
    let Some(used) = facts.spec.and_then(|_| used_cores(facts)) else {
        return Change::none(NO_HISTORY);
    };
    let request = facts.request_cores.unwrap_or(0.0);
    let least = if request > 0.0 { 0.0 } else { LEAST_REQUEST_CORES };
    let raised = whole_if_whole(facts, used.max(least));
    if raised <= request {
        return Change::none(
            "raise the CPU request: the use of a container that waits does not show how much it needs",
        );
    }
    Change::Patch(patch::cpu_request(&facts.container, at_most_limit(facts, raised)))
}

pub(crate) fn below_use(facts: &Facts) -> Answer {
    let (request, p95, mut figures) = request_and_use(facts).filter(|_| !is_said(facts))?;
    figures.extend(lost(facts));
    if request >= p95 * FAR_BELOW || p95 - request < SMALL_CORES {
        return None;
    }
    let change = match facts.spec.is_some_and(|spec| spec.pod_requests_cpu) {
        true => Change::none(OF_THE_POD),
        false => {
            let raised = at_most_limit(facts, whole_if_whole(facts, p95));
            Change::Patch(patch::cpu_request(&facts.container, raised))
        }
    };
    Some((figures, change))
}

/// Lowers a request after a day of history. In a Guaranteed pod the limit is lowered with it, so
/// not below the limit that is known to suffice.
fn lower(facts: &Facts, request: f64, lowered: f64) -> Change {
    let watched = facts.cpu.watched_seconds;
    if watched < REQUEST_AFTER_SECONDS {
        return Change::none(format!("not enough history: {} of 24 h", duration(watched)));
    }
    if !is_guaranteed(facts) {
        return Change::Patch(patch::cpu_request(&facts.container, lowered));
    }
    let enough = facts.cpu.limit.filter(|limit| !limit.is_lower_bound).zip(facts.cpu.most_cores);
    let Some((limit, most)) = enough else {
        return Change::none(
            "the pod is Guaranteed, so limit and request must be equal, and the required limit is not known yet",
        );
    };
    let both = whole_if_whole(facts, lowered.max(limit.cores).max(most));
    if request - both < SMALL_CORES {
        return Change::none(
            "the pod is Guaranteed, so limit and request must be equal, and it needs the limit",
        );
    }
    Change::Patch(patch::cpu_limit_and_request(&facts.container, both))
}

/// Time lost to other pods, which the use behind a request includes.
fn lost(facts: &Facts) -> Option<(&'static str, f64)> {
    facts.lost_cores.filter(|&lost| lost >= LEAST_LOST_CORES).map(|lost| ("lostCores", lost))
}

/// Request and 95th percentile of use, cores, and both as figures.
fn request_and_use(facts: &Facts) -> Option<(f64, f64, Figures)> {
    let request = facts.request_cores.filter(|&request| request > 0.0)?;
    let p95 = used_cores(facts)?;
    Some((request, p95, vec![("requestCores", request), ("useP95Cores", p95)]))
}

/// 95th percentile of use, cores, capped because the estimate may be too high.
fn used_cores(facts: &Facts) -> Option<f64> {
    facts.cpu.request_cores.map(|p95| at_most_limit(facts, p95))
}

/// Caps at the limits: Kubernetes rejects a request above those of the spec, even if the kernel
/// enforces others. A request above the node's CPUs fits nowhere.
fn at_most_limit(facts: &Facts, cores: f64) -> f64 {
    let spec = facts.spec.unwrap_or_default();
    let node = facts.node_cpus.map(f64::from);
    let limits = [facts.limit_cores, spec.limit_cores, spec.pod_limit_cores, node];
    limits.into_iter().flatten().fold(cores, f64::min)
}

/// Rounds up to whole cores if the request is whole and may get exclusive CPUs: a fraction would
/// lose them.
pub(crate) fn whole_if_whole(facts: &Facts, cores: f64) -> f64 {
    if may_have_exclusive_cpus(facts) { cores.ceil() } else { cores }
}

/// Whether the pod's class and a whole request allow exclusive CPUs.
pub(crate) fn may_have_exclusive_cpus(facts: &Facts) -> bool {
    let is_whole =
        facts.request_cores.is_some_and(|request| request >= 1.0 && request.fract() < 1e-6);
    is_whole && facts.spec.is_some_and(|spec| spec.is_guaranteed || spec.is_exclusive_class)
}

pub(crate) fn is_guaranteed(facts: &Facts) -> bool {
    facts.spec.is_some_and(|spec| spec.is_guaranteed)
}

/// Formats as `40 s`, `4 min`, `13 h`.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
