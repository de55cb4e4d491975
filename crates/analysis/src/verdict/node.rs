//! The workloads of a node in one second: what they used, and what they would use on free CPUs.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::HashMap;
use snapshot::{Culprit, PodIdentity};

use super::reading::AWAKE;
use super::{PodSecond, Second, WorkloadName};

/// Holder of the CPU while a pod lost time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Who {
    Workload(Arc<WorkloadName>),
    /// Several workloads with little time each.
    Small,
    /// A container of the victim's own pod.
    Container(Arc<str>),
    System,
    /// A thread from which the hypervisor took the CPU.
    Stolen,
    Unattributed,
}

/// The part that one of them has in a second.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) who: Who,
    /// Lost time, or use of a quota, core-seconds.
    pub(super) time: f64,
    /// CPU time that it used, core-seconds.
    pub(super) used: f64,
    pub(super) request_cores: Option<f64>,
    pub(super) is_restricted: bool,
    /// Whether the CPUs would have had room for all others without it.
    pub(super) leaves_room: bool,
}

/// A workload in this second.
#[derive(Debug)]
struct Use {
    used: f64,
    request_cores: Option<f64>,
    is_restricted: bool,
    /// Best effort, all of its pods.
    best_effort: bool,
    /// By workload, the CPU that the pods of others would have used instead of its own.
    wanted_by: BTreeMap<Arc<WorkloadName>, f64>,
    /// Sum of those that would have got it.
    wanted: f64,
}

impl Use {
    /// Whether a workload would get the CPU that this one leaves: best-effort pods fill the CPUs only
    /// instead of another one, because they yield to the victim.
    fn yields_to(&self, best_effort: bool) -> bool {
        self.best_effort || !best_effort
    }
}

/// Number of workloads that are kept apart in a second whatever their time, and the share of all time
/// from which on more are. On a full node, hundreds of pods have a part in each second.
const LARGEST: usize = 3;
const LEAST_APART: f64 = 0.05;

/// Share of the freed CPU that the others must be able to take for the CPUs to stay full.
const REFILLED: f64 = 0.9;
/// Core-seconds that come from rounding only.
const ROUNDING: f64 = 1e-9;

/// The parts of a second, with the sum of the workloads that have little of it.
fn largest(parts: impl IntoIterator<Item = (Who, f64)>) -> Vec<(Who, f64)> {
    let mut parts: Vec<(Who, f64)> = parts.into_iter().collect();
    parts.sort_by(|(a, a_time), (b, b_time)| b_time.total_cmp(a_time).then_with(|| a.cmp(b)));
    let least = LEAST_APART * parts.iter().map(|(_, time)| time).sum::<f64>();
    let (mut place, mut small) = (0, 0.0);
    parts.retain(|(who, time)| {
        place += 1;
        let is_apart = place <= LARGEST || *time >= least || !matches!(who, Who::Workload(_));
        small += if is_apart { 0.0 } else { *time };
        is_apart
    });
    if small > 0.0 {
        parts.push((Who::Small, small));
    }
    parts
}

/// CPU that the pod would have used in addition, core-seconds. A pod that slept in between got all
/// that it wanted, only late. One with a backlog, which uses no more than in the time in which
/// nothing slowed it (`unhindered` cores), wants no more than that either. Otherwise it is at most
/// what the pod lost.
fn unmet(pod: &PodSecond, seconds: f64, unhindered: Option<f64>) -> f64 {
    let lost: f64 = pod.lost.iter().map(|(_, lost)| lost).sum();
    let slept = pod.used + lost + pod.waited_self < AWAKE * seconds;
    match unhindered.map(|cores| cores * seconds - pod.used) {
        _ if slept => 0.0,
        Some(more) if more >= 0.0 => more.min(lost),
        _ => lost,
    }
}

/// Workload of each pod, by the pod's labels, with the time when a pod that is gone was last seen.
type Known = HashMap<Box<str>, (Arc<WorkloadName>, Option<f64>)>;

#[derive(Debug)]
pub(super) struct Node<'a> {
    known: &'a Known,
    /// Empty if no pod of the second lost time or was throttled from above.
    uses: HashMap<Arc<WorkloadName>, Use>,
    stolen: f64,
}

impl<'a> Node<'a> {
    /// `unhindered`: the most that the pod at a place used while nothing slowed it, cores, if it is
    /// known.
    pub(super) fn new(
        second: &Second,
        known: &'a Known,
        unhindered: impl Fn(usize) -> Option<f64>,
    ) -> Self {
        let mut uses: HashMap<Arc<WorkloadName>, Use> = HashMap::default();
        let is_slowed = |pod: &PodSecond| !pod.lost.is_empty() || pod.throttled_ancestor > 0.0;
        let pods = if second.pods.iter().any(is_slowed) { &*second.pods } else { &[] };
        uses.reserve(pods.len());
        for pod in pods {
            let entry = uses.entry(Arc::clone(&pod.workload)).or_insert(Use {
                used: 0.0,
                request_cores: Some(0.0),
                is_restricted: false,
                best_effort: true,
                wanted_by: BTreeMap::new(),
                wanted: 0.0,
            });
            entry.used += pod.used;
            entry.request_cores = entry.request_cores.zip(pod.request_cores).map(|(a, b)| a + b);
            entry.is_restricted |= pod.is_restricted;
            entry.best_effort &= pod.best_effort;
        }
        let mut node = Self { known, uses, stolen: second.stolen };
        for (at, pod) in pods.iter().enumerate().filter(|(_, pod)| !pod.lost.is_empty()) {
            node.add_wanted(pod, unmet(pod, second.seconds, unhindered(at)));
        }
        node
    }

