//! CPU burst: `cpu.max.burst` (v2) and `cpu.cfs_burst_us` (v1), since Linux 5.14.
//!
//! Upstream kernels reject a burst above the quota, and check it again when the quota is written.
//! Kernels before 6.10 divide the stored burst by 1000 at each write of `cpu.max`. So the value
//! stays under the quota, is lowered before a limit shrinks, and is written again after each change
//! of the limit.

use serde::Deserialize;

/// Annotation with which a pod's author requests burst.
pub const BURST_ANNOTATION: &str = "koordinator.sh/cpuBurst";

/// Policy of the annotation: CPU burst, a quota above the limit, both or neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BurstPolicy {
    /// Neither.
    #[default]
    #[serde(alias = "")]
    None,
    /// CPU burst only (`cpu.max.burst`).
    CpuBurstOnly,
    /// Quota above the limit only.
    CfsQuotaBurstOnly,
    /// CPU burst and a quota above the limit.
    Auto,
}

/// The annotation's JSON (`CPUBurstConfig`). As for Go's decoder, null is unset; an empty policy is
/// none.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Annotation {
    policy: Option<BurstPolicy>,
    cpu_burst_percent: Option<u64>,
}

/// A pod's request, from its annotation; the defaults are Koordinator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodBurst {
    /// Requested policy.
    pub policy: BurstPolicy,
    /// Requested burst, percent of the limit.
    pub cpu_burst_percent: u64,
}

impl Default for PodBurst {
    fn default() -> Self {
        Self { policy: BurstPolicy::None, cpu_burst_percent: 1000 }
    }
}

impl From<Annotation> for PodBurst {
    fn from(json: Annotation) -> Self {
        let default = Self::default();
        Self {
            policy: json.policy.unwrap_or(default.policy),
            cpu_burst_percent: json.cpu_burst_percent.unwrap_or(default.cpu_burst_percent),
        }
    }
}

/// An annotation that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AnnotationError {
    /// Not the JSON of a `CPUBurstConfig`.
    #[error("annotation {BURST_ANNOTATION}: {0}")]
    Json(#[from] serde_json::Error),
    /// A burst that Koordinator's webhook rejects too.
    #[error("annotation {BURST_ANNOTATION}: cpuBurstPercent is {0}, expected 0 to 10000")]
    Percent(u64),
}

impl PodBurst {
    /// Parses the annotation's JSON (`CPUBurstConfig`). Unknown fields are ignored, as Koordinator
    /// does, and those of `cfsQuotaBurst`.
    ///
    /// # Errors
    /// Invalid JSON, an unknown policy, or a percentage out of range.
    pub fn parse(json: &str) -> Result<Self, AnnotationError> {
        let json: Option<Annotation> = serde_json::from_str(json)?;
        let parsed = Self::from(json.unwrap_or_default());
        match parsed.cpu_burst_percent {
            0..=10_000 => Ok(parsed),
            percent => Err(AnnotationError::Percent(percent)),
        }
    }

    /// Whether the pod may have a `cpu.max.burst`.
    #[must_use]
    pub const fn may_burst(&self) -> bool {
        matches!(self.policy, BurstPolicy::CpuBurstOnly | BurstPolicy::Auto)
    }

    /// Whether the pod requests a quota above its limit, which is not offered.
    #[must_use]
    pub const fn wants_more_quota(&self) -> bool {
        matches!(self.policy, BurstPolicy::CfsQuotaBurstOnly | BurstPolicy::Auto)
    }
}

/// Smallest step between the quota and the burst, microseconds.
const UNIT_USEC: u64 = 1;

/// Largest sum of quota and burst that the kernel accepts (`max_bw_runtime_us` in kernel/sched),
/// microseconds.
const MOST_USEC: u64 = (1 << 44) - 1;

/// Burst for a quota, microseconds: `percent` of the quota, but less than the quota; 0 without a
/// quota.
#[must_use]
pub fn burst_usec(quota_usec: Option<u64>, percent: u64) -> u64 {
    let Some(quota) = quota_usec else { return 0 };
    let wanted = u128::from(quota) * u128::from(percent) / 100;
    let most = quota.saturating_sub(UNIT_USEC).min(MOST_USEC.saturating_sub(quota));
    u64::try_from(wanted).unwrap_or(u64::MAX).min(most)
}

