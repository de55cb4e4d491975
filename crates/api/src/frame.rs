//! One second of a node, as the views show it.

use serde::{Deserialize, Serialize};

use crate::pod_name::PodName;
use crate::verdict::Verdict;

/// Number of frames that an agent keeps: ten minutes, if ticks are not longer than a second.
pub const KEPT: usize = 600;

/// Maximum number of verdicts in a frame.
pub const SHOWN_VERDICTS: usize = 10;

/// One second of a node. Rates are averages over the frame.
///
/// The JSON form is the one of the API, of the event stream and of recordings. `None` is omitted:
/// the kernel or the configuration does not provide the value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Frame {
    /// Wall-clock time at the end of the frame, milliseconds since the epoch.
    pub at_ms: u64,
    /// Length of the frame, seconds: 1 unless ticks are longer or late.
    pub seconds: f64,
    /// The node.
    pub node: NodeFrame,
    /// The live containers, sorted by namespace, pod and container.
    pub containers: Vec<ContainerFrame>,
    /// Waits in this frame, by victim and aggressor, longest first.
    pub interference: Vec<Interference>,
    /// The pods that are slowed, in the order of the victims; at most [`SHOWN_VERDICTS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<Verdict>,
}

/// State of the node in one frame.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFrame {
    /// Name of the node; empty if unknown.
    pub name: String,
    /// Whether waits are traced.
    pub trace: Trace,
    /// Share of the time in which some thread waited for a CPU (PSI `some`), 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<f64>,
    /// Contention-only pressure; unlike [`NodeFrame::pressure`] without throttling.
    #[serde(skip_serializing_if = "Contention::is_empty")]
    pub contention: Contention,
    /// Stolen time, seconds per second, summed over CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// Pods that yield CPU, and limits that burst.
    #[serde(skip_serializing_if = "Colocation::is_empty")]
    pub colocation: Colocation,
    /// The online CPUs.
    pub cpus: Vec<CpuFrame>,
}

/// Actions of co-location.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Colocation {
    /// State of best-effort pods; `None` if that is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_effort: Option<BestEffort>,
    /// UIDs of the pods that are restricted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub yields: Vec<String>,
    /// Containers whose limit may burst.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bursts: Vec<ContainerName>,
}

/// State of best-effort pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BestEffort {
    /// Step, 0 to 3.
    pub step: u8,
    /// Whether the step is written, and not only computed.
    pub enforcing: bool,
}

/// UID of a pod and name of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerName {
    /// UID of the pod.
    pub uid: String,
    /// Name of the container.
    pub container: String,
}

impl Colocation {
    /// Whether co-location is off.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the container's pod yields CPU.
    #[must_use]
    pub fn yields(&self, row: &ContainerFrame) -> bool {
        self.yields.contains(&row.uid)
    }

    /// Whether the container's limit may burst.
    #[must_use]
    pub fn bursts(&self, row: &ContainerFrame) -> bool {
        contains(&self.bursts, row)
    }
}

fn contains(names: &[ContainerName], row: &ContainerFrame) -> bool {
    names.iter().any(|one| one.uid == row.uid && one.container == row.container)
}

/// Share of the time in which some thread waited for a CPU for a reason other than its own quota.
/// All are absent unless waits are traced all the time; a class is absent if it has no containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Contention {
    /// Threads of latency-sensitive pods: classes `Guaranteed` and `Burstable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Bounds>,
    /// Threads of QoS class `Guaranteed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed: Option<Bounds>,
    /// Threads of QoS class `Burstable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burstable: Option<Bounds>,
    /// Threads of QoS class `BestEffort`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_effort: Option<Bounds>,
}

impl Contention {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Bounds of a share, 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// At least this share.
    pub lower: f64,
    /// At most this share.
    pub upper: f64,
}

/// State of the scheduler trace: without it, the causes of waits are unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trace {
    /// `off`, `continuous`, `bursts` (all figures of waits are estimates) or `detached`.
    pub mode: String,
    /// Reason why waits are not traced; empty if they are.
    pub reason: String,
}

/// One CPU in one frame.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuFrame {
    /// CPU number.
    pub cpu: u32,
    /// Lowest CPU of the core: the same for both threads of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// Last-level cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llc: Option<u32>,
    /// NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// Share of the time in which the CPU was not idle, 0 to 1. Only read while a view is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<f64>,
}

/// Time that one pod waited because of another.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Interference {
    /// The pod that waited.
    pub victim: PodName,
    /// The pod that was running.
    pub aggressor: PodName,
    /// Thread-seconds of waiting per second.
    pub wait: f64,
}