    /// What a pod lost to others is what it would have used instead of them, on the CPUs that it may
    /// use. Other CPUs may be idle.
    fn add_wanted(&mut self, pod: &PodSecond, unmet: f64) {
        let best_effort = self.is_best_effort(&pod.workload);
        for (culprit, lost) in pod.lost.iter().filter(|_| unmet > 0.0) {
            let Culprit::Pod(other) = culprit else { continue };
            if let Some(of) = self.uses.get_mut(&workload(self.known, other)) {
                *of.wanted_by.entry(Arc::clone(&pod.workload)).or_default() += unmet.min(*lost);
                of.wanted += if of.yields_to(best_effort) { unmet.min(*lost) } else { 0.0 };
            }
        }
    }

    /// Parts of a pod's lost time. Time for which it is its own cause is no wait for others. Waits
    /// last longer by what the hypervisor takes from the thread that runs: no pod is the cause of
    /// that part.
    pub(super) fn parts(&self, pod: &PodSecond) -> Box<[Part]> {
        let mut by_who: BTreeMap<Who, f64> = BTreeMap::new();
        for (culprit, lost) in &pod.lost {
            let who = match culprit {
                Culprit::Pod(other) if other.labels == pod.pod.labels => continue,
                Culprit::Pod(other) => Who::Workload(workload(self.known, other)),
                Culprit::System => Who::System,
                Culprit::Unattributed => Who::Unattributed,
            };
            *by_who.entry(who).or_default() += (1.0 - self.stolen) * lost;
            if self.stolen > 0.0 {
                *by_who.entry(Who::Stolen).or_default() += self.stolen * lost;
            }
        }
        largest(by_who).into_iter().map(|(who, time)| self.part(who, time, pod)).collect()
    }

    /// Consumers of the quota above the pod's containers: the containers, or all workloads if the
    /// quota is above the pod.
    pub(super) fn consumers(&self, pod: &PodSecond) -> Box<[Part]> {
        if pod.has_pod_quota {
            let containers = pod.containers.iter().filter(|(_, used)| *used > 0.0);
            return containers
                .map(|(name, used)| self.part(Who::Container(Arc::clone(name)), *used, pod))
                .collect();
        }
        let workloads = self.uses.iter().filter(|(_, of)| of.used > 0.0);
        let by_who: BTreeMap<Who, f64> = workloads
            .map(|(workload, of)| (Who::Workload(Arc::clone(workload)), of.used))
            .collect();
        largest(by_who).into_iter().map(|(who, time)| self.part(who, time, pod)).collect()
    }

    fn part(&self, who: Who, time: f64, victim: &PodSecond) -> Part {
        let of = match &who {
            Who::Workload(workload) => self.uses.get(workload),
            _ => None,
        };
        let used = match &who {
            Who::Container(_) => time,
            _ => of.map_or(0.0, |of| of.used),
        };
        Part {
            time,
            used,
            request_cores: of.and_then(|of| of.request_cores),
            is_restricted: of.is_some_and(|of| of.is_restricted),
            leaves_room: self.leaves_room(&who, used, victim),
            who,
        }
    }

    /// Whether the others would leave room on the CPUs without this one.
    fn leaves_room(&self, who: &Who, used: f64, victim: &PodSecond) -> bool {
        let Who::Workload(culprit) = who else { return true };
        let Some(of) = self.uses.get(culprit) else { return true };
        let wanted_by = |workload: &Arc<WorkloadName>| {
            let counts = of.yields_to(self.is_best_effort(workload));
            of.wanted_by.get(workload).copied().filter(|_| counts).unwrap_or(0.0)
        };
        let of_victim = if victim.workload == *culprit { 0.0 } else { wanted_by(&victim.workload) };
        let wanted = of.wanted - wanted_by(culprit) - of_victim;
        wanted <= ROUNDING || wanted < REFILLED * used
    }

    fn is_best_effort(&self, workload: &Arc<WorkloadName>) -> bool {
        self.uses.get(workload).is_some_and(|of| of.best_effort)
    }
}

/// The workload of a pod that ran, which may be gone.
fn workload(known: &Known, pod: &PodIdentity) -> Arc<WorkloadName> {
    match known.get(&pod.labels) {
        Some((workload, _)) => Arc::clone(workload),
        None => Arc::new(WorkloadName::pod(pod)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: usize) -> Who {
        let (namespace, kind, name) = ("ns".into(), "Pod".into(), format!("{number:03}"));
        Who::Workload(Arc::new(WorkloadName { namespace, kind, name }))
    }

    #[test]
    fn workloads_with_little_time_each_are_one_part_beside_the_largest() {
        // A hundred with 1 each, beside 5, 6 and the system.
        let small = (0..100).map(|number| (of(number), 1.0));
        let large = [(of(200), 5.0), (of(201), 6.0), (Who::System, 0.5), (Who::Unattributed, 0.1)];
        let parts = largest(small.chain(large));
        let expected = [
            (of(201), 6.0),
            (of(200), 5.0),
            (of(0), 1.0),
            (Who::System, 0.5),
            (Who::Unattributed, 0.1),
            (Who::Small, 99.0),
        ];
        assert_eq!(parts, expected);
        let few = [(of(1), 9.0), (of(2), 1.0), (of(3), 0.1)];
        assert_eq!(largest(few.clone()), few, "the largest three");
    }
}
