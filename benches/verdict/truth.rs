//! The truth by removal, and whether an answer agrees with it.

use super::model::{Limit, Removal};

/// Growth of the mean latency from which on a service is slowed, and up to which it is not. In
/// between, both answers are right, but no wrong name.
const SLOWED: f64 = 1.5;
const NOT_SLOWED: f64 = 1.1;
/// Growth that is too small to matter, milliseconds.
const NOTHING_MS: f64 = 1.0;
/// Minimum part of the excess that the removal of a cause restores.
const RESTORED: f64 = 0.5;
/// Minimum part of the requests that the removal of a cause leaves: without a caller there are
/// fewer, which cures without being a cause.
const SAME_REQUESTS: f64 = 0.8;

/// Latencies of one service in one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Latency {
    pub(crate) mean_ms: f64,
    pub(crate) p99_ms: f64,
    /// Number of requests and calls per second.
    pub(crate) requests: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slowed {
    No,
    Slightly,
    Yes,
}

/// Result of the removals for one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) slowed: Slowed,
    /// The limit whose removal cures.
    pub(crate) limit: Option<Limit>,
    /// Those whose removal cures.
    pub(crate) cures: Vec<&'static str>,
    /// Whether a higher request cures, if it was tried.
    pub(crate) request_cures: Option<bool>,
    /// Whether the removal of a control cures: then the phases cannot be compared.
    pub(crate) is_disturbed: bool,
}

impl Truth {
    /// From the latencies without any suspect and limit, with all, and with one removed in turn.
    pub(crate) fn of(alone: Latency, together: Latency, without: &[(Removal, Latency)]) -> Self {
        let excess = together.mean_ms - alone.mean_ms;
        let slowed = if excess < NOTHING_MS || together.mean_ms <= NOT_SLOWED * alone.mean_ms {
            Slowed::No
        } else if together.mean_ms < SLOWED * alone.mean_ms {
            Slowed::Slightly
        } else {
            Slowed::Yes
        };
        let cures = |latency: &Latency| {
            slowed != Slowed::No && together.mean_ms - latency.mean_ms >= RESTORED * excess
        };
        let mut truth = Self {
            slowed,
            limit: None,
            cures: Vec::new(),
            request_cures: None,
            is_disturbed: false,
        };
        for (removal, latency) in without {
            let is_cured = cures(latency);
            match *removal {
                Removal::Freeze(name) => {
                    let is_caller = latency.requests < SAME_REQUESTS * together.requests;
                    truth.cures.extend((is_cured && !is_caller).then_some(name));
                }
                Removal::Control(_) => truth.is_disturbed |= is_cured,
                Removal::Lift(limit) => truth.limit = truth.limit.or(is_cured.then_some(limit)),
                Removal::Raise(_) => truth.request_cures = Some(is_cured),
            }
        }
        truth
    }

    pub(crate) fn text(&self) -> String {
        let names = self.cures.join(" or ");
        let limit = match (self.limit, names.is_empty()) {
            (Some(Limit::Own), _) => "own limit".to_owned(),
            (Some(Limit::Above), true) => "limit above".to_owned(),
            (Some(Limit::Above), false) => format!("limit above, {names}"),
            (None, true) => "several".to_owned(),
            (None, false) => names,
        };
        match self.slowed {
            Slowed::No => "nobody".to_owned(),
            Slowed::Slightly => format!("slightly: {limit}"),
            Slowed::Yes => limit,
        }
    }
}

/// Verdict of the agent about one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Silent,
    Unknown,
    One(String),
    Several(Vec<String>),
    /// A limit, and who uses it up.
    Limit(Limit, Option<String>),
    OwnThreads,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Silent => "nobody".to_owned(),
            Self::Unknown => "unknown".to_owned(),
            Self::One(name) => name.clone(),
            Self::Several(names) => format!("several ({})", names.join(", ")),
            Self::Limit(Limit::Own, _) => "own limit".to_owned(),
            Self::Limit(Limit::Above, None) => "limit above".to_owned(),
            Self::Limit(Limit::Above, Some(name)) => format!("limit above, {name}"),
            Self::OwnThreads => "own threads".to_owned(),
        }
    }
}

/// The order is from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Score {
    Right,
    Undecided,
    Wrong,
}

/// Whether the answer about a service agrees with the truth about it.
pub(crate) fn score(truth: &Truth, answer: &Answer) -> Score {
    use Score::{Right, Undecided, Wrong};
    let right_or = |is_right: bool, other: Score| if is_right { Right } else { other };
    let is_cure = |name: &String| truth.cures.iter().any(|cure| cure == name);
    match (truth.slowed, truth.limit, answer) {
        // Threads that wait for each other do so alone too.
        (Slowed::No, _, Answer::Silent | Answer::OwnThreads) => Right,
        (Slowed::Slightly, _, Answer::Silent) => Right,
        (_, _, Answer::Silent | Answer::Unknown) => Undecided,
        (Slowed::No, _, _) | (_, _, Answer::OwnThreads) => Wrong,
        (_, Some(limit), Answer::Limit(found, by)) => {
            right_or(limit == *found && by.as_ref().is_none_or(is_cure), Wrong)
        }
        // The name is right, the reason is not.
        (_, Some(_), Answer::One(name)) if is_cure(name) => Undecided,
        (_, Some(_), _) | (_, None, Answer::Limit(..)) => Wrong,
        (_, None, Answer::One(name)) => right_or(is_cure(name), Wrong),
        (_, None, Answer::Several(_)) => right_or(truth.cures.len() != 1, Undecided),
    }
}
