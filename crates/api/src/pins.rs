//! Answer of `/api/v1/pins`: pods with exclusive CPUs, rejected requests, and settings in force.

use serde::{Deserialize, Serialize};

/// A pod with exclusive CPUs, or one whose request was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PinRow {
    /// A pod with exclusive CPUs.
    Pinned {
        /// The pod and its CPUs.
        #[serde(flatten)]
        pin: Pin,
        /// Whether every cgroup of the pod has exactly these CPUs, and no pod outside the allowed
        /// ones has any of them.
        verified: bool,
    },
    /// A rejected request; in JSON the key `reason` identifies it.
    Rejected(Rejection),
    /// A setting of a pod, such as a restriction of a best-effort pod; in JSON the key `setting`
    /// identifies it.
    Restricted(Restricted),
    /// Status of the running agent, if it does not write cpusets.
    NotInEffect {
        /// The reason.
        not_in_effect: String,
    },
}

/// A pod with exclusive CPUs. Also stored in pinning's checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Namespace; empty if the pod's name is unknown.
    pub namespace: String,
    /// Pod name, or its UID if the name is unknown.
    pub pod: String,
    /// `LSE` or `LSR`.
    pub cpu_qos: String,
    /// `FullPCPUs` or `SpreadByPCPUs`.
    pub bind_policy: String,
    /// Its CPUs in list format (`0-1,4`).
    pub cpus: String,
    /// Time of the grant, seconds since 1970.
    pub since: u64,
}

/// A pod that runs in the shared pool because its request for exclusive CPUs was rejected. Also
/// stored in pinning's checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejection {
    /// Namespace; empty if the pod's name is unknown.
    pub namespace: String,
    /// Pod name, or its UID if the name is unknown.
    pub pod: String,
    /// Reason of the rejection, as in `cpuwarden_pin_rejections_total`.
    pub reason: String,
}

/// A setting of a cgroup in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restricted {
    /// Namespace of the pod; empty if the pod was not known.
    #[serde(default)]
    pub namespace: String,
    /// Name of the pod; empty if it was not known.
    #[serde(default)]
    pub pod: String,
    /// Path of the cgroup below its controller's mount.
    pub cgroup: String,
    /// The setting: `idle`, `cpus`, `quota`, …
    pub setting: String,
    /// Its value.
    pub value: String,
    /// Its value before; it will be restored.
    pub original: String,
}

impl PinRow {
    /// Namespace and name of the pod; `None` for the status of the agent.
    #[must_use]
    pub fn pod(&self) -> Option<(&str, &str)> {
        match self {
            Self::Pinned { pin, .. } => Some((&pin.namespace, &pin.pod)),
            Self::Rejected(row) => Some((&row.namespace, &row.pod)),
            Self::Restricted(row) => Some((&row.namespace, &row.pod)),
            Self::NotInEffect { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_tells_each_kind_of_row_from_the_others() {
        let rows = json!([
            {"namespace": "shop", "pod": "web", "cpu_qos": "LSR", "bind_policy": "FullPCPUs",
             "cpus": "0-1", "since": 5, "verified": true},
            {"namespace": "shop", "pod": "web", "reason": "node_cap"},
            {"namespace": "shop", "pod": "web", "cgroup": "kubepods/poda", "setting": "idle",
             "value": "1", "original": "0"},
            {"not_in_effect": "koordlet also places containers"},
        ]);
        let parsed: Vec<PinRow> = serde_json::from_value(rows.clone()).unwrap();
        assert!(matches!(
            parsed[..],
            [
                PinRow::Pinned { .. },
                PinRow::Rejected(_),
                PinRow::Restricted(_),
                PinRow::NotInEffect { .. }
            ]
        ));
        assert_eq!(serde_json::to_value(parsed).unwrap(), rows);
    }
}
