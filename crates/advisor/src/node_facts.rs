//! Facts about the node that the advice for a container depends on.

use api::{CpuAdvice, LimitAdvice};

/// Facts of the node for one window of a container.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeFacts {
    /// Observation time before a limit is advised, seconds.
    pub(crate) after_seconds: u64,
    /// Number of online CPUs.
    pub(crate) cpus: Option<u32>,
    /// Time that the container lost to other pods in the window, core-nanoseconds, if it is known.
    pub(crate) lost_ns: Option<u64>,
    /// Counter of the periods in which the pod's quota throttled the container, if it is the only
    /// one of the pod.
    pub(crate) pod_throttled: Option<u64>,
    /// Whether the agent restricts the container's pod.
    pub(crate) is_restricted: bool,
}

/// Caps at the node's CPUs: under a limit of all of them nothing is throttled.
pub(crate) fn at_most_node(advice: CpuAdvice, cpus: u32) -> CpuAdvice {
    let cpus = f64::from(cpus);
    let capped = |limit: LimitAdvice| match limit.cores > cpus {
        true => LimitAdvice { cores: cpus, ..LimitAdvice::default() },
        false => limit,
    };
    let at_most = |cores: Option<f64>| cores.map(|cores| cores.min(cpus));
    CpuAdvice {
        limit: advice.limit.map(capped),
        request_cores: at_most(advice.request_cores),
        most_cores: at_most(advice.most_cores),
        ..advice
    }
}
