//! A finding: the problem, the figures behind it, and the change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Kinds of findings. A public interface: a name is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// No CPU request: the container starves first on a busy node.
    NoCpuRequest,
    /// The runtime runs more threads than the limit can supply.
    ParallelismAboveLimit,
    /// The runtime runs fewer threads than the limit allows.
    ParallelismBelowLimit,
    /// The container's own quota throttles it.
    ThrottledByOwnQuota,
    /// The pod's or another ancestor's quota throttles it.
    ThrottledByAncestor,
    /// The pod's quota throttles a container that has exclusive CPUs of a claim.
    ClaimedCpusThrottled,
    /// Bursts exceed the limit, the average use does not.
    LimitTooTightForBursts,
    /// The kernel does not enforce the limit of the spec.
    LimitNotInForce,
    /// The request is far above the use.
    RequestAboveUse,
    /// The request is far below the use.
    RequestBelowUse,
    /// A fractional CPU limit under a runtime that uses whole cores. Behind the kinds whose patch
    /// sets the same fields: of several patches the first wins.
    FractionalLimit,
    /// Memory limit and request differ: the container is evicted or killed early.
    MemoryLimitNotRequest,
    /// No memory limit.
    NoMemoryLimit,
    /// The runtime's heap is not bounded by the container's limit.
    HeapLimitUnset,
    /// Go before 1.25 without automaxprocs: GOMAXPROCS is the number of the node's CPUs.
    GoIgnoresLimit,
    /// A resize has outdated environment variables that the agent injected at the start.
    InjectedEnvStale,
    /// Other pods or the host slow the pod, by the verdict.
    SlowedByOthers,
    /// The garbage collector takes much of the CPU while memory is free.
    GcCostly,
    /// The garbage collector runs too often.
    GcTooOften,
    /// The garbage collector takes more of the CPU while the quota throttles.
    GcInThrottledTime,
    /// The live heap is near the runtime's limit.
    HeapNearLimit,
    /// A setting of the garbage collector that the memory limit makes useless or harmful.
    GcSettingFightsLimit,
    /// A kernel before 5.4, which expires slices and throttles below the quota.
    KernelSliceExpiry,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Costs latency or endangers the container now.
    Warning,
    /// Worth a change at the next opportunity.
    Info,
}

impl FindingKind {
    /// The stable name, in kebab case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.table().0
    }

    /// Severity of this kind.
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
            Self::ClaimedCpusThrottled => ("claimed-cpus-throttled", Warning),
            Self::LimitTooTightForBursts => ("limit-too-tight-for-bursts", Warning),
            Self::LimitNotInForce => ("limit-not-in-force", Info),
            Self::RequestAboveUse => ("request-above-use", Info),
            Self::RequestBelowUse => ("request-below-use", Info),
            Self::MemoryLimitNotRequest => ("memory-limit-not-request", Info),
            Self::NoMemoryLimit => ("no-memory-limit", Info),
            Self::HeapLimitUnset => ("heap-limit-unset", Info),
            Self::GoIgnoresLimit => ("go-ignores-limit", Warning),
            Self::InjectedEnvStale => ("injected-env-stale", Info),
            Self::SlowedByOthers => ("slowed-by-others", Warning),
            Self::GcCostly => ("gc-costly", Warning),
            Self::GcTooOften => ("gc-too-often", Info),
            Self::GcInThrottledTime => ("gc-in-throttled-time", Warning),
            Self::HeapNearLimit => ("heap-near-limit", Warning),
            Self::GcSettingFightsLimit => ("gc-setting-fights-limit", Info),
            Self::KernelSliceExpiry => ("kernel-slice-expiry", Info),
        }
    }

    /// Every kind.
    pub const ALL: [Self; 23] = [
        Self::NoCpuRequest,
        Self::FractionalLimit,
        Self::ParallelismAboveLimit,
        Self::ParallelismBelowLimit,
        Self::ThrottledByOwnQuota,
        Self::ThrottledByAncestor,
        Self::ClaimedCpusThrottled,
        Self::LimitTooTightForBursts,
        Self::LimitNotInForce,
        Self::RequestAboveUse,
        Self::RequestBelowUse,
        Self::MemoryLimitNotRequest,
        Self::NoMemoryLimit,
        Self::HeapLimitUnset,
        Self::GoIgnoresLimit,
        Self::InjectedEnvStale,
        Self::SlowedByOthers,
        Self::GcCostly,
        Self::GcTooOften,
        Self::GcInThrottledTime,
        Self::HeapNearLimit,
        Self::GcSettingFightsLimit,
        Self::KernelSliceExpiry,
    ];
}

/// One finding of one container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// Severity of the finding.
    pub severity: Severity,
    /// What was found and its cause, where the kind and the figures do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Figures behind the finding, by a name that contains the unit.
    pub evidence: BTreeMap<String, f64>,
    /// The same figures in words; empty in the answers of earlier agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<String>,
    /// Number of one-second windows behind the figures; 0 if the figures are settings.
    pub windows: usize,
    /// A strategic-merge patch of the workload (Deployment, StatefulSet, DaemonSet).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Value>,
    /// Reason for the absence of a patch.
    #[serde(default, rename = "noPatch", skip_serializing_if = "Option::is_none")]
    pub no_patch: Option<String>,
    /// Documentation of the kind, relative to `deploy/docs/`.
    pub docs: String,
}
