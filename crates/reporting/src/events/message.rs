//! Texts of the Events for a pod's owner and about the node.

use api::{PodName, Verdict};
use k8s_openapi::api::core::v1::ObjectReference;
use pinning::{Decision, PinningStatus, PodOutcome};
use yielding::rules::Step;

use super::Burst;

/// One event, without its time and count.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub(super) regarding: ObjectReference,
    /// Another object that has to do with it: the workload that slows the regarding pod.
    pub(super) related: Option<ObjectReference>,
    pub(super) kind: &'static EventKind,
    /// Text of the event; the API server accepts at most 1024 bytes.
    pub(super) note: String,
}

/// A kind of event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventKind {
    /// `Normal` or `Warning`.
    pub(super) type_: &'static str,
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
}

const fn kind(type_: &'static str, reason: &'static str, action: &'static str) -> EventKind {
    EventKind { type_, reason, action }
}

static PINNED: EventKind = kind("Normal", "CpusPinned", "Pin");
static RELEASED: EventKind = kind("Normal", "CpusReleased", "Release");
static REJECTED: EventKind = kind("Warning", "CpusRejected", "Pin");
static REPAIRED: EventKind = kind("Warning", "CpusetRepaired", "Repair");
static STEPPED_BACK: EventKind = kind("Warning", "PinningSteppedBack", "StepBack");
static POD_STEPPED_BACK: EventKind = kind("Warning", "PodSteppedBack", "StepBack");
static RESUMED: EventKind = kind("Normal", "PinningResumed", "Pin");

static CONTENTION: EventKind = kind("Warning", "CpuContention", "Suggest");
static YIELDS: EventKind = kind("Normal", "BestEffortYields", "Restrict");
static NOT_RESTRICTED: EventKind = kind("Normal", "BestEffortReleased", "Release");
static BURST_BEGINS: EventKind = kind("Normal", "CpuBurstBegins", "Burst");
static BURST_ENDS: EventKind = kind("Normal", "CpuBurstEnds", "Burst");
static QUOTA_BURST_REJECTED: EventKind = kind("Warning", "QuotaBurstRejected", "Burst");

/// Maximum length of a note, bytes.
const NOTE: usize = 1000;

impl Message {
    /// The message for a pod's owner; `None` if the pod's name is unknown.
    pub(super) fn of(decision: &Decision) -> Option<Self> {
        if decision.namespace.is_empty() {
            return None;
        }
        let (kind, note) = match &decision.outcome {
            PodOutcome::Pinned { cpu_qos, bind_policy, cpus } => {
                (&PINNED, format!("Assigned exclusive CPUs {cpus} ({cpu_qos}, {bind_policy})"))
            }
            PodOutcome::Released => {
                (&RELEASED, "Released exclusive CPUs; running in the shared pool".to_owned())
            }
            PodOutcome::Rejected(reason) => (
                &REJECTED,
                format!("Exclusive CPUs rejected: {reason}; running in the shared pool"),
            ),
            PodOutcome::SteppedBack { cause, minutes } => (
                &POD_STEPPED_BACK,
                format!(
                    "Paused exclusive CPUs for {minutes} min: {cause}; running in the shared pool"
                ),
            ),
            PodOutcome::Repaired(1) => (
                &REPAIRED,
                "Another program changed a cpuset of the pod; cpuwarden restored it".to_owned(),
            ),
            PodOutcome::Repaired(count) => (
                &REPAIRED,
                format!(
                    "Another program changed {count} cpusets of the pod; cpuwarden restored them"
                ),
            ),
        };
        let Decision { uid, namespace, pod, .. } = decision;
        Some(Self::new(reference("Pod", Some(namespace), pod, uid), kind, note))
    }

    /// The message about the node when it stops writing cpusets, or resumes.
    pub(super) fn of_status(node: &str, status: &PinningStatus) -> Self {
        let (kind, mut note) = match status {
            PinningStatus::Observing(reason) => {
                (&STEPPED_BACK, format!("Stopped writing cpusets: {reason}"))
            }
            PinningStatus::Enforcing => (&RESUMED, "Resumed writing cpusets".to_owned()),
        };
        note.truncate(note.floor_char_boundary(NOTE));
        Self::new(node_reference(node), kind, note)
    }