/// One container in one frame.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerFrame {
    /// Namespace of the pod; empty while the pod is unknown.
    pub namespace: String,
    /// Name of the pod; its UID while it is unknown.
    pub pod: String,
    /// Name of the container; its id while the pod is unknown.
    pub container: String,
    /// UID of the pod.
    pub uid: String,
    /// Kubernetes QoS class.
    pub qos_class: String,
    /// Koordinator QoS class; empty if the pod has none.
    pub cpu_qos: String,
    /// Lowest CPU limit over the container and its ancestors, cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_cores: Option<f64>,
    /// CPU request, cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_cores: Option<f64>,
    /// CPUs that the container may use, in the kernel's list format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Garbage collection of its program; only in the latest frame, and not in recordings. `None`
    /// unless it is read (`--gc=on`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gc: Option<GarbageCollection>,
    /// Usage, throttling and waits.
    #[serde(flatten)]
    pub rates: Rates,
}

/// Garbage collection of a container's program in the latest ten seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GarbageCollection {
    /// Share of the program's CPU time that the collector took, 0 to 1; `None` if the runtime does
    /// not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_share: Option<f64>,
    /// Completed cycles per second; `None` before the second reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<f64>,
    /// Share of the time in which the program was stopped, 0 to 1: at safepoints of a JVM, for
    /// whatever reason, or by the collector of a Go program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_share: Option<f64>,
    /// Names of a JVM's collectors, such as `G1 young collection pauses`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collectors: Vec<String>,
    /// Live heap after the latest cycle, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_bytes: Option<u64>,
    /// Heap size at which the next cycle is to be complete, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal_bytes: Option<u64>,
    /// Limit that the runtime keeps, bytes; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// GOGC in force, percent; negative if it is off. `None` of another runtime than Go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gogc: Option<i32>,
    /// GOMAXPROCS in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gomaxprocs: Option<u32>,
}

/// Usage, throttling and waits of one container in one frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rates {
    /// CPU usage, cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_cores: Option<f64>,
    /// Share of the time in which its own limit throttled it, 0 to 1; `None` without a limit of its
    /// own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_share: Option<f64>,
    /// Time throttled by its own limit, seconds per second, summed over CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_own: Option<f64>,
    /// Time throttled by a limit of the pod or of a cgroup above it, seconds per second, summed
    /// over CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_ancestor: Option<f64>,
    /// Thread-seconds per second of waiting while another pod was running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbor: Option<f64>,
    /// Thread-seconds per second of waiting while the same pod was running.
    #[serde(skip_serializing_if = "Option::is_none", rename = "self")]
    pub own: Option<f64>,
    /// Thread-seconds per second of waiting while the system was running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<f64>,
    /// Seconds per second on a CPU while another pod, or the system, ran on the core's other
    /// thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smt: Option<f64>,
    /// Lower bound of waits for other threads, thread-seconds per second, without the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contention: Option<f64>,
}

impl Rates {
    /// Time throttled by any limit, seconds per second.
    #[must_use]
    pub fn throttled(&self) -> f64 {
        self.throttled_own.unwrap_or(0.0) + self.throttled_ancestor.unwrap_or(0.0)
    }

    /// Time lost to limits, neighbors and the system, seconds per second: the order of the victims.
    /// Waits for its own threads do not count; without the trace, all known contention does.
    #[must_use]
    pub fn lost(&self) -> f64 {
        let waited = match (self.neighbor, self.system) {
            (None, None) => self.contention.unwrap_or(0.0),
            (neighbor, system) => neighbor.unwrap_or(0.0) + system.unwrap_or(0.0),
        };
        self.throttled() + waited
    }
}

impl Bounds {
    /// Distance of the bounds, in points of percent, above which only the lower one is said: the
    /// range would say little.
    const WIDE: f64 = 30.0;

    /// Whether the bounds are too far apart to be shown as a range.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        (100.0 * self.upper).round() - (100.0 * self.lower).round() > Self::WIDE
    }
}

impl Frame {
    /// Place of a container's pod among the victims, with the verdict about it. Only for the
    /// container of the pod that used most CPU: the others may have done nothing.
    #[must_use]
    pub fn verdict(&self, row: &ContainerFrame) -> Option<(usize, &Verdict)> {
        let is_of = |namespace: &str, pod: &str| row.namespace == namespace && row.pod == pod;
        let mut verdicts = self.verdicts.iter().enumerate();
        let found = verdicts.find(|(_, one)| is_of(&one.victim.namespace, &one.victim.pod))?;
        let used = |row: &ContainerFrame| row.rates.usage_cores.unwrap_or_default();
        let of_pod = self.containers.iter().filter(|other| is_of(&other.namespace, &other.pod));
        let busiest = of_pod.reduce(|a, b| if used(b) > used(a) { b } else { a })?;
        (busiest.container == row.container).then_some(found)
    }
}

impl ContainerFrame {
    /// The container's pod.
    #[must_use]
    pub fn pod_name(&self) -> PodName {
        PodName { namespace: self.namespace.clone(), pod: self.pod.clone() }
    }
}
