//! What one pass came to, for logs, metrics and people.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use placement::{Pools, Reason, Step};

use crate::checkpoint::Pin;
use crate::decision::{Decision, Verdict};

/// Does the agent write?
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Enforcing,
    /// It only plans, for this reason.
    Observing(String),
}

impl fmt::Display for Standing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enforcing => out.write_str("enforcing"),
            Self::Observing(reason) => write!(out, "observing: {reason}"),
        }
    }
}

/// What was done to cpusets: the values of the label `operation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A cpuset was written.
    Write,
    /// A cpuset was looked at once more before a grant.
    Verify,
    /// CPUs were granted.
    Grant,
    /// CPUs were released.
    Release,
    /// A cpuset that somebody else had rewritten was written again.
    Repair,
    /// A cpuset was given back.
    Drain,
    /// A process that the kernel had moved out of an emptied v1 cpuset was moved back.
    BringBack,
    /// The checkpoint was written.
    Checkpoint,
}

impl Operation {
    /// The label's value.
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

/// How often each operation was done, by whether it held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operations(BTreeMap<(Operation, bool), u64>);

impl Operations {
    pub(crate) fn add(&mut self, operation: Operation, held: bool) {
        *self.0.entry((operation, held)).or_default() += 1;
    }

    /// How often this operation held.
    #[must_use]
    pub fn count(&self, operation: Operation) -> u64 {
        self.0.get(&(operation, true)).copied().unwrap_or(0)
    }

    /// Operation, whether it held, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (Operation, bool, u64)> + '_ {
        self.0.iter().map(|(&(operation, held), &times)| (operation, held, times))
    }
}

/// One pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Whether it could write.
    pub standing: Standing,
    /// The pools as planned; `None` where nothing could be planned.
    pub pools: Option<Pools>,
    /// Pods with CPUs of their own: granted, or in observation planned.
    pub pins: Vec<Pin>,
    /// What was done.
    pub operations: Operations,
    /// What was decided for pods in this pass, and not before.
    pub decisions: Vec<Decision>,
    /// Time since the last pass in which somebody else could run on a pod's own CPUs, by namespace and pod.
    pub overlaps: BTreeMap<(String, String), Duration>,
    /// What is meant to be enforced and is not, by scope (`node` or `pod`) and reason: how many pods, or 1 for the node.
    pub stepped_back: BTreeMap<(&'static str, &'static str), usize>,
}

impl Report {
    /// Of a pass that could not even plan.
    #[must_use]
    pub fn idle(reason: String) -> Self {
        Self {
            standing: Standing::Observing(reason),
            pools: None,
            pins: Vec::new(),
            operations: Operations::default(),
            decisions: Vec::new(),
            overlaps: BTreeMap::new(),
            stepped_back: BTreeMap::new(),
        }
    }

    /// Adds what was done and decided before the pass itself.
    pub(crate) fn take_in(&mut self, earlier: Self) {
        for ((operation, held), times) in earlier.operations.0 {
            *self.operations.0.entry((operation, held)).or_default() += times;
        }
        self.decisions.splice(0..0, earlier.decisions);
    }

    /// Why pods were refused, from this pass on.
    pub fn refusals(&self) -> impl Iterator<Item = Reason> + '_ {
        self.decisions.iter().filter_map(|decision| match decision.verdict {
            Verdict::Refused(reason) => Some(reason),
            Verdict::Pinned { .. } | Verdict::Released | Verdict::Repaired(_) | Verdict::SteppedBack { .. } => None,
        })
    }
}

/// What a transition has come to, in order: the trace that tests follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace<'a> {
    /// The intent is on disk, with these steps to follow; nothing is written yet.
    Intent(&'a [Step]),
    /// This step has been carried out and verified.
    Done(&'a Step),
    /// The outcome is on disk.
    Committed,
}
