//! Reasons why a pod that requested exclusive CPUs runs in the shared pool: values of the label
//! `reason` of pin rejections.

use std::fmt;

use crate::take::TakeError;

macro_rules! reasons {
    ($( $(#[$meta:meta])* $variant:ident = $name:literal, )*) => {
        /// Reason for a rejected request. The names are stable: dashboards and alerts select on
        /// them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $( $(#[$meta])* $variant, )*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// Name in snake_case.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $name, )*
                }
            }
        }
    };
}

reasons! {
    /// The QoS label has an unknown value; the pod is treated as if it had no label.
    UnknownQosClass = "unknown_qos_class",
    /// The resource-spec annotation is not in Koordinator's format.
    ResourceSpecMalformed = "resource_spec_malformed",
    /// The resource-status annotation, which the operator trusts, is not in Koordinator's format.
    ResourceStatusMalformed = "resource_status_malformed",
    /// The resource-status lists unavailable CPUs, or not the requested number of CPUs.
    ResourceStatusInvalid = "resource_status_invalid",
    /// The resource-status lists CPUs that another pod holds.
    ResourceStatusConflict = "resource_status_conflict",
    /// The operator has restricted the class to other pods.
    ClassNotAllowed = "class_not_allowed",
    /// The pod claims BE, but its kubelet QoS class is not BestEffort and its `spec.priority` is
    /// not batch.
    BestEffortNotAllowed = "best_effort_not_allowed",
    /// The pod is not among those whose required exclusive policy the operator honors.
    RequiredExclusiveNotAllowed = "required_exclusive_not_allowed",
    /// The namespace would exceed its maximum of exclusive CPUs on this node.
    NamespaceCap = "namespace_cap",
    /// The node would exceed its maximum of exclusive CPUs.
    NodeCap = "node_cap",
    /// The pod's priority is not production.
    PriorityNotProd = "priority_not_prod",
    /// The whole-pod CPU request is absent, zero or not an integer.
    RequestNotInteger = "request_not_integer",
    /// The whole-pod CPU limit is absent or differs from the request.
    RequestNotLimit = "request_not_limit",
    /// FullPCPUs is required, and the request is not a multiple of the threads per core.
    NotWholeCores = "not_whole_cores",
    /// Too few CPUs are free.
    InsufficientCpus = "insufficient_cpus",
    /// Enough CPUs are free, but too few in the shape of the required bind policy.
    BindPolicyUnsatisfied = "bind_policy_unsatisfied",
    /// Enough CPUs are free, but too few without the neighbors that the required exclusive policy
    /// excludes.
    ExclusivePolicyUnsatisfied = "exclusive_policy_unsatisfied",
    /// The shared pool would fall below its floor.
    SharePoolFloor = "share_pool_floor",
    /// The pod ran on CPUs that an older exclusive pod holds, too.
    ExclusiveConflict = "exclusive_conflict",
    /// The kubelet's static CPU manager owns the CPUs, or has assigned exclusive CPUs to the pod.
    KubeletStatic = "kubelet_static",
    /// Another program places the pod, or its annotation keeps other programs off its cpusets.
    OtherOwner = "other_owner",
    /// The pod's cpusets could not be written, or another writer kept overwriting them. The agent
    /// will retry.
    SteppedBack = "stepped_back",
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl From<TakeError> for Reason {
    fn from(error: TakeError) -> Self {
        match error {
            TakeError::NotEnough { .. } => Self::InsufficientCpus,
            TakeError::Bind { .. } => Self::BindPolicyUnsatisfied,
            TakeError::Exclusive { .. } => Self::ExclusivePolicyUnsatisfied,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_snake_case_and_unique() {
        let names: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(names.iter().all(|name| plain(name)), "{names:?}");
    }
}
