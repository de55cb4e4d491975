//! Memory advice: the soft limit of the runtime's heap.

use api::{Gogc, MemoryAdvice};

/// Share of the limit for the heap, by default; the rest is for stacks, mappings and the kernel.
pub const HEAP_SHARE: f64 = 0.7;
/// Maximum share of the limit for the heap, whatever the live set: above it the container is killed
/// before the collector runs.
pub const MAX_HEAP_SHARE: f64 = 0.9;
/// Below this multiple of the live set the collector runs all the time.
const LIVE_SET_FACTOR: f64 = 1.25;
/// Share of the limit that must be free before GOGC is raised.
const HEADROOM_SHARE: f64 = 0.5;

/// Computes the advice from the limit, the current working set, and the lowest working set of the
/// history (a proxy for the live set).
#[must_use]
pub fn memory_advice(
    limit: u64,
    working_set: u64,
    live_set: u64,
    is_cpu_short: bool,
) -> MemoryAdvice {
    let headroom_bytes = limit.saturating_sub(working_set);
    let is_roomy = headroom_bytes as f64 >= limit as f64 * HEADROOM_SHARE;
    MemoryAdvice {
        headroom_bytes,
        soft_limit_bytes: soft_limit(limit, live_set, HEAP_SHARE),
        gogc: if is_roomy && is_cpu_short { Gogc::Raise } else { Gogc::Keep },
    }
}

/// Soft limit for the heap under a memory limit: this share of it, or what the live set needs;
/// `None` if that is more than is safe.
pub(crate) fn soft_limit(limit: u64, live_set: u64, share: f64) -> Option<u64> {
    let wanted = (limit as f64 * share).max(live_set as f64 * LIVE_SET_FACTOR) as u64;
    (wanted as f64 <= limit as f64 * MAX_HEAP_SHARE).then_some(wanted)
}
