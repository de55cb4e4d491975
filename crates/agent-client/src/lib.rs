//! A running agent, seen from a command: the options of the connection, the HTTP client, and the
//! advice as text.

mod address;
mod advise;
mod args;
mod client;
mod merged;
mod render;
mod snapshot;

pub use address::AgentAddress;
pub use advise::{AdviseArgs, FindingFilter, NO_SUCH_FINDINGS, advise};
pub use args::{AgentArgs, ConnectionArgs, DEFAULT_ADDRESS, https_options};
pub use client::{AgentClient, AnswerBody, block_on};
pub use merged::{ForPods, MergedContainer, MergedFinding, WorkloadReport, by_workload, merged};
pub use render::{AdviceFormat, render, workload_table};
pub use snapshot::{PartArgs, SNAPSHOT_TIMEOUT, SnapshotArgs, save, snapshot};
