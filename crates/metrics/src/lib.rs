//! The catalogue of all metrics, the page that exposes them, and the generated reference.
//!
//! [`catalogue`] declares each metric once: name, type, labels, HELP text and, for values of a
//! tick, how to read them from the snapshot. [`exposition`] writes a page of them; [`AgentMetrics`]
//! keeps the metrics that the agent counts about itself between ticks. This crate opens no file,
//! calls no sampler and serves no HTTP.

mod advice;
mod agent;
mod best_effort;
mod burst;
pub mod catalogue;
pub mod exposition;
mod gauge_set;
mod injection;
mod pinning;
mod slowed;

pub use advice::{AdviceMetrics, AdviceRow};
pub use agent::{AgentMetrics, Build};
pub use best_effort::BestEffortMetrics;
pub use burst::BurstMetrics;
pub use exposition::{Exposition, Format};
pub use injection::InjectionMetrics;
pub use pinning::PinningMetrics;
pub use slowed::{SlowedBecause, SlowedBy, SlowedMetrics, SlowedRow};
