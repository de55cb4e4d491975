//! Results of a poll: waits by cause and container, and by the pod that caused them. Plain values.

use std::sync::Arc;

use snapshot::{ContainerWaits, Losses, TraceMode};

/// Id of a container, chosen by the caller and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(pub u64);

/// Id of a pod, chosen by the caller and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u64);

/// Owner of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A container: the cgroup is the container's or below it.
    Container {
        /// Id of the container.
        container: ContainerId,
        /// Id of its pod.
        pod: PodId,
    },
    /// A pod: the cgroup is the pod's own or its sandbox. It can cause waits of others, but its own
    /// waits have no series.
    Pod(PodId),
    /// Outside all pods: host services, the kubelet, the runtime.
    System,
    /// Not known yet, or no longer known.
    Unknown,
}

/// Mapping from cgroups to owners, provided by the caller.
pub trait Owners {
    /// Owner of the cgroup whose directory has this inode (in the hierarchy with the cpu
    /// controller).
    fn owner(&mut self, cgroup: u64) -> Owner;
    /// Whether the container still has series.
    fn has_container(&self, container: ContainerId) -> bool;
    /// Whether the pod still has series.
    fn has_pod(&self, pod: PodId) -> bool;
    /// Whether a container or a pod may have lost its series since the last poll.
    fn any_gone(&self) -> bool {
        true
    }
}

/// Run-queue delay of a container's threads since its last report, from
/// `/proc/PID/task/TID/schedstat`, nanoseconds, summed over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunDelay {
    /// Id of the container.
    pub container: ContainerId,
    /// Delta since the last report, nanoseconds; ignored in the first report.
    pub gained_ns: u64,
}

/// Waits of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedContainer {
    /// Id of the container.
    pub container: ContainerId,
    /// Id of its pod.
    pub pod: PodId,
    /// Waits of its threads by cause. A wait counts while it lasts, or when it ends if its run queue
    /// was ever throttled. The same allocation as in the report before if nothing has changed.
    pub waits: Arc<ContainerWaits>,
}

/// The cause of a pod's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aggressor {
    /// A pod that is, or once was, among the top five.
    Pod(PodId),
    /// Everything outside all pods.
    System,
    /// Sum of all other pods.
    Other,
}

/// Holder of the CPU while a pod lost time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LostTo {
    /// Another pod.
    Pod(PodId),
    /// A host service, the kernel, or an idle CPU that woke up.
    System,
    /// Not known.
    Unattributed,
}

/// Lost time of one pod since the last poll: see [`snapshot::LostTime`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedLoss {
    /// The pod that lost the time.
    pub victim: PodId,
    /// Parts of that time, by the holder of the CPU.
    pub by: Vec<LostPart>,
    /// Number of waits after a wakeup.
    pub wakeups: u64,
    /// Those of at least ten milliseconds.
    pub late_wakeups: u64,
}

/// Time that a pod lost to one holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostPart {
    /// The holder.
    pub to: LostTo,
    /// The time, core-nanoseconds.
    pub ns: u64,
    /// Part of it that may have been lost before the last poll, because a cgroup was not identified
    /// then.
    pub late_ns: u64,
}

/// Results up to a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitReport {
    /// Current mode of the program.
    pub mode: TraceMode,
    /// Waits by container id.
    pub containers: Vec<TracedContainer>,
    /// Wait time of each victim by aggressor, thread-nanoseconds. Counts since the victim was first
    /// seen, or for a listed aggressor, since it was first listed.
    pub interference: Vec<((PodId, Aggressor), u64)>,
    /// Lost time since the last poll, by victim; none while the program runs in bursts.
    pub lost: Vec<TracedLoss>,
    /// Losses since the start.
    pub losses: Losses,
    /// Number of context switches.
    pub switches: u64,
    /// CPU time of the program, nanoseconds, including the cost of calling it. Measured by the
    /// kernel if `kernel.bpf_stats_enabled` is on, else estimated from the number of switches and
    /// sampled durations.
    pub run_ns: u64,
}

impl WaitReport {
    /// Waits of one container; `None` before its first.
    #[must_use]
    pub fn waits(&self, container: ContainerId) -> Option<&Arc<ContainerWaits>> {
        let found = self.containers.binary_search_by_key(&container, |traced| traced.container);
        found.ok().map(|at| &self.containers[at].waits)
    }

    pub(crate) fn empty() -> Self {
        Self {
            mode: TraceMode::Continuous,
            containers: Vec::new(),
            interference: Vec::new(),
            lost: Vec::new(),
            losses: Losses::default(),
            switches: 0,
            run_ns: 0,
        }
    }
}
