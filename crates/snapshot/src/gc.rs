//! Garbage collection of language runtimes, read from outside every ten seconds and published with
//! the next snapshot. The sampler only joins it to its series, so that both have the same lifetime.

use std::collections::HashMap;
use std::sync::Arc;

use crate::container::ContainerRow;
use crate::node::FeatureState;
use crate::waits::share;

/// Garbage collection of a container's program. Counters add up over its restarts while the agent
/// runs, and begin with the first process's own totals.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerGc {
    /// Number of completed cycles.
    pub cycles: u64,
    /// CPU time of the collector by the runtime's own clock, nanoseconds. Go charges the wall-clock
    /// time of its workers, so this contains time in which they were throttled or preempted.
    pub cpu_ns: Option<u64>,
    /// Time in which the program was stopped for the collector, nanoseconds.
    pub pause_ns: Option<u64>,
    /// Time in which a JVM stood at safepoints, for its collectors or anything else, nanoseconds;
    /// `None` of another runtime.
    pub safepoint_ns: Option<u64>,
    /// Live heap after the latest cycle, bytes.
    pub live_bytes: Option<u64>,
    /// Heap size at which the next cycle is to be complete, bytes.
    pub goal_bytes: Option<u64>,
    /// Limit that the runtime keeps (GOMEMLIMIT, or the maximum heap of a JVM), bytes; `None`
    /// without one.
    pub limit_bytes: Option<u64>,
    /// Settings of the collector in force.
    pub settings: GcSettings,
    /// The latest interval between two readings; `None` after the first reading of a process.
    pub recent: Option<GcInterval>,
}

/// Settings of the collector in force, which the program may have changed at run time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcSettings {
    /// GOGC, percent; negative if it is off. `None` of another runtime.
    pub gogc: Option<i32>,
    /// Number of threads that run Go code at once.
    pub gomaxprocs: Option<u32>,
    /// Names of a JVM's collectors, such as `G1 young collection pauses`.
    pub collectors: Vec<String>,
}

/// Garbage collection between two readings, about ten seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GcInterval {
    /// Number of the interval since the agent started: a new one means a new reading.
    pub number: u64,
    /// Length, seconds.
    pub seconds: f64,
    /// Number of cycles that were completed.
    pub cycles: u64,
    /// Share of the program's CPU time that the collector took, 0 to 1, by the runtime's own clock
    /// up to its latest cycle; `None` if the runtime does not report it.
    pub cpu_share: Option<f64>,
    /// Share of the time in which the program was stopped, 0 to 1: at safepoints of a JVM, by the
    /// collector of another runtime; `None` if the runtime does not report it.
    pub stopped_share: Option<f64>,
}

/// Reason why a container's garbage collection is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GcUnread {
    /// The kernel refused access to the process's memory or files.
    NotPermitted,
    /// A Go release whose layout is not known.
    UnknownVersion,
    /// The executable has no symbols, and its code was not understood.
    NoSymbols,
    /// The JVM writes no performance data.
    NoPerfData,
    /// The values were implausible.
    Implausible,
    /// The runtime cannot be read from outside without changing the process.
    Unsupported,
    /// The process ended, or its files did not respond in time.
    NoAnswer,
}

impl GcUnread {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::NotPermitted,
        Self::UnknownVersion,
        Self::NoSymbols,
        Self::NoPerfData,
        Self::Implausible,
        Self::Unsupported,
        Self::NoAnswer,
    ];

    /// Name, as a label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotPermitted => "not_permitted",
            Self::UnknownVersion => "unknown_version",
            Self::NoSymbols => "no_symbols",
            Self::NoPerfData => "no_perf_data",
            Self::Implausible => "implausible",
            Self::Unsupported => "unsupported",
            Self::NoAnswer => "no_answer",
        }
    }

    /// The reason and its remedy, for people.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::NotPermitted => {
                "the kernel refused to read the process: the agent needs root and SYS_PTRACE, and Yama, \
                 AppArmor or SELinux may forbid it in addition"
            }
            Self::UnknownVersion => {
                "no offsets are known for this Go release (1.19 to 1.27 are known)"
            }
            Self::NoSymbols => {
                "the executable has no symbol table, and its code was not understood (stripped \
                 executables are read on amd64 only)"
            }
            Self::NoPerfData => {
                "the JVM writes no performance data: -XX:-UsePerfData or -XX:+PerfDisableSharedMem"
            }
            Self::Implausible => "the values in the process's memory were implausible",
            Self::Unsupported => {
                "this runtime cannot be read without a session or a probe in the process"
            }
            Self::NoAnswer => "the process ended, or its files did not respond in time",
        }
    }
}

/// Garbage collection of all containers up to the latest reading.
#[derive(Debug, Clone, Default)]
pub struct NodeGc {
    /// By the labels of the container's series.
    pub containers: HashMap<Box<str>, Arc<ContainerGc>>,
    /// Number of containers by the reason why they are not read.
    pub unread: Vec<(GcUnread, u64)>,
    /// Number of readings since the start whose values were torn or implausible.
    pub dropped: u64,
    /// Whether garbage collection is read, and the reason if not; `None` if that is off.
    pub feature: Option<FeatureState>,
}

impl NodeGc {
    /// Stores each container's garbage collection in its row.
    pub fn join(&self, rows: &mut [ContainerRow]) {
        for row in rows {
            share(&mut row.gc, self.containers.get(&row.identity.labels));
        }
    }
}
