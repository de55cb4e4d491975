//! Texts of the Events for a pod's owner and about the node.

use k8s_openapi::api::core::v1::ObjectReference;
use pinning::{Decision, PinningStatus, PodOutcome};

/// One event, without its time and count.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub(super) regarding: ObjectReference,
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
static REFUSED: EventKind = kind("Warning", "CpusRejected", "Pin");
static REPAIRED: EventKind = kind("Warning", "CpusetRepaired", "Repair");
static STEPPED_BACK: EventKind = kind("Warning", "PinningSteppedBack", "StepBack");
static POD_STEPPED_BACK: EventKind = kind("Warning", "PodSteppedBack", "StepBack");
static RESUMED: EventKind = kind("Normal", "PinningResumed", "Pin");

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
            PodOutcome::Rejected(reason) => {
                (&REFUSED, format!("Exclusive CPUs rejected: {reason}; running in the shared pool"))
            }
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
        Some(Self { regarding: reference("Pod", Some(namespace), pod, uid), kind, note })
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
        // As in the kubelet's own events of a node, the UID is the node's name.
        Self { regarding: reference("Node", None, node, node), kind, note }
    }

    /// Whether both are of the same kind and about the same object.
    pub(super) fn is_about_the_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.regarding.uid == other.regarding.uid
    }

    /// Namespace of the event: `default` for an object without a namespace.
    pub(super) fn namespace(&self) -> &str {
        self.regarding.namespace.as_deref().unwrap_or("default")
    }

    #[cfg(test)]
    pub(super) fn of_test(pod: usize, note: &str) -> Self {
        let pod = format!("pod-{pod}");
        Self {
            regarding: reference("Pod", Some("test"), &pod, &pod),
            kind: &PINNED,
            note: note.to_owned(),
        }
    }
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
