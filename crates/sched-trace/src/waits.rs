//! Results of a poll: waits by cause and container, and by the pod that caused them. Plain values.

/// Upper bounds of the run-queue latency histogram, nanoseconds; one more bucket is unbounded.
pub const LATENCY_BOUNDS_NS: [u64; 9] =
    [10_000, 100_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 100_000_000, 1_000_000_000];

/// Upper bounds of the throttle-stall histogram, nanoseconds; one more bucket is unbounded.
pub const STALL_BOUNDS_NS: [u64; 9] =
    [1_000_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 75_000_000, 100_000_000, 250_000_000, 1_000_000_000];

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
    /// A pod: the cgroup is the pod's own or its sandbox. It can cause waits of others, but its own waits have no
    /// series.
    Pod(PodId),
    /// Outside all pods: host services, the kubelet, the runtime.
    System,
    /// Not known yet, or no longer known.
    Unknown,
}

/// Mapping from cgroups to owners, provided by the caller.
pub trait Owners {
    /// Owner of the cgroup whose directory has this inode (in the hierarchy with the cpu controller).
    fn owner(&mut self, cgroup: u64) -> Owner;
    /// Whether the container still has series.
    fn has_container(&self, container: ContainerId) -> bool;
    /// Whether the pod still has series.
    fn has_pod(&self, pod: PodId) -> bool;
}

/// Run-queue delay of a container's threads since its last report, from `/proc/PID/task/TID/schedstat`, nanoseconds,
/// summed over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunDelay {
    /// Id of the container.
    pub container: ContainerId,
    /// Gain since the last report, nanoseconds; ignored in the first report.
    pub gained_ns: u64,
}

/// A histogram: counts by bucket, and the sum of the values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Counts by bucket, not cumulative; the last bucket has no upper bound.
    pub counts: [u64; 10],
    /// Sum of the values, nanoseconds.
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

/// Time on a CPU by what the other thread of the core ran at the same time, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SmtShares {
    /// The same pod.
    pub self_ns: u64,
    /// Another pod, or the system.
    pub other_ns: u64,
    /// Nothing: the other thread was idle.
    pub idle_ns: u64,
}

/// Waits of a container's threads by cause since they were first seen, thread-nanoseconds: two threads that wait for
/// one second count as two seconds. A wait counts when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerWaits {
    /// Id of the container.
    pub container: ContainerId,
    /// Id of its pod.
    pub pod: PodId,
    /// Waits because its own quota, or that of a cgroup above it, was used up.
    pub throttled_ns: u64,
    /// Waits while another pod ran.
    pub neighbor_ns: u64,
    /// Waits while its own pod ran.
    pub self_ns: u64,
    /// Waits while a host service or the kernel ran, or while the CPU was waking up.
    pub system_ns: u64,
    /// Waits on a run queue without a known cause: before a migration, from before the start, or beyond the stored
    /// history.
    pub unattributed_ns: u64,
    /// Waits without throttled time, by length.
    pub latency: Histogram,
    /// Throttled periods of its run queues, by length.
    pub stalls: Histogram,
    /// CPU time by activity of the sibling thread; `None` if no core has two known threads.
    pub smt: Option<SmtShares>,
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

/// Wait time of one pod caused by one aggressor, thread-nanoseconds. Counts since the victim was first seen, or for a
/// listed aggressor, since it was first listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interference {
    /// The pod that waited.
    pub victim: PodId,
    /// The cause of the wait.
    pub aggressor: Aggressor,
    /// Wait time, thread-nanoseconds.
    pub wait_ns: u64,
}

/// Operating mode of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Attached all the time.
    Continuous,
    /// Attached for one of `one_of` seconds, to stay within the budget: all counts are scaled up and thus estimates.
    Bursts {
        /// Length of the cycle, seconds.
        one_of: u32,
    },
    /// Detached: even bursts would exceed the budget, or the program could not be attached again.
    Detached,
}

/// Losses since the start, all counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Waits that were dropped because a table was full.
    pub lost_waits: u64,
    /// Time of the dropped waits, nanoseconds; part of the unattributed time if run delays are reported.
    pub lost_ns: u64,
    /// Number of evicted throttle histories; each makes one wait unattributed.
    pub evicted_histories: u64,
    /// Time of cgroups that were never identified, nanoseconds.
    pub unknown_cgroup_ns: u64,
}

/// Results up to the poll before this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitReport {
    /// Current mode of the program.
    pub mode: Mode,
    /// Waits by container id.
    pub containers: Vec<ContainerWaits>,
    /// Waits by victim and aggressor.
    pub interference: Vec<Interference>,
    /// Losses since the start.
    pub losses: Losses,
    /// Number of context switches.
    pub switches: u64,
    /// CPU time of the program, nanoseconds, including the cost of calling it. Measured by the kernel if
    /// `kernel.bpf_stats_enabled` is on, else estimated from the number of switches and sampled durations.
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