/// Burst to write before another writer lowers the quota to `coming_usec`; `None` if the kernel
/// accepts the coming quota with the current burst. With a burst above the coming quota, the
/// writer would get EINVAL.
#[must_use]
pub fn burst_usec_before_resize(current_burst: u64, coming_usec: Option<u64>) -> Option<u64> {
    // A removed quota needs a burst of 0: kernels differ in whether they accept one.
    let most = coming_usec.map_or(0, |quota| quota.saturating_sub(UNIT_USEC));
    (current_burst > most).then_some(most)
}

/// Measurements of a container over the last minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Candidate {
    /// Whether it has exclusive CPUs.
    pub exclusive: bool,
    /// Whether it is best effort.
    pub best_effort: bool,
    /// Quota of its own cgroup, microseconds per period.
    pub quota_usec: Option<u64>,
    /// Share of throttled periods of its own cgroup; `None` without periods.
    pub throttled_share: Option<f64>,
    /// Mean use over its limit.
    pub mean_use: Option<f64>,
    /// Share of throttled periods that the replay predicts with the burst.
    pub predicted_share: Option<f64>,
}

/// Conditions for burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstLimits {
    /// Minimum share of throttled periods.
    pub least_throttled: f64,
    /// Maximum mean use over the limit: a busy container saves nothing to burst with.
    pub most_use: f64,
    /// Minimum share of the throttled periods that the burst must remove.
    pub least_gain: f64,
}

impl Default for BurstLimits {
    fn default() -> Self {
        Self { least_throttled: 0.01, most_use: 0.5, least_gain: 0.5 }
    }
}

/// Reason why a container gets no burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ineligible {
    /// The container has exclusive CPUs.
    Exclusive,
    /// The pod is best effort.
    BestEffort,
    /// The container's own cgroup has no quota.
    NoQuota,
    /// The quota rarely throttles the container.
    NotThrottled,
    /// The container is too busy to save budget for a burst.
    Busy,
    /// The replay predicts too little gain.
    NoGain,
    /// There are not enough measurements yet.
    NotMeasured,
    /// The pod's annotation requests none.
    NotRequested,
    /// The pod's annotation requests only a quota above the limit, which is not offered.
    NotOffered,
    /// The pod's annotation cannot be used.
    InvalidAnnotation,
    /// The pod or the container is not in the pod list.
    UnknownPod,
    /// The kernel has no CPU burst.
    NoKernelSupport,
}

impl Ineligible {
    /// Label value in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::BestEffort => "best_effort",
            Self::NoQuota => "no_quota",
            Self::NotThrottled => "not_throttled",
            Self::Busy => "busy",
            Self::NoGain => "no_gain",
            Self::NotMeasured => "not_measured",
            Self::NotRequested => "not_requested",
            Self::NotOffered => "not_offered",
            Self::InvalidAnnotation => "invalid_annotation",
            Self::UnknownPod => "unknown_pod",
            Self::NoKernelSupport => "no_kernel_support",
        }
    }
}

/// Whether a container gets burst.
///
/// # Errors
/// The first condition that it does not meet.
pub fn eligible(candidate: &Candidate, limits: &BurstLimits) -> Result<(), Ineligible> {
    if candidate.exclusive {
        return Err(Ineligible::Exclusive);
    }
    if candidate.best_effort {
        return Err(Ineligible::BestEffort);
    }
    candidate.quota_usec.ok_or(Ineligible::NoQuota)?;
    let throttled = candidate.throttled_share.ok_or(Ineligible::NotMeasured)?;
    if throttled < limits.least_throttled {
        return Err(Ineligible::NotThrottled);
    }
    if candidate.mean_use.ok_or(Ineligible::NotMeasured)? > limits.most_use {
        return Err(Ineligible::Busy);
    }
    let predicted = candidate.predicted_share.ok_or(Ineligible::NotMeasured)?;
    if throttled - predicted < throttled * limits.least_gain {
        return Err(Ineligible::NoGain);
    }
    Ok(())
}
