//! Advice for the containers of a node: their histories, gathered window by window from the
//! snapshots, usage traces of the busy ones, and their runtimes.
//!
//! [`Advisor`] runs as a task of the caller's tokio runtime, [`sample_arrivals`] and
//! [`read_collections`] on threads that the caller starts. The rules themselves are in crate `analysis`.

mod advisor;
mod arrivals;
mod collections;
mod container_history;
mod lost;
mod node_facts;
mod pod_throttles;
mod pods;
mod program;
mod qos;
mod quotas;
mod spec;
mod startup;
mod sums;
mod verdicts;
mod workloads;

use std::time::Duration;

pub use advisor::Advisor;
pub use arrivals::sample_arrivals;
pub use collections::{GcCollector, read_collections};
pub use runtimes::GcReader;
pub use verdicts::{Judge, Judgement};

/// Longest round of the advisor, of the arrival sampler, and of the reader of garbage collection.
pub const ROUND: Duration = Duration::from_secs(10);
