//! The verdict in words, the same on every surface.

use api::{CauseKind, SlowedReason, Verdict, VictimClass};
use snapshot::TraceMode;

/// Facts that the text needs beside the verdict.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub(super) has_pod_quota: bool,
    pub(super) trace: Option<TraceMode>,
    /// Whether the cause is unknown mostly because the hypervisor took CPU time.
    pub(super) is_stolen: bool,
}

/// Continues the pod's name.
pub(super) fn summary(verdict: &Verdict, context: Context) -> String {
    format!(
        "slowed ×{:.1} {}, {:.0} s of the last minute",
        verdict.factor(),
        by(verdict, context),
        verdict.slowed_seconds.min(60.0)
    )
}

fn by(verdict: &Verdict, context: Context) -> String {
    let culprits = culprits(verdict);
    match (verdict.reason, verdict.cause) {
        (SlowedReason::AncestorLimit, kind) => {
            let limit = if context.has_pod_quota {
                "its pod's CPU limit"
            } else {
                "a CPU limit above its pod"
            };
            match kind {
                CauseKind::One => format!("by {limit}, which {culprits} uses up"),
                CauseKind::Several => format!("by {limit}, which it shares with {culprits}"),
                CauseKind::Own | CauseKind::Unknown => format!("by {limit}"),
            }
        }
        (SlowedReason::OwnLimit, _) => "by its own CPU limit".to_owned(),
        (SlowedReason::Own, _) => "by its own threads".to_owned(),
        (_, CauseKind::One) => format!("by {culprits}"),
        (_, CauseKind::Several) => format!("by several: {culprits}"),
        _ => format!("by waits for a CPU (cause unknown: {})", unknown(context)[0]),
    }
}

/// Reason for an unknown cause, and the remedy.
fn unknown(context: Context) -> [&'static str; 2] {
    match context.trace {
        None => [
            "waits are not traced",
            "trace waits to see who runs meanwhile: helm upgrade … --set profile=trace",
        ],
        Some(TraceMode::Bursts { .. }) => [
            "the trace samples in bursts",
            "raise --sched-trace-budget: the trace samples in bursts to stay within it",
        ],
        Some(TraceMode::Detached) => [
            "the trace is detached",
            "see the reason of cpuwarden_feature_enabled{feature=\"sched_trace\"}",
        ],
        Some(TraceMode::Continuous) if context.is_stolen => [
            "the hypervisor takes CPU time",
            "replace the node: see cpuwarden_node_steal_seconds_total",
        ],
        Some(TraceMode::Continuous) => [
            "too many waits without a known cause",
            "unknown: see cpuwarden_sched_trace_lost_seconds_total",
        ],
    }
}

fn culprits(verdict: &Verdict) -> String {
    let name = |culprit: &api::Culprit| match verdict.cause {
        CauseKind::One => culprit.name(),
        _ => format!("{} {:.0}%", culprit.name(), culprit.share * 100.0),
    };
    verdict.culprits.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// What to do, the first remedy first.
pub(super) fn remedy(verdict: &Verdict, context: Context) -> String {
    if verdict.restricted {
        return "nothing: the agent restricts this best-effort pod in favor of others".to_owned();
    }
    if verdict.class == VictimClass::BestEffort && verdict.reason.is_of_others() {
        return "nothing, or a CPU request: a best-effort pod gets what others leave".to_owned();
    }
    match verdict.reason {
        SlowedReason::Neighbor => neighbor(verdict),
        SlowedReason::System => "find the busy host service, or reserve CPUs for the system \
                                 (systemReserved of the kubelet)"
            .to_owned(),
        SlowedReason::Unknown => unknown(context)[1].to_owned(),
        SlowedReason::AncestorLimit if context.has_pod_quota => {
            "raise the CPU limit of the pod, or lower the use of the container that takes most of it"
                .to_owned()
        }
        SlowedReason::AncestorLimit => {
            "raise the quota above the pod: on its QoS class or on kubepods".to_owned()
        }
        SlowedReason::OwnLimit => "raise its CPU limit".to_owned(),
        SlowedReason::Own => "fewer threads, or more CPUs for the pod".to_owned(),
    }
}

fn neighbor(verdict: &Verdict) -> String {
    let mut remedies = Vec::new();
    if verdict.request_too_low {
        let (request, used) = (verdict.request_cores.unwrap_or_default(), verdict.used_cores);
        let wanted = used + verdict.lost_cores;
        remedies.push(match used > request {
            true => {
                format!("raise its CPU request: it uses {used:.2} cores and requests {request:.2}")
            }
            false => format!(
                "raise its CPU request: it gets no more than the {request:.2} cores that it \
                 requests, and wants up to {wanted:.2}"
            ),
        });
    }
    let Some(culprit) = verdict.culprit() else {
        remedies.push("move some of these pods to other nodes".to_owned());
        return remedies.join("; ");
    };
    let name = culprit.name();
    remedies.push(match culprit.request_cores {
        Some(request) if culprit.beyond_request => format!(
            "{name} uses {:.2} cores and requests {request:.2}: raise that request to the use, \
             limit it, or move it",
            culprit.used_cores
        ),
        Some(_) => format!("{name} stays within its request: move one of the two to another node"),
        None => format!("compare the use of {name} with its request, or move one of the two"),
    });
    remedies.join("; ")
}
