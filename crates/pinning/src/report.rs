//! Report of one pass, for logs, metrics and the status page.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use api::Pin;
use placement::{Pools, Reason, Step};

use crate::decision::{Decision, PodOutcome};

/// Whether the agent enforces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinningStatus {
    /// Enforces: writes cpusets.
    Enforcing,
    /// Only plans, for this reason.
    Observing(String),
}

impl fmt::Display for PinningStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enforcing => out.write_str("enforcing"),
            Self::Observing(reason) => write!(out, "observing: {reason}"),
        }
    }
}

/// Operations on cpusets: the values of the label `operation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A cpuset was written.
    Write,
    /// A cpuset was verified before a grant.
    Verify,
    /// CPUs were granted.
    Grant,
    /// CPUs were released.
    Release,
    /// A cpuset that another writer had changed was restored to the plan.
    Repair,
    /// A cpuset was restored by a drain.
    Drain,
    /// A process that the kernel had moved out of an emptied v1 cpuset was moved back.
    BringBack,
    /// The checkpoint was written.
    Checkpoint,
}

impl Operation {
    /// Value of the label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Verify => "verify",
            Self::Grant => "grant",
            Self::Release => "release",
            Self::Repair => "repair",
            Self::Drain => "drain",
            Self::BringBack => "bring_back",
            Self::Checkpoint => "checkpoint",
        }
    }

    pub(crate) const fn of(step: &Step) -> Self {
        match step {
            Step::Write { .. } => Self::Write,
            Step::Verify { .. } => Self::Verify,
            Step::Grant { .. } => Self::Grant,
            Step::Release { .. } => Self::Release,
        }
    }
}

/// Number of operations by kind and success.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operations(BTreeMap<(Operation, bool), u64>);

impl Operations {
    pub(crate) fn add(&mut self, operation: Operation, held: bool) {
        *self.0.entry((operation, held)).or_default() += 1;
    }

    /// Number of successful operations of this kind.
    #[must_use]
    pub fn count(&self, operation: Operation) -> u64 {
        self.0.get(&(operation, true)).copied().unwrap_or(0)
    }

    /// Operation, whether it succeeded, and its number.
    pub fn iter(&self) -> impl Iterator<Item = (Operation, bool, u64)> + '_ {
        self.0.iter().map(|(&(operation, held), &times)| (operation, held, times))
    }
}

/// Report of one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct PassReport {
    /// Whether cpusets were written.
    pub status: PinningStatus,
    /// CPU pools of the plan; `None` without a plan.
    pub pools: Option<Pools>,
    /// Pods with exclusive CPUs: granted, or planned in observation.
    pub pins: Vec<Pin>,
    /// Number of operations.
    pub operations: Operations,
    /// New decisions of this pass.
    pub decisions: Vec<Decision>,
    /// Time since the last pass in which other pods could run on a pod's exclusive CPUs, granted
    /// here or by a claim, by namespace and pod.
    pub overlaps: BTreeMap<(String, String), Duration>,
    /// Enforcement that is suspended, by scope (`node` or `pod`) and reason: number of pods, or 1
    /// for the node.
    pub stepped_back: BTreeMap<(&'static str, &'static str), usize>,
}

impl PassReport {
    /// Report of a pass without a plan.
    #[must_use]
    pub fn idle(reason: String) -> Self {
        Self {
            status: PinningStatus::Observing(reason),
            pools: None,
            pins: Vec::new(),
            operations: Operations::default(),
            decisions: Vec::new(),
            overlaps: BTreeMap::new(),
            stepped_back: BTreeMap::new(),
        }
    }

    /// Adds operations and decisions made before the pass itself.
    pub(crate) fn take_in(&mut self, earlier: Self) {
        for ((operation, held), times) in earlier.operations.0 {
            *self.operations.0.entry((operation, held)).or_default() += times;
        }
        self.decisions.splice(0..0, earlier.decisions);
    }

    /// Reasons of the rejections that are new in this pass.
    pub fn rejections(&self) -> impl Iterator<Item = Reason> + '_ {
        self.decisions.iter().filter_map(|decision| match decision.outcome {
            PodOutcome::Rejected(reason) => Some(reason),
            PodOutcome::Pinned { .. }
            | PodOutcome::Released
            | PodOutcome::Repaired(_)
            | PodOutcome::SteppedBack { .. } => None,
        })
    }
}

/// Progress of a transition, in order; tests follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace<'a> {
    /// The intent with these steps is on disk; nothing is written yet.
    Intent(&'a [Step]),
    /// This step was carried out and verified.
    Done(&'a Step),
    /// The outcome is on disk.
    Committed,
}
