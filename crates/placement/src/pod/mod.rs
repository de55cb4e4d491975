//! Labels, annotations and resources of a pod: requests that must be validated, not orders.

mod authorization;
mod claim;
mod profile;
mod spec;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use authorization::{Authorization, AuthorizationError};
pub(crate) use claim::{Claim, Classification, Rules, classify};
pub use profile::{Profile, ProfileError, Profiles, Selector};
pub use spec::{ResourceSpec, SpecError};

/// Label with the QoS class.
pub const QOS_CLASS_LABEL: &str = "koordinator.sh/qosClass";
/// Label with the priority class.
pub const PRIORITY_CLASS_LABEL: &str = "koordinator.sh/priority-class";
/// Annotation with the requested policies.
pub const RESOURCE_SPEC_ANNOTATION: &str = "scheduling.koordinator.sh/resource-spec";
/// Annotation with the decision of a Koordinator scheduler.
pub const RESOURCE_STATUS_ANNOTATION: &str = "scheduling.koordinator.sh/resource-status";

/// Pod UID, the pod's identity across all ticks.
pub type Uid = Arc<str>;

/// One pod that runs, or is about to run, on the node. Terminated pods are excluded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// Annotation [`RESOURCE_SPEC_ANNOTATION`].
    pub resource_spec: Option<String>,
    /// Annotation [`RESOURCE_STATUS_ANNOTATION`].
    pub resource_status: Option<String>,
    /// `spec.priority`.
    pub priority: Option<i32>,
    /// Whether the kubelet's QoS class is BestEffort.
    pub best_effort: bool,
    /// Whether its request was granted earlier and nothing else is known about it any more.
    pub admitted: bool,
    /// CPU request of the whole pod, millicores; `None` if any container lacks one.
    pub request_millis: Option<u64>,
    /// CPU limit of the whole pod, millicores; `None` if any container lacks one.
    pub limit_millis: Option<u64>,
    /// Order of arrival on the node: lower is older. Independent of anything the pod's author
    /// writes.
    pub arrival: u64,
}

/// Koordinator's QoS classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CpuQos {
    /// Latency-sensitive, exclusive: its CPUs are not shared with any pod.
    Lse,
    /// Latency-sensitive, reserved: best-effort pods may run on its CPUs.
    Lsr,
    /// Latency-sensitive: runs in the shared pool.
    Ls,
    /// Best effort: runs on the shared pool and the CPUs of LSR pods.
    Be,
    /// A system service. Runs in the shared pool: the reserved CPUs belong to the host, and any
    /// author can set the label.
    System,
}

/// Koordinator's priority bands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PriorityClass {
    Prod,
    Mid,
    Batch,
    Free,
}

impl CpuQos {
    /// Parses the label's value; `None` for any other text.
    #[must_use]
    pub fn parse(label: &str) -> Option<Self> {
        match label {
            "LSE" => Some(Self::Lse),
            "LSR" => Some(Self::Lsr),
            "LS" => Some(Self::Ls),
            "BE" => Some(Self::Be),
            "SYSTEM" => Some(Self::System),
            _ => None,
        }
    }
}

impl PriorityClass {
    /// The band of `spec.priority`, which admission checks; else that of the label; else the one
    /// implied by the QoS class.
    fn of(pod: &Pod, qos: CpuQos) -> Self {
        let label = || pod.labels.get(PRIORITY_CLASS_LABEL).and_then(|label| Self::parse(label));
        let implied = if qos == CpuQos::Be { Self::Batch } else { Self::Prod };
        pod.priority.and_then(Self::of_priority).or_else(label).unwrap_or(implied)
    }

    fn parse(label: &str) -> Option<Self> {
        match label {
            "koord-prod" => Some(Self::Prod),
            "koord-mid" => Some(Self::Mid),
            "koord-batch" => Some(Self::Batch),
            "koord-free" => Some(Self::Free),
            _ => None,
        }
    }

    fn of_priority(priority: i32) -> Option<Self> {
        match priority {
            9000..=9999 => Some(Self::Prod),
            7000..=7999 => Some(Self::Mid),
            5000..=5999 => Some(Self::Batch),
            3000..=3999 => Some(Self::Free),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_comes_from_spec_then_label_then_class() {
        let of = |label: Option<&str>, priority, qos| {
            let labels = label
                .map(|label| (PRIORITY_CLASS_LABEL.to_owned(), label.to_owned()))
                .into_iter()
                .collect();
            PriorityClass::of(&Pod { labels, priority, ..Pod::default() }, qos)
        };
        assert_eq!(of(Some("koord-prod"), Some(5500), CpuQos::Lsr), PriorityClass::Batch);
        assert_eq!(of(Some("koord-mid"), Some(0), CpuQos::Lsr), PriorityClass::Mid);
        assert_eq!(of(Some("koord-free"), None, CpuQos::Lsr), PriorityClass::Free);
        assert_eq!(of(Some("gold"), Some(5999), CpuQos::Lsr), PriorityClass::Batch);
        assert_eq!(of(None, Some(10_000), CpuQos::Ls), PriorityClass::Prod);
        assert_eq!(of(None, Some(0), CpuQos::Be), PriorityClass::Batch);
        for (priority, class) in
            [(9000, PriorityClass::Prod), (7999, PriorityClass::Mid), (3000, PriorityClass::Free)]
        {
            assert_eq!(of(None, Some(priority), CpuQos::Be), class);
        }
    }

    #[test]
    fn qos_labels_are_read_as_koordinator_writes_them() {
        let classes = ["LSE", "LSR", "LS", "BE", "SYSTEM"].map(CpuQos::parse);
        let all = [CpuQos::Lse, CpuQos::Lsr, CpuQos::Ls, CpuQos::Be, CpuQos::System];
        assert_eq!(classes, all.map(Some));
        assert_eq!(["lsr", "", "LSRR", "BestEffort"].map(CpuQos::parse), [None; 4]);
        assert_eq!(serde_json::to_string(&all).unwrap(), r#"["LSE","LSR","LS","BE","SYSTEM"]"#);
    }
}
