//! Makes best-effort pods yield CPU to latency-sensitive pods.
//!
//! Crate `colocation` decides; this crate writes `cpu.idle` and quotas of best-effort pods and the
//! cpusets of their containers. Cgroups above pods and other pods are never written. Each original
//! value is in a checkpoint before the first write, and is restored when the step ends, when the
//! agent stops or drains, and at the next start after a crash.

mod actor;
mod budget;
mod checkpoint;
mod error;
mod pods;
mod setting;
mod thread;
mod want;

pub use actor::{Actor, ActorConfig, Mode, Report};
pub use checkpoint::{Lock, Restricted, leftovers, restricted};
pub use error::{Error, Result};
pub use pods::is_best_effort;
pub use setting::Kind;
pub use thread::{Inputs, Round, Running, restore, spawn};
