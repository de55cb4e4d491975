//! The verdict: which pods are slowed, by what, and what to do. Every surface that names a victim
//! or a cause uses it.
//!
//! Each second is judged alone; a verdict holds if enough of the last seconds agree. Delays by
//! others, by limits and by the pod's own threads are judged apart. A cause must have at least half
//! of all lost time, and the others must not be able to use its CPU time instead.

mod cause;
mod node;
mod reading;
mod track;
mod words;

use std::sync::Arc;

use api::{CauseKind, SlowedReason, Verdict};
use foldhash::HashMap;
use snapshot::{Culprit, PodIdentity, TraceMode};

use node::Node;
pub use reading::SnapshotReader;
use track::Track;

/// A workload on a node. Pods of one workload count together.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadName {
    /// Namespace.
    pub namespace: String,
    /// Kind of the controller, or `Pod` without one.
    pub kind: String,
    /// Name of the controller, or of the pod.
    pub name: String,
}

/// Kind of a pod without a controller.
pub(crate) const POD: &str = "Pod";

impl WorkloadName {
    /// A pod without a controller.
    #[must_use]
    pub fn pod(pod: &PodIdentity) -> Self {
        Self { namespace: pod.namespace.clone(), kind: POD.to_owned(), name: pod.pod.clone() }
    }
}

/// One second of a node. It may be longer if ticks are.
#[derive(Debug, Clone, Default)]
pub struct Second {
    /// Length, seconds.
    pub seconds: f64,
    /// Share of the time in which CPUs were not idle that the hypervisor took, 0 to 1.
    pub stolen: f64,
    /// Mode of the trace of waits; `None` without the trace.
    pub trace: Option<TraceMode>,
    /// The live pods.
    pub pods: Vec<PodSecond>,
}

impl Second {
    /// Whether the lost time is complete: waits are traced all the time.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.trace == Some(TraceMode::Continuous)
    }
}

/// One second of a pod. Times are core-seconds of this second.
#[derive(Debug, Clone, Default)]
pub struct PodSecond {
    /// The pod.
    pub pod: Arc<PodIdentity>,
    /// Its workload.
    pub workload: Arc<WorkloadName>,
    /// Whether the pod is best effort.
    pub best_effort: bool,
    /// Whether the agent restricts it.
    pub is_restricted: bool,
    /// Whether its threads slept in between.
    pub sleeps: bool,
    /// CPU request, cores; 0 without one, `None` if it is unknown.
    pub request_cores: Option<f64>,
    /// Sum of its containers' own limits, cores; `None` if one has none.
    pub limit_cores: Option<f64>,
    /// CPU time used.
    pub used: f64,
    /// Time lost, by what ran meanwhile.
    pub lost: Vec<(Culprit, f64)>,
    /// Lower bound of the contention without the trace, thread-seconds.
    pub contention: f64,
    /// Number of waits after a wakeup.
    pub wakeups: u64,
    /// Number of those of at least ten milliseconds.
    pub late_wakeups: u64,
    /// Time throttled by its containers' own limits.
    pub throttled_own: f64,
    /// Time throttled by the pod's quota or one above it.
    pub throttled_ancestor: f64,
    /// Whether the pod's cgroup has a quota of its own.
    pub has_pod_quota: bool,
    /// Time that its threads waited for each other, thread-seconds.
    pub waited_self: f64,
    /// CPU time used by each container.
    pub containers: Vec<(Arc<str>, f64)>,
}

/// Time in which a pod was slowed, for its counters.
#[derive(Debug, Clone, PartialEq)]
pub struct Slowed {
    /// The pod.
    pub pod: Arc<PodIdentity>,
    /// Reason of the verdict.
    pub reason: SlowedReason,
    /// Wall time, seconds.
    pub seconds: f64,
    /// Time lost for this reason, core-seconds.
    pub lost: f64,
    /// Certainty of the cause.
    pub cause: CauseKind,
    /// The cause, if it is one workload or the host.
    pub culprit: Option<api::Culprit>,
}

/// Result of one more second.
#[derive(Debug, Clone, Default)]
pub struct Judged {
    /// The pods that are slowed, in the order of the victims.
    pub verdicts: Vec<Verdict>,
    /// Time to add to counters: of this second, and of earlier seconds if a verdict has just become
    /// certain. Waits for others count only if they do harm ([`Verdict::is_harm`]), and nothing
    /// counts of a pod that the agent restricts.
    pub slowed: Vec<Slowed>,
}

/// Time for which the workload of a pod is known after its end, seconds.
const KNOWN_FOR: f64 = 60.0;

/// The verdicts about a node's pods.
#[derive(Debug, Default)]
pub struct Verdicts {
    /// Sum of the seconds.
    clock: f64,
    /// The pods of the last second, in its order.
    tracks: Vec<(Arc<PodIdentity>, Track)>,
    /// Workload of each pod, by the pod's labels, with the time when a pod that is gone was last seen.
    workloads: HashMap<Box<str>, (Arc<WorkloadName>, Option<f64>)>,
}

impl Verdicts {
    /// Adds a second.
    pub fn push(&mut self, second: &Second) -> Judged {
        self.turn_to(&second.pods);
        self.clock += second.seconds;
        let node = Node::new(second, &self.workloads, |at| self.tracks[at].1.unhindered());
        let mut judged = Judged::default();
        for (pod, (_, track)) in second.pods.iter().zip(&mut self.tracks) {
            track.push(self.clock, second, pod, &node);
            if let Some((verdict, slowed)) = track.judge(self.clock, second.trace, pod) {
                judged.verdicts.push(verdict);
                judged.slowed.extend(slowed);
            }
        }
        judged.verdicts.sort_by(order);
        judged
    }

    /// Brings the tracks into the order of these pods. Mostly they are those of the second before, and
    /// no name is compared.
    fn turn_to(&mut self, pods: &[PodSecond]) {
        let gone = |(_, gone): &(Arc<WorkloadName>, Option<f64>)| *gone;
        let clock = self.clock;
        self.workloads.retain(|_, known| gone(known).is_none_or(|at| clock - at <= KNOWN_FOR));
        let known = self.tracks.iter().map(|(pod, _)| Arc::as_ptr(pod));
        if pods.iter().map(|pod| Arc::as_ptr(&pod.pod)).eq(known) {
            return;
        }
        let before = std::mem::take(&mut self.tracks).into_iter();
        let mut before: HashMap<Box<str>, Track> =
            before.map(|(pod, track)| (pod.labels.clone(), track)).collect();
        for (_, gone) in self.workloads.values_mut() {
            gone.get_or_insert(clock);
        }
        for pod in pods {
            self.workloads.insert(pod.pod.labels.clone(), (Arc::clone(&pod.workload), None));
            let track = before.remove(&pod.pod.labels).unwrap_or_default();
            self.tracks.push((Arc::clone(&pod.pod), track));
        }
    }
}

/// Order of the victims: the class first, in it delays by others before limits before own threads,
/// then the share. The names make it total.
fn order(a: &Verdict, b: &Verdict) -> std::cmp::Ordering {
    let rank = |verdict: &Verdict| match verdict.reason {
        SlowedReason::Neighbor | SlowedReason::System | SlowedReason::Unknown => 0,
        SlowedReason::AncestorLimit | SlowedReason::OwnLimit => 1,
        SlowedReason::Own => 2,
    };
    (a.class, rank(a))
        .cmp(&(b.class, rank(b)))
        .then_with(|| b.share.total_cmp(&a.share))
        .then_with(|| a.victim.cmp(&b.victim))
}
