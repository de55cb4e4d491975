//! Memory: the soft limit of the runtime's heap.

use serde::{Deserialize, Serialize};

/// What a Go service may do with its headroom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Gogc {
    /// Memory is free and the CPU is short: fewer collections (GOGC=200) trade the one for the other.
    Raise,
    /// Leave it.
    Keep,
}

/// What to set; bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryAdvice {
    /// Limit less working set.
    pub headroom_bytes: u64,
    /// For GOMEMLIMIT; `None` where 1.25 × the live set is more than 90 % of the limit, which must be raised first.
    pub soft_limit_bytes: Option<u64>,
    /// For GOGC.
    pub gogc: Gogc,
}

/// Share of the limit that the heap may have; the rest is stacks, mappings and the kernel's.
const HEAP_SHARE: f64 = 0.7;
/// Share of the limit that it may have at most, whatever the live set: beyond it the container is killed before the
/// collector runs.
const MOST_HEAP_SHARE: f64 = 0.9;
/// Under this multiple of the live set the collector runs all the time.
const LIVE_SET_FACTOR: f64 = 1.25;
/// Share of the limit that must be free before GOGC is raised.
const HEADROOM_SHARE: f64 = 0.5;

/// The advice from limit, working set now, and the live set's proxy: the lowest working set of the history.
#[must_use]
pub fn memory_advice(limit: u64, working_set: u64, live_set: u64, is_cpu_short: bool) -> MemoryAdvice {
    let headroom_bytes = limit.saturating_sub(working_set);
    let wanted = (limit as f64 * HEAP_SHARE).max(live_set as f64 * LIVE_SET_FACTOR) as u64;
    let is_roomy = headroom_bytes as f64 >= limit as f64 * HEADROOM_SHARE;
    MemoryAdvice {
        headroom_bytes,
        soft_limit_bytes: (wanted as f64 <= limit as f64 * MOST_HEAP_SHARE).then_some(wanted),
        gogc: if is_roomy && is_cpu_short { Gogc::Raise } else { Gogc::Keep },
    }
}
