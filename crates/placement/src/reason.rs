//! Why a pod that asked for CPUs of its own runs shared: the values of the label `reason` of pin rejections.

use std::fmt;

use crate::take::TakeError;

macro_rules! reasons {
    ($( $(#[$meta:meta])* $variant:ident = $name:literal, )*) => {
        /// Why a pod's wish was not granted. The names are stable: dashboards and alerts select on them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $( $(#[$meta])* $variant, )*
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// The snake_case name.
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
    /// The QoS label is none of Koordinator's; the pod counts as one without it.
    UnknownQosClass = "unknown_qos_class",
    /// The resource-spec annotation is not what Koordinator defines.
    ResourceSpecMalformed = "resource_spec_malformed",
    /// The resource-status annotation, which the operator trusts, is not what Koordinator defines.
    ResourceStatusMalformed = "resource_status_malformed",
    /// The resource-status names CPUs that cannot be given, or not as many as are requested.
    ResourceStatusInvalid = "resource_status_invalid",
    /// The resource-status names CPUs that another pod holds.
    ResourceStatusConflict = "resource_status_conflict",
    /// The operator has reserved the class for other pods.
    ClassNotAllowed = "class_not_allowed",
    /// BE, on a pod that is neither BestEffort to the kubelet nor batch by `spec.priority`.
    BestEffortNotAllowed = "best_effort_not_allowed",
    /// The operator has not named the pod among those whose required exclusive policy is honored.
    RequiredExclusiveNotAllowed = "required_exclusive_not_allowed",
    /// The namespace would have more exclusive CPUs on this node than the operator allows.
    NamespaceCap = "namespace_cap",
    /// The node would have more exclusive CPUs than the operator allows.
    NodeCap = "node_cap",
    /// The pod's priority is not production.
    PriorityNotProd = "priority_not_prod",
    /// The whole-pod CPU request is absent, zero or not an integer.
    RequestNotInteger = "request_not_integer",
    /// The whole-pod CPU limit is absent or differs from the request.
    RequestNotLimit = "request_not_limit",
    /// Required FullPCPUs, and the request is not a multiple of the threads per core.
    NotWholeCores = "not_whole_cores",
    /// Too few CPUs are free.
    InsufficientCpus = "insufficient_cpus",
    /// Too few CPUs are free in the shape of the required bind policy.
    BindPolicyUnsatisfied = "bind_policy_unsatisfied",
    /// Too few CPUs are free of the neighbours that the required exclusive policy excludes.
    ExclusivePolicyUnsatisfied = "exclusive_policy_unsatisfied",
    /// What is left to shared pods would fall below the floor.
    SharePoolFloor = "share_pool_floor",
    /// It ran on CPUs that an older exclusive pod holds too.
    ExclusiveConflict = "exclusive_conflict",
    /// The kubelet's static CPU manager owns the CPUs, or has given the pod its own.
    KubeletStatic = "kubelet_static",
    /// Its cpusets could not be written, or another writer kept rewriting them; it is tried again.
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
