//! Answer of a method, compared with the cause.

use super::exact::Exact;
use super::scene::Scene;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// One workload, or `system`.
    One(String),
    /// No workload alone.
    Several,
    /// Not slowed, or by its own limit or threads.
    NoOther,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    One(&'static str),
    Several,
    NoOther,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Score {
    Right,
    /// A name that is not the cause.
    Wrong,
    /// No name where there is one.
    Undecided,
}

/// An answer, and the seconds that it blames on each pod.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) answer: Answer,
    pub(crate) seconds: Vec<f64>,
}

/// Unit of the seconds of a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    /// Wall time in which at least one thread waited on a CPU.
    Union,
    /// Thread time.
    Threads,
}

impl Answer {
    pub(crate) fn score(&self, truth: Truth) -> Score {
        match (self, truth) {
            (Self::One(name), Truth::One(right)) if name == right => Score::Right,
            (Self::One(_), _) => Score::Wrong,
            (Self::Several, Truth::Several) | (Self::NoOther, Truth::NoOther) => Score::Right,
            // "Several" blames others for what is none of theirs.
            (Self::Several, Truth::NoOther) => Score::Wrong,
            _ => Score::Undecided,
        }
    }
}

impl Truth {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::One(name) => name,
            Self::Several => "several",
            Self::NoOther => "no other",
        }
    }
}

impl Claim {
    /// Seconds that are blamed on the wrong pod, or on none.
    pub(crate) fn error(&self, scene: &Scene, exact: &Exact, unit: Unit) -> f64 {
        let exact = match unit {
            Unit::Union => &exact.lost,
            Unit::Threads => &exact.thread_waits,
        };
        let others = (0..scene.pods.len()).filter(|pod| *pod != scene.victim);
        others.map(|pod| (self.seconds[pod] - exact[pod] as f64 / 1e9).abs()).sum()
    }
}
