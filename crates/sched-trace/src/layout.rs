//! The program's tables in user space: the structs of `bpf/sched_trace.bpf.c`, word for word.
//!
//! Fields are atomics because the program writes them while user space reads. The program is the
//! only writer of its CPU's entries, so no word is torn and no count is lost; two words may be from
//! different moments.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Number of buckets of a histogram; the last has no upper bound.
pub(crate) const BUCKETS: usize = 10;
/// Number of slices in a CPU's history.
pub(crate) const SLICES: usize = 1024;
/// Number of tasks of which is known that they were preempted, and how long they have waited by now.
pub(crate) const TASK_NOTES: u32 = 4096;
/// Number of pods on a CPU whose waits in progress are counted as a union.
const PODS: usize = 64;
/// Each table has two halves: the program fills one while user space reads the other.
pub(crate) const HALVES: u32 = 2;
/// Id of the holder while a CPU was idle. Cgroup ids are inodes, starting at 1.
pub(crate) const IDLE: u64 = u64::MAX;

/// Settings from user space to the program.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Control {
    /// Changes when the program is attached again: earlier histories are then not continued.
    pub(crate) session: AtomicU64,
    /// The half of the tables that the program fills.
    pub(crate) half: AtomicU64,
}

/// State of one CPU.
#[repr(C)]
pub(crate) struct Cpu {
    session: AtomicU64,
    pushed: AtomicU64,
    smt_from: AtomicU64,
    /// Number of the other thread of the core, plus 1; 0 without one.
    pub(crate) sibling: AtomicU64,
    /// Number of context switches that the program saw.
    pub(crate) switches: AtomicU64,
    /// Number of timed runs of the program, and their total duration, nanoseconds.
    pub(crate) timed_runs: AtomicU64,
    pub(crate) timed_ns: AtomicU64,
    /// Waits that were dropped because a table was full, and their time, nanoseconds.
    pub(crate) lost_waits: AtomicU64,
    pub(crate) lost_ns: AtomicU64,
    /// Number of throttle histories that were evicted by others.
    pub(crate) evicted: AtomicU64,
    began: AtomicU64,
    settled: AtomicU64,
    rq: AtomicU64,
    next: AtomicU64,
    walked: AtomicU64,
    /// Number of moves of tasks to another CPU that the program saw.
    pub(crate) moves: AtomicU64,
    is_walked: AtomicU64,
    share: [AtomicU64; 14],
    padding: [AtomicU64; 1],
    slices: [[AtomicU64; 4]; SLICES],
    coverage: [[AtomicU64; 3]; PODS],
}

impl Cpu {
    /// Whether no task runs on it, so that none waits either; also before the program ran there.
    pub(crate) fn is_idle(&self) -> bool {
        let newest = self.pushed.load(Relaxed).checked_sub(1);
        newest.is_none_or(|newest| self.slices[newest as usize % SLICES][1].load(Relaxed) == IDLE)
    }
}

/// Waits of one cgroup's tasks on one CPU.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct CgroupWaits {
    /// Inode of the cgroup; 0 for a free slot.
    pub(crate) cgroup: AtomicU64,
    pub(crate) latency_ns: AtomicU64,
    pub(crate) latencies: [AtomicU32; BUCKETS],
    /// Waits after a wakeup, and those of at least ten milliseconds.
    pub(crate) wakeups: AtomicU32,
    pub(crate) late_wakeups: AtomicU32,
    pub(crate) self_ns: AtomicU64,
    pub(crate) throttled_ns: AtomicU64,
    pub(crate) idle_ns: AtomicU64,
    pub(crate) unknown_ns: AtomicU64,
    /// Parts of the two that the pod lost.
    pub(crate) lost_idle_ns: AtomicU64,
    pub(crate) lost_unknown_ns: AtomicU64,
    pub(crate) smt_self_ns: AtomicU64,
    pub(crate) smt_idle_ns: AtomicU64,
    pub(crate) stall_ns: AtomicU64,
    pub(crate) stalls: [AtomicU32; BUCKETS],
    padding: [AtomicU64; 2],
}

/// Waits of one cgroup caused by another on one CPU.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Pair {
    /// Inode of the waiting cgroup; 0 for a free slot.
    pub(crate) victim: AtomicU64,
    pub(crate) holder: AtomicU64,
    pub(crate) wait_ns: AtomicU64,
    /// Part of the waits that does not overlap with other waits of the victim's pod on this CPU.
    pub(crate) lost_ns: AtomicU64,
    pub(crate) smt_ns: AtomicU64,
}
