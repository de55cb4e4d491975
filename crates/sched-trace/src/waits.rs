//! What a poll reports: waits by cause and container, and who made whom wait. Plain values.

/// Upper bounds of the run-queue latency histogram, nanoseconds; one more bucket has none.
pub const LATENCY_BOUNDS_NS: [u64; 9] =
    [10_000, 100_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 100_000_000, 1_000_000_000];

/// Upper bounds of the throttle-stall histogram, nanoseconds; one more bucket has none.
pub const STALL_BOUNDS_NS: [u64; 9] =
    [1_000_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 75_000_000, 100_000_000, 250_000_000, 1_000_000_000];

/// A container's number, of the caller's choice; never given to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(pub u64);

/// A pod's number, of the caller's choice; never given to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u64);

/// Whose a cgroup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A container's, or one below a container's.
    Container {
        /// The container.
        container: ContainerId,
        /// Its pod.
        pod: PodId,
    },
    /// A pod's own, or its sandbox: it can make others wait, and its own waits are nobody's series.
    Pod(PodId),
    /// Outside all pods: host services, the kubelet, the runtime.
    System,
    /// Not known yet, or no longer.
    Unknown,
}

/// Who owns which cgroup; what the caller knows of the node.
pub trait Owners {
    /// The owner of the cgroup whose directory has this inode (of the hierarchy with the cpu controller).
    fn owner(&mut self, cgroup: u64) -> Owner;
    /// The container still has series.
    fn has_container(&self, container: ContainerId) -> bool;
    /// The pod still has series.
    fn has_pod(&self, pod: PodId) -> bool;
}

/// What the threads of a container waited on run queues since the last report of the same container, from
/// `/proc/PID/task/TID/schedstat`, nanoseconds, summed over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunDelay {
    /// The container.
    pub container: ContainerId,
    /// Gained since the last report; in the first one, anything.
    pub gained_ns: u64,
}

/// Counts by bucket, and the sum of what was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Not cumulative; the last one has no upper bound.
    pub counts: [u64; 10],
    /// Nanoseconds.
    pub sum_ns: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, other: &Self) {
        for (count, other) in self.counts.iter_mut().zip(other.counts) {
            *count += other;
        }
        self.sum_ns += other.sum_ns;
    }
}

/// Time on a CPU by what the other thread of the core ran meanwhile, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SmtShares {
    /// The same pod.
    pub self_ns: u64,
    /// Another pod, or the system.
    pub other_ns: u64,
    /// Nothing.
    pub idle_ns: u64,
}

/// What a container's threads waited for since they were first seen, thread-nanoseconds: two threads that wait for a
/// second count two. A wait counts when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerWaits {
    /// The container.
    pub container: ContainerId,
    /// Its pod.
    pub pod: PodId,
    /// A quota of its own or of a cgroup above it was used up.
    pub throttled_ns: u64,
    /// Another pod ran.
    pub neighbor_ns: u64,
    /// Its own pod ran.
    pub self_ns: u64,
    /// A host service or the kernel ran, or the CPU was still waking up.
    pub system_ns: u64,
    /// On a run queue, and not seen why: before a migration, from before the start, further back than is remembered.
    pub unattributed_ns: u64,
    /// Waits less throttled time, by length.
    pub latency: Histogram,
    /// Throttles of its run queues, by length.
    pub stalls: Histogram,
    /// `None` where no core has two threads that are known.
    pub smt: Option<SmtShares>,
}

/// Who made a pod wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aggressor {
    /// A pod that is, or once was, among the first five.
    Pod(PodId),
    /// Everything outside all pods.
    System,
    /// All other pods together.
    Other,
}

/// What one aggressor made one pod wait, thread-nanoseconds since the victim was first seen; of an aggressor since it
/// was first listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interference {
    /// Who waited.
    pub victim: PodId,
    /// Who ran.
    pub aggressor: Aggressor,
    /// For how long.
    pub wait_ns: u64,
}

/// How the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// All the time.
    Continuous,
    /// For one of so many seconds, to stay within the budget: everything that is counted is scaled up, an estimate.
    Bursts {
        /// The seconds.
        one_of: u32,
    },
    /// Not at all: even bursts would pass the budget, or it could not be attached again.
    Detached,
}

/// What was lost since the start, all counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Waits that found a table full.
    pub lost_waits: u64,
    /// Their time, nanoseconds; it shows as unattributed where run delays are reported.
    pub lost_ns: u64,
    /// Throttle histories that had to make room; each makes one wait unattributed.
    pub evicted_histories: u64,
    /// Time of cgroups that nobody knew, nanoseconds.
    pub unknown_cgroup_ns: u64,
}

/// What has been found out until the poll before this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitReport {
    /// How the program runs now.
    pub mode: Mode,
    /// By container id.
    pub containers: Vec<ContainerWaits>,
    /// By victim and aggressor.
    pub interference: Vec<Interference>,
    /// What was lost.
    pub losses: Losses,
    /// Context switches seen.
    pub switches: u64,
    /// CPU time that the program took, nanoseconds: the kernel's measure where `kernel.bpf_stats_enabled` is on, else
    /// switches by the duration of sampled ones; with what it costs to call it.
    pub run_ns: u64,
}

impl WaitReport {
    pub(crate) fn empty() -> Self {
        Self {
            mode: Mode::Continuous,
            containers: Vec::new(),
            interference: Vec::new(),
            losses: Losses::default(),
            switches: 0,
            run_ns: 0,
        }
    }
}
