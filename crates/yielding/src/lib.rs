//! Writes what co-location needs to the cgroups of pods: best-effort pods yield CPU to
//! latency-sensitive pods, and CPU limits burst.
//!
//! [`rules`] decides; the other modules write `cpu.idle` and quotas of best-effort pods, the cpusets
//! of their containers, and bursts of other pods. Cgroups above pods are never written. Each
//! original value is in a checkpoint before the first write, and is restored when it is no longer
//! needed, when the agent stops or drains, and at the next start after a crash.

mod actor;
mod best_effort;
mod budget;
mod burst;
mod config;
mod conflicts;
mod error;
mod inputs;
mod mode;
mod nested;
mod pods;
mod resize;
mod restore;
pub mod rules;
mod setting;
mod shares;
#[cfg(test)]
mod testing;
mod thread;
mod want;
mod writer;

pub use actor::{Actor, Report};
pub use best_effort::{BestEffortReport, has_idle};
pub use burst::{BurstChange, BurstReport, Bursting, has_burst};
pub use config::{ActorConfig, BurstSettings, Feature};
pub use error::{Error, Result};
pub use inputs::Inputs;
pub use mode::{Mode, Why};
pub use pods::is_best_effort;
pub use resize::Resizes;
pub use restore::{leftovers, restore};
pub use thread::{Round, keep_restoring, spawn};
pub use writer::Writes;
