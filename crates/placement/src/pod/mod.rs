//! What a pod says of itself: requests, to be validated here, and never orders.

mod authorization;
mod claim;
mod profile;
mod spec;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use authorization::{Authorization, AuthorizationError};
pub(crate) use claim::{Claim, Rules, Wish, classify};
pub use profile::{Profile, ProfileError, Profiles, Selector};
pub use spec::{ResourceSpec, SpecError};

/// Label with the QoS class.
pub const QOS_CLASS_LABEL: &str = "koordinator.sh/qosClass";
/// Label with the priority class.
pub const PRIORITY_CLASS_LABEL: &str = "koordinator.sh/priority-class";
/// Annotation with the policies that a pod asks for.
pub const RESOURCE_SPEC_ANNOTATION: &str = "scheduling.koordinator.sh/resource-spec";
/// Annotation with what a Koordinator scheduler decided.
pub const RESOURCE_STATUS_ANNOTATION: &str = "scheduling.koordinator.sh/resource-status";

/// A pod's UID, as the caller identifies it over all ticks.
pub type Uid = Arc<str>;

/// One pod that runs, or is about to run, on the node; not one that has ended.
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
    /// The kubelet's QoS class is BestEffort.
    pub best_effort: bool,
    /// It has been granted what it asks for before, and nothing else is known of it any more.
    pub admitted: bool,
    /// CPU request of the whole pod, millicores; `None` when some container has none.
    pub request_millis: Option<u64>,
    /// CPU limit of the whole pod, millicores; `None` when some container has none.
    pub limit_millis: Option<u64>,
    /// Order of arrival on the node: lower is older. Not from anything that the pod's author writes.
    pub arrival: u64,
}

/// Koordinator's QoS classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum QosClass {
    /// Latency-sensitive, exclusive: its CPUs are shared with nobody.
    Lse,
    /// Latency-sensitive, reserved: best-effort pods may run on its CPUs.
    Lsr,
    /// Latency-sensitive: the share pool.
    Ls,
    /// Best effort: the share pool and the CPUs of LSR pods.
    Be,
    /// A system service; runs in the share pool, because the reserved CPUs are the host's and the label is only the
    /// author's word.
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

impl QosClass {
    /// The value of the label; `None` for any other text.
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
    /// The band of `spec.priority`, which admission checks; else the label's word, else what the QoS class implies.
    fn of(pod: &Pod, qos: QosClass) -> Self {
        let label = || pod.labels.get(PRIORITY_CLASS_LABEL).and_then(|label| Self::parse(label));
        let implied = if qos == QosClass::Be { Self::Batch } else { Self::Prod };
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
    fn priority_is_the_specs_then_the_labels_then_what_the_class_implies() {
        let of = |label: Option<&str>, priority, qos| {
            let labels = label.map(|label| (PRIORITY_CLASS_LABEL.to_owned(), label.to_owned())).into_iter().collect();
            PriorityClass::of(&Pod { labels, priority, ..Pod::default() }, qos)
        };
        assert_eq!(of(Some("koord-prod"), Some(5500), QosClass::Lsr), PriorityClass::Batch);
        assert_eq!(of(Some("koord-mid"), Some(0), QosClass::Lsr), PriorityClass::Mid);
        assert_eq!(of(Some("koord-free"), None, QosClass::Lsr), PriorityClass::Free);
        assert_eq!(of(Some("gold"), Some(5999), QosClass::Lsr), PriorityClass::Batch);
        assert_eq!(of(None, Some(10_000), QosClass::Ls), PriorityClass::Prod);
        assert_eq!(of(None, Some(0), QosClass::Be), PriorityClass::Batch);
        for (priority, class) in [(9000, PriorityClass::Prod), (7999, PriorityClass::Mid), (3000, PriorityClass::Free)]
        {
            assert_eq!(of(None, Some(priority), QosClass::Be), class);
        }
    }

    #[test]
    fn qos_labels_are_read_as_koordinator_writes_them() {
        let classes = ["LSE", "LSR", "LS", "BE", "SYSTEM"].map(QosClass::parse);
        let all = [QosClass::Lse, QosClass::Lsr, QosClass::Ls, QosClass::Be, QosClass::System];
        assert_eq!(classes, all.map(Some));
        assert_eq!(["lsr", "", "LSRR", "BestEffort"].map(QosClass::parse), [None; 4]);
        assert_eq!(serde_json::to_string(&all).unwrap(), r#"["LSE","LSR","LS","BE","SYSTEM"]"#);
    }
}