    /// The message for the owner of a pod that others slow; `None` if the pod's name is unknown.
    pub(super) fn of_verdict(uid: &str, verdict: &Verdict) -> Option<Self> {
        let PodName { namespace, pod } = &verdict.victim;
        if namespace.is_empty() {
            return None;
        }
        let summary = verdict.summary.strip_prefix("slowed").unwrap_or(&verdict.summary);
        let mut note = format!("Slowed{summary}: {}", verdict.remedy);
        note.truncate(note.floor_char_boundary(NOTE));
        let regarding = reference("Pod", Some(namespace), pod, uid);
        let culprit = verdict.culprit().filter(|culprit| !culprit.is_system());
        let related = culprit.map(|culprit| ObjectReference {
            uid: None,
            api_version: (culprit.kind == "Pod").then(|| "v1".to_owned()),
            ..reference(&culprit.kind, Some(&culprit.namespace), &culprit.name, "")
        });
        Some(Self { related, ..Self::new(regarding, &CONTENTION, note) })
    }

    /// The message about the node when its best-effort pods take another step.
    pub(super) fn of_step(node: &str, step: Step, reason: &str) -> Self {
        let (kind, mut note) = match step {
            Step::None => {
                (&NOT_RESTRICTED, format!("Best-effort pods are no longer restricted: {reason}"))
            }
            step => {
                let number = step.number();
                let how = match step {
                    Step::None | Step::Idle => "cpu.idle",
                    Step::FewerCpus => "fewer CPUs",
                    Step::Quota => "a quota",
                };
                let what = format!("Best-effort pods yield CPU (step {number} of 3): {how}");
                (&YIELDS, format!("{what}; {reason}"))
            }
        };
        note.truncate(note.floor_char_boundary(NOTE));
        Self::new(node_reference(node), kind, note)
    }

    /// The message for a pod's owner when a burst begins, ends or is rejected.
    pub(super) fn of_burst([namespace, pod, uid]: [&str; 3], burst: &Burst<'_>) -> Self {
        let (kind, container, mut note) = match burst {
            Burst::Begins { container, percent, without, with } => (
                &BURST_BEGINS,
                container,
                format!(
                    "CPU limit of container {container} may burst by {percent}% of its limit: \
                     throttled periods fall from {:.1}% to {:.1}% in the replay",
                    without * 100.0,
                    with * 100.0
                ),
            ),
            Burst::Ends { container, reason } => (
                &BURST_ENDS,
                container,
                format!("CPU limit of container {container} no longer bursts: {reason}"),
            ),
            Burst::Rejected { container } => (
                &QUOTA_BURST_REJECTED,
                container,
                format!(
                    "Quota above the CPU limit of container {container} rejected: \
                     cpuwarden offers bursts, not cfsQuotaBurst"
                ),
            ),
        };
        note.truncate(note.floor_char_boundary(NOTE));
        // As in the kubelet's own events of a container.
        let field_path = Some(format!("spec.containers{{{container}}}"));
        let of_pod = reference("Pod", Some(namespace), pod, uid);
        Self::new(ObjectReference { field_path, ..of_pod }, kind, note)
    }

    fn new(regarding: ObjectReference, kind: &'static EventKind, note: String) -> Self {
        Self { regarding, related: None, kind, note }
    }

    /// Whether both are of the same kind and about the same object or container, and the same other
    /// pod if there is one.
    pub(super) fn is_about_the_same(&self, other: &Self) -> bool {
        let (one, two) = (&self.regarding, &other.regarding);
        self.kind == other.kind
            && one.uid == two.uid
            && one.field_path == two.field_path
            && self.related == other.related
    }

    /// Namespace of the event: `default` for an object without a namespace.
    pub(super) fn namespace(&self) -> &str {
        self.regarding.namespace.as_deref().unwrap_or("default")
    }

    #[cfg(test)]
    pub(super) fn of_test(pod: usize, note: &str) -> Self {
        let pod = format!("pod-{pod}");
        Self::new(reference("Pod", Some("test"), &pod, &pod), &PINNED, note.to_owned())
    }
}

/// As in the kubelet's own events of a node, the UID is the node's name.
fn node_reference(node: &str) -> ObjectReference {
    reference("Node", None, node, node)
}

fn reference(kind: &str, namespace: Option<&str>, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
