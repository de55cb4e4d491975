//! Suggestions about pods that make others wait although they are not best effort. They name the
//! pair and the likely cause; moving a pod is left to its owner.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use snapshot::{ContainerRow, NodeSnapshot};

use crate::harm::{HARM_THRESHOLD, MIN_WAIT};
use crate::waits::{PodKey, Reading, WaitMeter, key};

/// Facts about the pod that was running.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Aggressor {
    /// CPU request of the pod, cores: 0 if it has none, `None` if it is unknown.
    pub request_cores: Option<f64>,
    /// CPU that the pod uses, cores.
    pub used_cores: f64,
    /// CPU limit of the pod, cores; `None` if it is unlimited.
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

/// Turns the trace's counters into pairs per reading.
#[derive(Debug, Default)]
pub struct PairMeter(WaitMeter);

impl PairMeter {
    /// Reads the counters of a snapshot. `is_best_effort` takes a namespace and a pod name; such
    /// pods are not victims. Returns `None` for the first snapshot, for one without new counters,
    /// and while nothing is traced.
    pub fn read(
        &mut self,
        snapshot: &NodeSnapshot,
        is_best_effort: impl Fn(&str, &str) -> bool,
    ) -> Option<Vec<Pair>> {
        // `system` and `other` have no pod name.
        let counts = |victim: &PodKey, aggressor: &PodKey| {
            !aggressor.1.is_empty() && !is_best_effort(&victim.0, &victim.1)
        };
        let reading = self.0.read(snapshot, counts, |_, _| true)?;
        let least = reading.elapsed.as_nanos() as f64 * MIN_WAIT;
        let pairs = reading.waits.iter().filter_map(|(victim, aggressor, waited_ns)| {
            let (waited, used) = (*waited_ns as f64, used_ns(&reading, victim));
            (waited >= least && *waited_ns > 0).then(|| Pair {
                victim: name(victim),
                aggressor: name(aggressor),
                lost: waited / (waited + used),
                facts: facts(snapshot, aggressor, &reading),
            })
        });
        Some(pairs.collect())
    }
}

fn name((namespace, pod): &PodKey) -> String {
    format!("{namespace}/{pod}")
}

fn used_ns(reading: &Reading, pod: &PodKey) -> f64 {
    reading.used_ns.get(pod).map_or(0.0, |used| *used as f64)
}

fn facts(snapshot: &NodeSnapshot, pod: &PodKey, reading: &Reading) -> Aggressor {
    let is_of_pod =
        |row: &&ContainerRow| row.live && key(&row.identity.namespace, &row.identity.pod) == *pod;
    let rows: Vec<&ContainerRow> = snapshot.containers.iter().filter(is_of_pod).collect();
    // The request of the pod itself replaces those of its containers, and is not in the snapshot.
    let is_known = |row: &&ContainerRow| row.spec.is_some_and(|spec| !spec.pod_requests_cpu);
    let requested = rows.iter().filter_map(|row| row.request_cores).sum();
    let sum_of_limits: Option<f64> = rows.iter().map(|row| row.cpu_limit.cores()).sum();
    let of_pod =
        |row: &&snapshot::PodRow| *row.identity.namespace == *pod.0 && *row.identity.pod == *pod.1;
    let limit_of_pod = snapshot.pods.iter().find(of_pod).and_then(|row| row.cpu_limit.cores());
    Aggressor {
        request_cores: rows.iter().all(is_known).then_some(requested),
        used_cores: used_ns(reading, pod) / reading.elapsed.as_nanos() as f64,
        limit_cores: limit_of_pod.or(sum_of_limits.filter(|_| !rows.is_empty())),
        runnable_threads: rows.iter().map(|row| row.runnable_threads).sum(),
    }
}

/// Reason why a pod takes more CPU than its neighbors can spare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cause {
    /// The pod uses more than it requests, so the scheduler placed too much beside it.
    RequestBelowUse {
        /// CPU request, cores.
        request_cores: f64,
        /// CPU use, cores.
        used_cores: f64,
    },
    /// More threads run at once than the CPU limit can supply.
    ParallelismAboveLimit {
        /// Runnable threads.
        threads: u64,
        /// CPU limit, cores.
        limit_cores: f64,
    },
    /// The pod stays within its request: only another node helps.
    WithinRequest,
    /// The request is unknown, and nothing else explains the use.
    UnknownRequest,
}

