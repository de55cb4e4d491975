//! Advice for the containers of a node: their histories, gathered window by window from the
//! snapshots, usage traces of the busy ones, and their runtimes.
//!
//! [`Advisor`] runs as a task of the caller's tokio runtime, [`sample_arrivals`] on a thread that
//! the caller starts. The rules themselves are in crate `analysis`.

mod advisor;
mod arrivals;
mod command;
mod container_history;
mod interference;
mod program;
mod quotas;
mod report;
mod workloads;

use std::time::Duration;

pub use advisor::Advisor;
pub use arrivals::sample_arrivals;
pub use command::{patch_command, pod_patch, pod_patch_command};
pub use interference::InterferencePolicy;
pub use report::{AdviceReport, ContainerReport};

/// Longest round of the advisor and of the arrival sampler.
pub const ROUND: Duration = Duration::from_secs(10);
