//! The program's tables as user space sees them: the structs of `bpf/sched_trace.bpf.c`, word for word.
//!
//! Fields are atomics because the program writes them while user space looks. It is the only writer of its CPU's
//! entries, so a word is never torn and a count never lost; two words may be from different moments.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Buckets of a histogram, the last without an upper bound.
pub(crate) const BUCKETS: usize = 10;
/// Slices that a CPU's history holds.
pub(crate) const SLICES: usize = 1024;
/// Each table has two halves: the program fills one while user space reads the other.
pub(crate) const HALVES: u32 = 2;
/// The holder's id when a CPU was idle. Cgroup ids are inodes, from 1.
pub(crate) const IDLE: u64 = u64::MAX;

/// What user space tells the program.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Control {
    /// Changes when the program is attached again: histories from before are not continued.
    pub(crate) session: AtomicU64,
    /// The half of the tables that the program fills.
    pub(crate) half: AtomicU64,
}

/// One CPU.
#[repr(C)]
pub(crate) struct Cpu {
    session: AtomicU64,
    pushed: AtomicU64,
    smt_from: AtomicU64,
    /// 1 + the number of the other thread of the core; 0: none.
    pub(crate) sibling: AtomicU64,
    /// Context switches that the program saw.
    pub(crate) switches: AtomicU64,
    /// Runs of the program whose duration was taken, and their sum.
    pub(crate) timed_runs: AtomicU64,
    pub(crate) timed_ns: AtomicU64,
    /// Waits that found a table full, and their time.
    pub(crate) lost_waits: AtomicU64,
    pub(crate) lost_ns: AtomicU64,
    /// Throttle histories that had to make room for others.
    pub(crate) evicted: AtomicU64,
    padding: [AtomicU64; 6],
    slices: [[AtomicU64; 2]; SLICES],
}

/// What happened to one cgroup's tasks on one CPU.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct CgroupWaits {
    /// Inode; 0: a free slot.
    pub(crate) cgroup: AtomicU64,
    pub(crate) latency_ns: AtomicU64,
    pub(crate) latencies: [AtomicU32; BUCKETS],
    pub(crate) self_ns: AtomicU64,
    pub(crate) throttled_ns: AtomicU64,
    pub(crate) idle_ns: AtomicU64,
    pub(crate) unknown_ns: AtomicU64,
    pub(crate) smt_self_ns: AtomicU64,
    pub(crate) smt_idle_ns: AtomicU64,
    pub(crate) stall_ns: AtomicU64,
    pub(crate) stalls: [AtomicU32; BUCKETS],
    padding: [AtomicU64; 5],
}

/// What one cgroup did to another on one CPU.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Pair {
    /// Inode; 0: a free slot.
    pub(crate) victim: AtomicU64,
    pub(crate) holder: AtomicU64,
    pub(crate) wait_ns: AtomicU64,
    pub(crate) smt_ns: AtomicU64,
}
