//! The quota of a pod's cgroup: whose decision it is, and what it would have to be.

/// A pod's quota.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PodQuota {
    /// Quota ÷ period of the pod's cgroup, cores.
    pub limit_cores: f64,
    /// It has throttled the pod.
    pub throttles: bool,
    /// The pod's spec says it (`spec.resources`, Kubernetes 1.34); else the kubelet has added up the containers' limits.
    pub is_of_the_spec: bool,
    /// Sum of what is advised for the containers, cores; `None` while for one of them nothing is.
    pub advised_cores: Option<f64>,
}

/// One container of the pod.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Member {
    /// Quota ÷ period of its own cgroup, cores.
    pub own_limit_cores: Option<f64>,
    /// The smallest limit that suffices it, cores.
    pub advised_cores: Option<f64>,
}

/// Cores by which a sum of limits may be off: quotas are whole microseconds.
const TOLERANCE: f64 = 0.005;

impl PodQuota {
    /// From the pod's cgroup and all containers that live in it.
    ///
    /// The kubelet gives a pod the sum of its containers' limits, or more (for a larger init container, or the overhead
    /// of a sandbox), and only where all have one.
    #[must_use]
    pub fn of(limit_cores: f64, throttles: bool, members: &[Member]) -> Self {
        let sum = |of: fn(&Member) -> Option<f64>| members.iter().map(of).sum::<Option<f64>>();
        let limits = sum(|member| member.own_limit_cores);
        let is_of_the_spec = limits.is_none_or(|limits| limit_cores < limits - TOLERANCE);
        Self { limit_cores, throttles, is_of_the_spec, advised_cores: sum(|member| member.advised_cores) }
    }
}
