//! The verdict about one pod: whether it is slowed, by what, and what to do.

use serde::{Deserialize, Serialize};

use crate::pod_name::PodName;

/// Why a pod gets its CPU time late.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum SlowedReason {
    /// Other pods ran on the CPUs for which it waited.
    Neighbor,
    /// Mostly host services or the kernel ran there.
    System,
    /// It waited for a CPU. What ran there is not known.
    #[default]
    Unknown,
    /// The quota of the pod, or one above it.
    AncestorLimit,
    /// Its containers' own quota.
    OwnLimit,
    /// Its own threads ran there.
    #[serde(rename = "self")]
    Own,
}

impl SlowedReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::Neighbor,
        Self::System,
        Self::Unknown,
        Self::AncestorLimit,
        Self::OwnLimit,
        Self::Own,
    ];

    /// The stable name, as in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Neighbor => "neighbor",
            Self::System => "system",
            Self::Unknown => "unknown",
            Self::AncestorLimit => "ancestor_limit",
            Self::OwnLimit => "own_limit",
            Self::Own => "self",
        }
    }

    /// Whether the pod waited for others, and not for a limit or for itself.
    #[must_use]
    pub const fn is_of_others(self) -> bool {
        matches!(self, Self::Neighbor | Self::System | Self::Unknown)
    }
}

/// How much a victim's delay matters. The order is that of the victims.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum VictimClass {
    /// Others kept it below the CPU that it requests and wanted.
    Starved,
    /// It sleeps between pieces of work, so a delay is latency.
    #[default]
    Service,
    /// It always wants more CPU.
    Hungry,
    /// It is entitled only to CPU that nothing else wants.
    BestEffort,
}

/// Certainty of the cause.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum CauseKind {
    /// One workload, the host, or the largest consumer of a shared quota.
    One,
    /// None of them alone: without the largest, the others would fill the CPUs.
    Several,
    /// Not known.
    #[default]
    Unknown,
    /// The pod itself: its own limit, or its own threads.
    Own,
}

/// What ran while a victim lost time, or used up a quota that it shares.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Culprit {
    /// Namespace; `system` for host services and the kernel.
    pub namespace: String,
    /// Kind of the workload, `Pod` without one, `Container` for a container of the victim's own
    /// pod; empty for the system.
    pub kind: String,
    /// Name of the workload, pod or container; empty for the system.
    pub name: String,
    /// Share of the victim's lost time, or of the use of the quota, 0 to 1.
    pub share: f64,
    /// CPU that it used meanwhile, cores.
    pub used_cores: f64,
    /// CPU request of all its pods on the node, cores, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_cores: Option<f64>,
    /// Whether it used more than its request; false for a pod that the agent restricts.
    pub beyond_request: bool,
}

impl Culprit {
    /// Namespace of host services and the kernel.
    pub const SYSTEM: &'static str = "system";

    /// Whether this is the host.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.kind.is_empty()
    }

    /// The name, as `namespace/name`.
    #[must_use]
    pub fn name(&self) -> String {
        match &*self.kind {
            "" => "the host (system)".to_owned(),
            "Container" => format!("container {}", self.name),
            _ => format!("{}/{}", self.namespace, self.name),
        }
    }
}

/// A pod that is slowed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Verdict {
    /// The pod.
    pub victim: PodName,
    /// Name of its workload, the pod's own without one; empty from earlier agents.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// Reason of its delay.
    pub reason: SlowedReason,
    /// How much the delay matters.
    pub class: VictimClass,
    /// Time that it lost, as a share of the time that it ran or lost, in the seconds in which it
    /// was slowed: 0 to 1.
    pub share: f64,
    /// Time that it lost in these seconds, core-seconds per second.
    pub lost_cores: f64,
    /// CPU that it used in these seconds, cores.
    pub used_cores: f64,
    /// CPU request of the pod, cores, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_cores: Option<f64>,
    /// Certainty of the cause.
    pub cause: CauseKind,
    /// The cause; at most three if there are several.
    pub culprits: Vec<Culprit>,
    /// Whether the pod used more than its CPU request, so that a higher one is the first remedy.
    pub request_too_low: bool,
    /// Whether the agent restricts the pod as best effort: such a delay is intended.
    pub restricted: bool,
    /// Time since the pod was first slowed without a pause of a minute, seconds.
    pub since_seconds: f64,
    /// Seconds of the last minute in which it was slowed.
    pub slowed_seconds: f64,
    /// Seconds of the last ten minutes in which it was slowed.
    pub slowed_of_ten_minutes: f64,
    /// The verdict as a phrase that continues the pod's name: `slowed ×2.9 by batch/report`.
    pub summary: String,
    /// What to do.
    pub remedy: String,
}

/// Largest factor that is shown.
const MAX_FACTOR: f64 = 100.0;

impl Verdict {
    /// How many times longer its work took than without the lost time, at most 100.
    #[must_use]
    pub fn factor(&self) -> f64 {
        let ran = 1.0 - self.share;
        if ran * MAX_FACTOR <= 1.0 { MAX_FACTOR } else { 1.0 / ran }
    }

    /// The only cause, if there is one.
    #[must_use]
    pub fn culprit(&self) -> Option<&Culprit> {
        self.culprits.first().filter(|_| self.cause == CauseKind::One)
    }

    /// What slows the pod, in a few words: the only cause, `several`, its own limit or threads, or
    /// `unknown`.
    #[must_use]
    pub fn slowed_by(&self) -> String {
        match (self.culprit(), self.cause, self.reason) {
            (Some(culprit), ..) if culprit.is_system() => "the host".to_owned(),
            (Some(culprit), ..) => culprit.name(),
            (None, CauseKind::Several, _) => "several".to_owned(),
            (None, _, SlowedReason::OwnLimit) => "its own limit".to_owned(),
            (None, _, SlowedReason::AncestorLimit) => "a limit above".to_owned(),
            (None, _, SlowedReason::Own) => "its own threads".to_owned(),
            (None, ..) => "unknown".to_owned(),
        }
    }

    /// Whether others slow a pod that deserves better: it gets less than it requests, or it is a
    /// service. A pod that always wants more CPU than it requests is owed nothing.
    #[must_use]
    pub fn is_harm(&self) -> bool {
        let deserves = matches!(self.class, VictimClass::Starved | VictimClass::Service);
        self.reason.is_of_others() && deserves && !self.restricted
    }
}
