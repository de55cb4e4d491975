//! The quota of a pod's cgroup: its origin, and the quota the pod would need.

/// A pod's quota.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PodQuota {
    /// Quota ÷ period of the pod's cgroup, cores.
    pub limit_cores: f64,
    /// Whether the quota has throttled the pod.
    pub throttles: bool,
    /// Whether the pod's spec sets it (`spec.resources`, Kubernetes 1.34); else it is the kubelet's
    /// sum of the containers' limits.
    pub is_of_the_spec: bool,
    /// Sum of the advice for all containers, cores; `None` while one of them has no advice.
    pub advised_cores: Option<f64>,
}

/// One container of the pod.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Member {
    /// Quota ÷ period of its own cgroup, cores.
    pub own_limit_cores: Option<f64>,
    /// The smallest sufficient limit, cores.
    pub advised_cores: Option<f64>,
}

/// Tolerance for a sum of limits, cores: quotas are whole microseconds.
const TOLERANCE: f64 = 0.005;

impl PodQuota {
    /// Derives the quota from the pod's cgroup and all running containers.
    ///
    /// The kubelet gives a pod the sum of its containers' limits, or more (for a larger init
    /// container, or the overhead of a sandbox), and only if every container has a limit.
    #[must_use]
    pub fn of(limit_cores: f64, throttles: bool, members: &[Member]) -> Self {
        let sum = |of: fn(&Member) -> Option<f64>| members.iter().map(of).sum::<Option<f64>>();
        let limits = sum(|member| member.own_limit_cores);
        let is_of_the_spec = limits.is_none_or(|limits| limit_cores < limits - TOLERANCE);
        Self {
            limit_cores,
            throttles,
            is_of_the_spec,
            advised_cores: sum(|member| member.advised_cores),
        }
    }
}
