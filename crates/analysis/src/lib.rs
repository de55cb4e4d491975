//! Advice for the owner of one container: a replay of the CFS bandwidth rule under other limits,
//! memory advice, and findings with figures.
//!
//! Pure functions of the windows; time is the length of the windows.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod burst;
mod collections;
mod cpu;
mod demand;
mod facts;
mod grid;
mod history;
mod hysteresis;
pub mod injection;
mod memory;
mod patch;
mod pod;
mod quota;
mod replay;
mod request;
mod rules;
mod usage;
mod usage_trace;
pub mod verdict;
mod window;

pub use burst::{BurstForecast, BurstForecasts};
pub use collections::{CollectionHistory, CollectionWindow, Collections};
pub use cpu::{cpu_advice, not_enough_history};
pub use facts::{Facts, Place, Spec};
pub use grid::LIMITS_CORES;
pub use history::{History, REPLAYED_SECONDS};
pub use hysteresis::Steady;
pub use memory::{HEAP_SHARE, MAX_HEAP_SHARE, memory_advice};
pub use pod::{Member, PodQuota};
pub use replay::{CandidateLimit, Count, Replay};
pub use request::{LEAST_REQUEST_CORES, LEAST_REQUEST_PART, REQUEST_AFTER_SECONDS};
pub use rules::{SANDBOX, THROTTLED_SHARE, findings};
pub use usage::Usage;
pub use usage_trace::{READ_EVERY_NS, READINGS, UsageTrace, UsageTraces};
pub use window::{DEFAULT_PERIOD_NS, Window, may_be_throttled_by_ancestor};
