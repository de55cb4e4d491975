//! A running agent, seen from a command: the options of the connection, the HTTP client, and the
//! advice as text.

mod address;
mod advise;
mod args;
mod client;
mod render;
mod snapshot;

pub use address::AgentAddress;
pub use advise::{AdviseArgs, advise};
pub use args::{AgentArgs, ConnectionArgs, DEFAULT_ADDRESS, https_options};
pub use client::{AgentClient, AnswerBody, block_on};
pub use render::{AdviceFormat, finding_line, no_change, qos_change, render};
pub use snapshot::{PartArgs, SNAPSHOT_TIMEOUT, SnapshotArgs, save, snapshot};
