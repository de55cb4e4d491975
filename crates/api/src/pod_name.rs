//! The name of a pod in frames and verdicts.

use serde::{Deserialize, Serialize};

/// Namespace and name of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodName {
    /// Namespace; `system` for processes outside the pods, `other` for all remaining pods.
    pub namespace: String,
    /// Name; the UID while the pod is unknown; empty for `system` and `other`.
    pub pod: String,
}
