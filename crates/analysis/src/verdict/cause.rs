//! The cause of a victim's delay, over its slowed seconds.

use std::collections::BTreeMap;

use api::{CauseKind, Culprit, SlowedReason};

use super::PodSecond;
use super::node::{Part, Who};

/// Minimum share of all lost time for a cause to be the only one.
const ONE: f64 = 0.5;
/// Minimum share of the use of a quota for a consumer to be the only one. Consumers that the quota
/// throttles alike use half of it each, whatever they want.
const ONE_CONSUMER: f64 = 0.6;
/// Maximum share of time without a known cause.
const UNATTRIBUTED: f64 = 0.25;
/// Maximum number of culprits that are named if there are several, and the minimum share of each but
/// the first.
const NAMED: usize = 3;
const LEAST_NAMED: f64 = 0.1;
/// Use above this multiple of the request is beyond it.
const BEYOND: f64 = 1.1;
/// Cores that make no difference to a request.
const LEAST_CORES: f64 = 0.01;

pub(super) struct Cause {
    pub(super) reason: SlowedReason,
    pub(super) kind: CauseKind,
    pub(super) culprits: Vec<Culprit>,
    /// Whether it is unknown mostly because the hypervisor took CPU time.
    pub(super) is_stolen: bool,
}

impl Cause {
    fn new(reason: SlowedReason, kind: CauseKind, culprits: Vec<Culprit>) -> Self {
        Self { reason, kind, culprits, is_stolen: false }
    }

    pub(super) fn own(reason: SlowedReason) -> Self {
        Self::new(reason, CauseKind::Own, Vec::new())
    }
}

/// One of them over all seconds.
#[derive(Debug, Default)]
struct Sum {
    time: f64,
    /// Part of the time in which the CPUs had room for the others.
    alone: f64,
    used: f64,
    seconds: f64,
    request_cores: Option<f64>,
    is_restricted: bool,
}

type Sums<'a> = Vec<(&'a Who, Sum)>;

/// The cause of a delay by others.
pub(super) fn of_others<'a>(parts: impl Iterator<Item = (f64, &'a [Part])>) -> Cause {
    let (sums, total) = summed(parts);
    let time = |is_one: fn(&Who) -> bool| {
        sums.iter().filter(|(who, _)| is_one(who)).map(|(_, sum)| sum.time).sum::<f64>()
    };
    let stolen = time(|who| *who == Who::Stolen);
    let unattributed = time(|who| *who == Who::Unattributed) + stolen;
    let system = time(|who| *who == Who::System);
    if total <= 0.0 || unattributed > UNATTRIBUTED * total {
        let unknown = Cause::new(SlowedReason::Unknown, CauseKind::Unknown, Vec::new());
        return Cause { is_stolen: stolen > unattributed / 2.0, ..unknown };
    }
    let is_neighbor = total - unattributed - system >= system;
    let reason = if is_neighbor { SlowedReason::Neighbor } else { SlowedReason::System };
    let is_known = |who: &Who| !matches!(who, Who::Unattributed | Who::Stolen | Who::Small);
    let known = sums.iter().filter(|(who, _)| is_known(who));
    let first = known
        .clone()
        .next()
        .filter(|(_, sum)| sum.time >= ONE * total && sum.alone >= ONE * sum.time);
    let (kind, named) =
        if first.is_some() { (CauseKind::One, 1) } else { (CauseKind::Several, NAMED) };
    Cause::new(reason, kind, named_of(known.take(named), total))
}

/// The culprits with enough of the time, the largest first.
fn named_of<'a, 'b: 'a>(
    largest: impl Iterator<Item = &'a (&'b Who, Sum)>,
    total: f64,
) -> Vec<Culprit> {
    let culprits = largest.map(|(who, sum)| culprit(who, sum, total)).enumerate();
    let is_named = |(place, one): &(usize, Culprit)| *place == 0 || one.share >= LEAST_NAMED;
    culprits.filter(is_named).map(|(_, one)| one).collect()
}

/// The cause of a delay by a quota that the pod shares: its largest consumer.
pub(super) fn of_quota<'a>(
    parts: impl Iterator<Item = (f64, &'a [Part])>,
    pod: &PodSecond,
) -> Cause {
    let reason = SlowedReason::AncestorLimit;
    let (mut sums, total) = summed(parts);
    sums.retain(|(who, _)| **who != Who::Small);
    let Some((who, first)) = sums.first() else { return Cause::own(reason) };
    let is_itself = match who {
        Who::Workload(workload) => **workload == *pod.workload,
        _ => sums.len() == 1,
    };
    match first.time >= ONE_CONSUMER * total {
        true if is_itself => Cause::own(reason),
        true => {
            let culprits = vec![culprit(who, first, total)];
            Cause::new(reason, CauseKind::One, culprits)
        }
        false => {
            let others = sums.iter().filter(
                |(who, _)| !matches!(who, Who::Workload(workload) if **workload == *pod.workload),
            );
            let culprits = named_of(others.take(NAMED), total);
            Cause::new(reason, CauseKind::Several, culprits)
        }
    }
}

/// Whether a use is beyond a request.
pub(super) fn is_beyond(used_cores: f64, request_cores: f64) -> bool {
    used_cores > BEYOND * request_cores && used_cores > request_cores + LEAST_CORES
}

/// The sums by culprit, the largest first, and the sum of all.
fn summed<'a>(parts: impl Iterator<Item = (f64, &'a [Part])>) -> (Sums<'a>, f64) {
    let mut sums: BTreeMap<&Who, Sum> = BTreeMap::new();
    for (seconds, parts) in parts {
        for part in parts {
            let sum = sums.entry(&part.who).or_default();
            sum.time += part.time;
            sum.alone += if part.leaves_room { part.time } else { 0.0 };
            sum.used += part.used;
            sum.seconds += seconds;
            sum.request_cores = part.request_cores;
            sum.is_restricted |= part.is_restricted;
        }
    }
    let mut sums: Sums<'_> = sums.into_iter().collect();
    // The order of the names breaks ties.
    sums.sort_by(|(_, a), (_, b)| b.time.total_cmp(&a.time));
    let total = sums.iter().map(|(_, sum)| sum.time).sum();
    (sums, total)
}

fn culprit(who: &Who, sum: &Sum, total: f64) -> Culprit {
    let (namespace, kind, name) = match who {
        Who::Workload(workload) => (&*workload.namespace, &*workload.kind, &*workload.name),
        Who::Container(name) => ("", "Container", &**name),
        Who::System | Who::Stolen | Who::Unattributed | Who::Small => (Culprit::SYSTEM, "", ""),
    };
    let used_cores = if sum.seconds > 0.0 { sum.used / sum.seconds } else { 0.0 };
    Culprit {
        namespace: namespace.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        share: sum.time / total,
        used_cores,
        request_cores: sum.request_cores,
        beyond_request: !sum.is_restricted
            && sum.request_cores.is_some_and(|request| is_beyond(used_cores, request)),
    }
}
