//! Values of the collector in a Go process, from the words of its variables. The process's memory is
//! untrusted: it may contain anything, and changes while it is read.

use crate::gc::layout::{CPU_STATS_BYTES, Layout};

/// Words of `runtime.gcController` that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Controller {
    /// GOGC; negative if it is off.
    pub(crate) gogc: i32,
    /// GOMEMLIMIT, bytes; the largest `i64` without one.
    memory_limit: u64,
    percent_goal: u64,
    sweep_min_trigger: u64,
    triggered: u64,
    /// Live heap after the latest cycle, bytes.
    pub(crate) live_bytes: u64,
    heap_free: u64,
    total_alloc: u64,
    total_free: u64,
    mapped_ready: u64,
}

/// CPU time of a process since its start, nanoseconds, up to the latest cycle (`runtime.cpuStats`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTimes {
    /// Time of the collector.
    pub(crate) collector_ns: u64,
    /// Time in which no Go code was to be run.
    idle_ns: u64,
    /// GOMAXPROCS times the time since the start.
    total_ns: u64,
}

/// A larger heap is implausible: the address space of a process has 47 bits.
const MAX_HEAP: u64 = 1 << 47;
/// More CPUs than Linux supports (`NR_CPUS`).
const MAX_PROCS: u32 = 8192;
/// GOGC that is more than this is implausible.
const MAX_GOGC: i32 = 10_000_000;
/// Distance of the goal to the memory limit, bytes (`memoryLimitMinHeapGoalHeadroom`).
const HEADROOM: u64 = 1 << 20;
/// Distance of the goal to the latest trigger, bytes (`minRunway`).
const RUNWAY: u64 = 64 << 10;

impl Controller {
    /// Reads the words; `None` if they are implausible.
    pub(crate) fn of(bytes: &[u8], layout: &Layout) -> Option<Self> {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().map(u64::from_le_bytes).ok();
        let is_size = |bytes: &u64| *bytes < MAX_HEAP;
        let size = |at| word(at).filter(is_size);
        let (percent_goal, heap_free) = (layout.percent_goal, layout.heap_free);
        let gogc = i32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        Some(Self {
            gogc: Some(gogc).filter(|gogc| (-1..=MAX_GOGC).contains(gogc))?,
            memory_limit: word(8).filter(|&limit| i64::try_from(limit).is_ok())?,
            // Without GOGC it is the largest number.
            percent_goal: word(percent_goal)?,
            sweep_min_trigger: word(percent_goal + 8)?,
            triggered: word(percent_goal + 16)?,
            live_bytes: size(layout.heap_marked)?,
            heap_free: size(heap_free)?,
            total_alloc: word(heap_free + 8)?,
            total_free: word(heap_free + 16)?,
            mapped_ready: size(heap_free + 24)?,
        })
    }

    /// GOMEMLIMIT, bytes; `None` without one.
    pub(crate) fn limit_bytes(&self) -> Option<u64> {
        (self.memory_limit < MAX_HEAP).then_some(self.memory_limit)
    }

    /// The heap goal as the runtime computes it (`gcControllerState.heapGoalInternal`); `None` if it
    /// is unlimited.
    pub(crate) fn goal_bytes(&self, layout: &Layout) -> Option<u64> {
        let by_limit = self.limited_goal(layout);
        let goal = if by_limit < self.percent_goal {
            by_limit
        } else {
            let goal = self.percent_goal.max(self.sweep_min_trigger);
            if self.triggered == u64::MAX {
                goal
            } else {
                goal.max(self.triggered.saturating_add(RUNWAY))
            }
        };
        (goal < MAX_HEAP).then_some(goal)
    }

    /// The goal by the memory limit (`gcControllerState.memoryLimitHeapGoal`).
    fn limited_goal(&self, layout: &Layout) -> u64 {
        let heap = self.total_alloc.wrapping_sub(self.total_free).saturating_add(self.heap_free);
        let other = self.mapped_ready.saturating_sub(heap);
        let overage = self.mapped_ready.saturating_sub(self.memory_limit);
        let Some(goal) = self.memory_limit.checked_sub(other + overage).filter(|&goal| goal > 0)
        else {
            return self.live_bytes;
        };
        let percent = if layout.has_headroom_percent { goal / 100 * 3 } else { 0 };
        let headroom = percent.max(HEADROOM);
        let goal = if goal < headroom.saturating_mul(2) { headroom } else { goal - headroom };
        goal.max(self.live_bytes)
    }
}

impl CpuTimes {
    /// Reads the words of `runtime.cpuStats`; `None` if they are implausible. The collector's time is
    /// the sum of its parts.
    pub(crate) fn of(bytes: &[u8; CPU_STATS_BYTES as usize]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        let words: Vec<u64> = words.collect();
        let [assist, dedicated, idle_workers, pauses, collector_ns, _, _, _, idle_ns, _, total_ns] =
            words[..]
        else {
            return None;
        };
        let parts = [assist, dedicated, idle_workers, pauses];
        // Go's words are signed.
        let is_time = |ns: &u64| i64::try_from(*ns).is_ok();
        let is_plausible = parts.iter().chain(&[collector_ns, idle_ns, total_ns]).all(is_time)
            && parts.iter().map(|&ns| u128::from(ns)).sum::<u128>() == collector_ns.into();
        is_plausible.then_some(Self { collector_ns, idle_ns, total_ns })
    }

    /// Share of the CPU time since `before` that the collector took, 0 to 1: idle time does not
    /// count. `None` if no cycle has ended since.
    pub(crate) fn share_since(&self, before: &Self) -> Option<f64> {
        let collector = self.collector_ns.checked_sub(before.collector_ns)?;
        let total = self.total_ns.checked_sub(before.total_ns)?;
        let busy = total.saturating_sub(self.idle_ns.saturating_sub(before.idle_ns));
        (busy > 0).then(|| (collector as f64 / busy.max(collector) as f64).min(1.0))
    }
}

/// GOMAXPROCS; `None` if it is implausible.
pub(crate) fn max_procs(bytes: [u8; 4]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes)).filter(|procs| (1..=MAX_PROCS).contains(procs))
}
