//! Suggestions about pods that make others wait although they are not best effort. They name the
//! pair and the likely cause; moving a pod is left to its owner.

use std::collections::HashMap;
use std::time::Duration;

/// Facts about the pod that was running.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Aggressor {
    /// CPU request of the pod, cores; `None` if it has none.
    pub request_cores: Option<f64>,
    /// CPU that the pod uses, cores.
    pub used_cores: f64,
    /// CPU limit of the pod, cores; `None` if it has none.
    pub limit_cores: Option<f64>,
    /// Threads that ran or wanted to run at once.
    pub runnable_threads: Option<u64>,
}

/// A victim and an aggressor over one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The pod that waited, as `namespace/pod`.
    pub victim: String,
    /// The pod that was running, as `namespace/pod`.
    pub aggressor: String,
    /// Share of its time that the victim waited for this aggressor, 0 to 1.
    pub lost: f64,
    /// Facts about the aggressor.
    pub facts: Aggressor,
}

/// Why a pod takes more CPU than its neighbors can spare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cause {
    /// It uses more than it requests, so the scheduler placed too much beside it.
    RequestBelowUse {
        /// CPU request, cores.
        request_cores: f64,
        /// CPU use, cores.
        used_cores: f64,
    },
    /// More of its threads run at once than its limit can pay for.
    ParallelismAboveLimit {
        /// Runnable threads.
        threads: u64,
        /// CPU limit, cores.
        limit_cores: f64,
    },
    /// It stays within its request: only another node helps.
    WithinRequest,
}

/// A suggestion about one pair.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestion {
    /// The pair.
    pub pair: Pair,
    /// Likely cause on the aggressor's side.
    pub cause: Cause,
}

/// Time between two suggestions about the same pair.
const AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Time for which the harm of a pair must last.
const LASTING: Duration = Duration::from_secs(60);

/// Harm that is worth a suggestion.
const HARM: f64 = 0.05;

/// Use above this multiple of the request is more than requested.
const ABOVE_REQUEST: f64 = 1.1;

/// Chooses when to suggest something.
#[derive(Debug, Default)]
pub struct Suggestions {
    /// Since when each pair has been harmful.
    since: HashMap<(String, String), Duration>,
    /// Time of the last suggestion about each pair, for at most [`AGAIN_AFTER`].
    said: HashMap<(String, String), Duration>,
}

impl Suggestions {
    /// Takes the pairs of one tick and returns the suggestions that are due, the worst first.
    /// `is_best_effort` takes `namespace/pod`: for these aggressors the controller acts instead.
    pub fn tick(
        &mut self,
        now: Duration,
        pairs: impl IntoIterator<Item = Pair>,
        is_best_effort: impl Fn(&str) -> bool,
    ) -> Vec<Suggestion> {
        self.said.retain(|_, said| now.saturating_sub(*said) < AGAIN_AFTER);
        let mut since = HashMap::new();
        let mut due = Vec::new();
        for pair in pairs {
            if pair.lost < HARM || is_best_effort(&pair.aggressor) {
                continue;
            }
            let key = (pair.victim.clone(), pair.aggressor.clone());
            let began = self.since.get(&key).copied().unwrap_or(now);
            since.insert(key.clone(), began);
            if now.saturating_sub(began) >= LASTING && !self.said.contains_key(&key) {
                self.said.insert(key, now);
                due.push(Suggestion { cause: cause(&pair.facts), pair });
            }
        }
        self.since = since;
        due.sort_by(|a, b| b.pair.lost.total_cmp(&a.pair.lost));
        due
    }
}

fn cause(facts: &Aggressor) -> Cause {
    let request_cores = facts.request_cores.unwrap_or_default();
    if facts.used_cores > request_cores * ABOVE_REQUEST {
        return Cause::RequestBelowUse { request_cores, used_cores: facts.used_cores };
    }
    match (facts.runnable_threads, facts.limit_cores) {
        (Some(threads), Some(limit_cores)) if threads as f64 > limit_cores.ceil() => {
            Cause::ParallelismAboveLimit { threads, limit_cores }
        }
        _ => Cause::WithinRequest,
    }
}
