//! Pods and seconds of the tests.

use std::sync::Arc;

use analysis::verdict::{Judged, PodSecond, Second, Verdicts, WorkloadName};
use api::{CauseKind, Verdict};
use snapshot::{Culprit, PodIdentity, TraceMode};

pub(crate) fn identity(name: &str) -> Arc<PodIdentity> {
    let (namespace, pod) = name.split_once('/').unwrap();
    Arc::new(PodIdentity::new(namespace.into(), pod.into()))
}

/// `system`, `?` for unattributed time, or a pod.
pub(crate) fn culprit(name: &str) -> Culprit {
    match name {
        "system" => Culprit::System,
        "?" => Culprit::Unattributed,
        pod => Culprit::Pod(identity(pod)),
    }
}

/// A pod that used this CPU time, in core-seconds, and sleeps in between.
pub(crate) fn pod(name: &str, request: f64, used: f64) -> PodSecond {
    let pod = identity(name);
    PodSecond {
        workload: Arc::new(WorkloadName::pod(&pod)),
        pod,
        request_cores: Some(request),
        used,
        sleeps: true,
        ..PodSecond::default()
    }
}

/// A pod whose threads never sleep.
pub(crate) fn spinner(name: &str, request: f64, used: f64) -> PodSecond {
    PodSecond { sleeps: false, ..pod(name, request, used) }
}

/// The pod, which lost time to these.
pub(crate) fn loses(pod: PodSecond, lost: &[(&str, f64)]) -> PodSecond {
    let lost = lost.iter().map(|(name, lost)| (culprit(name), *lost)).collect();
    PodSecond { lost, ..pod }
}

/// A traced second.
pub(crate) fn busy(pods: Vec<PodSecond>) -> Second {
    Second { seconds: 1.0, stolen: 0.0, trace: Some(TraceMode::Continuous), pods }
}

/// Judges the same second repeatedly, and returns the last result.
pub(crate) fn repeated(count: usize, second: &Second) -> Judged {
    let mut verdicts = Verdicts::default();
    (0..count).map(|_| verdicts.push(second)).last().unwrap()
}

/// `victim class reason ×factor by cause`.
pub(crate) fn line(verdict: &Verdict) -> String {
    let names: Vec<String> = verdict.culprits.iter().map(api::Culprit::name).collect();
    let cause = match verdict.cause {
        CauseKind::One => format!("by {}", names[0]),
        CauseKind::Several => format!("by several: {}", names.join(", ")),
        CauseKind::Unknown => "by unknown".to_owned(),
        CauseKind::Own => "by itself".to_owned(),
    };
    format!(
        "{}/{} {:?} {} ×{:.1} {cause}",
        verdict.victim.namespace,
        verdict.victim.pod,
        verdict.class,
        verdict.reason.as_str(),
        verdict.factor(),
    )
}

pub(crate) fn lines(judged: &Judged) -> Vec<String> {
    judged.verdicts.iter().map(line).collect()
}