/// Cause and remedy, which continue "the aggressor, which …".
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RequestBelowUse { request_cores, used_cores } => write!(
                f,
                "uses {used_cores:.2} cores and requests {request_cores:.2}: raise that request to \
                 the use, so that less is placed beside it, or move one of the two pods"
            ),
            Self::ParallelismAboveLimit { threads, limit_cores } => write!(
                f,
                "runs {threads} threads at once under a limit of {limit_cores:.2} cores: run as \
                 many threads as its limit supplies, or move one of the two pods"
            ),
            Self::WithinRequest => {
                f.write_str("stays within its request: move one of the two pods to another node")
            }
            Self::UnknownRequest => f.write_str(
                "has a CPU request that is unknown: compare it with the use, or move one of the \
                 two pods to another node",
            ),
        }
    }
}

/// A suggestion about one pair.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestion {
    /// The pair.
    pub pair: Pair,
    /// Likely cause on the aggressor's side.
    pub cause: Cause,
}

/// Time between two suggestions about the same pair, for which each is in force.
const AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Time for which the harm of a pair must last.
const LASTING: Duration = Duration::from_secs(60);

/// Use above this multiple of the request is more than requested.
const ABOVE_REQUEST: f64 = 1.1;

/// Chooses when to suggest something.
#[derive(Debug, Default)]
pub struct Suggestions {
    /// Since when each pair has been harmful.
    since: HashMap<(String, String), Duration>,
    /// The last suggestion about each pair with its time, for at most [`AGAIN_AFTER`].
    said: BTreeMap<(String, String), (Duration, Suggestion)>,
}

impl Suggestions {
    /// Takes the pairs of one reading and returns the suggestions that are due, the worst first.
    /// `is_best_effort` takes `namespace/pod`: for these aggressors the controller acts instead.
    pub fn tick(
        &mut self,
        now: Duration,
        pairs: impl IntoIterator<Item = Pair>,
        is_best_effort: impl Fn(&str) -> bool,
    ) -> Vec<Suggestion> {
        self.expire(now);
        let mut since = HashMap::new();
        let mut due = Vec::new();
        for pair in pairs {
            if pair.lost < HARM_THRESHOLD || is_best_effort(&pair.aggressor) {
                continue;
            }
            let key = (pair.victim.clone(), pair.aggressor.clone());
            let began = self.since.get(&key).copied().unwrap_or(now);
            since.insert(key.clone(), began);
            if now.saturating_sub(began) >= LASTING && !self.said.contains_key(&key) {
                let suggestion = Suggestion { cause: cause(&pair.facts), pair };
                self.said.insert(key, (now, suggestion.clone()));
                due.push(suggestion);
            }
        }
        self.since = since;
        due.sort_by(|a, b| b.pair.lost.total_cmp(&a.pair.lost));
        due
    }

    /// The suggestions of the last ten minutes, by victim and aggressor.
    pub fn in_force(&mut self, now: Duration) -> impl Iterator<Item = &Suggestion> {
        self.expire(now);
        self.said.values().map(|(_, suggestion)| suggestion)
    }

    fn expire(&mut self, now: Duration) {
        self.said.retain(|_, (said, _)| now.saturating_sub(*said) < AGAIN_AFTER);
    }
}

fn cause(facts: &Aggressor) -> Cause {
    if let Some(request_cores) = facts.request_cores
        && facts.used_cores > request_cores * ABOVE_REQUEST
    {
        return Cause::RequestBelowUse { request_cores, used_cores: facts.used_cores };
    }
    match (facts.runnable_threads, facts.limit_cores) {
        (Some(threads), Some(limit_cores)) if threads as f64 > limit_cores.ceil() => {
            Cause::ParallelismAboveLimit { threads, limit_cores }
        }
        _ if facts.request_cores.is_none() => Cause::UnknownRequest,
        _ => Cause::WithinRequest,
    }
}
