//! A finding: what is wrong, by which figures, and the change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The kinds, a public interface: a name is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// No CPU request: the first to starve on a busy node.
    NoCpuRequest,
    /// A fraction of a core as limit, under a runtime that takes whole ones.
    FractionalLimit,
    /// The runtime runs more threads than the limit feeds.
    ParallelismAboveLimit,
    /// The runtime runs fewer threads than the limit pays for.
    ParallelismBelowLimit,
    /// The container's own quota throttles it.
    ThrottledByOwnQuota,
    /// The pod's or another ancestor's quota throttles it.
    ThrottledByAncestor,
    /// Its bursts pass the limit, its mean does not.
    LimitTooTightForBursts,
    /// The request is far above use.
    RequestAboveUse,
    /// The request is far below use.
    RequestBelowUse,
    /// Memory limit and request differ: first to be evicted, or killed.
    MemoryLimitNotRequest,
    /// No memory limit.
    NoMemoryLimit,
    /// The runtime's heap does not know the container's limit.
    HeapLimitUnset,
    /// Go before 1.25 without automaxprocs: GOMAXPROCS is the node's CPUs.
    GoIgnoresLimit,
    /// Others take the CPUs that it waits for.
    NoisyNeighbor,
    /// A kernel before 5.4 expires slices and throttles below the quota.
    KernelSliceExpiry,
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It costs latency or risks the container now.
    Warning,
    /// Worth a change at the next occasion.
    Info,
}

impl Kind {
    /// The stable name, kebab-case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.table().0
    }

    /// How much it matters.
    #[must_use]
    pub fn severity(self) -> Severity {
        self.table().1
    }

    fn table(self) -> (&'static str, Severity) {
        use Severity::{Info, Warning};
        match self {
            Self::NoCpuRequest => ("no-cpu-request", Warning),
            Self::FractionalLimit => ("fractional-limit", Info),
            Self::ParallelismAboveLimit => ("parallelism-above-limit", Warning),
            Self::ParallelismBelowLimit => ("parallelism-below-limit", Info),
            Self::ThrottledByOwnQuota => ("throttled-by-own-quota", Warning),
            Self::ThrottledByAncestor => ("throttled-by-ancestor", Warning),
            Self::LimitTooTightForBursts => ("limit-too-tight-for-bursts", Warning),
            Self::RequestAboveUse => ("request-above-use", Info),
            Self::RequestBelowUse => ("request-below-use", Info),
            Self::MemoryLimitNotRequest => ("memory-limit-not-request", Info),
            Self::NoMemoryLimit => ("no-memory-limit", Warning),
            Self::HeapLimitUnset => ("heap-limit-unset", Info),
            Self::GoIgnoresLimit => ("go-ignores-limit", Warning),
            Self::NoisyNeighbor => ("noisy-neighbor", Info),
            Self::KernelSliceExpiry => ("kernel-slice-expiry", Info),
        }
    }

    /// Every kind.
    pub const ALL: [Self; 15] = [
        Self::NoCpuRequest,
        Self::FractionalLimit,
        Self::ParallelismAboveLimit,
        Self::ParallelismBelowLimit,
        Self::ThrottledByOwnQuota,
        Self::ThrottledByAncestor,
        Self::LimitTooTightForBursts,
        Self::RequestAboveUse,
        Self::RequestBelowUse,
        Self::MemoryLimitNotRequest,
        Self::NoMemoryLimit,
        Self::HeapLimitUnset,
        Self::GoIgnoresLimit,
        Self::NoisyNeighbor,
        Self::KernelSliceExpiry,
    ];
}

/// One finding of one container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Which.
    pub kind: Kind,
    /// How much it matters.
    pub severity: Severity,
    /// The figures behind it, by name with the unit in it.
    pub evidence: BTreeMap<String, f64>,
    /// One-second windows that the figures are of; 0 where they are settings.
    pub windows: usize,
    /// A strategic-merge patch of the workload (Deployment, StatefulSet, DaemonSet).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Value>,
    /// Why there is none.
    #[serde(default, rename = "noPatch", skip_serializing_if = "Option::is_none")]
    pub no_patch: Option<String>,
    /// Where it is explained, below `deploy/docs/`.
    pub docs: String,
}
