//! Applies a placement to the node's cpusets. Writes them only if
//! configured to enforce.
//!
//! [`placement`] computes the placement and the order of writes. This crate does the rest: it reads
//! the current state, writes and verifies, and keeps a checkpoint that survives a crash. It also
//! repairs what other writers change, and restores the original CPUs.

mod admission;
mod carry_out;
mod claims;
mod decision;
mod drain;
mod error;
mod exclusive;
mod grants;
mod nested;
mod node_config;
mod owner;
mod pinner;
mod planned;
mod repairs;
mod report;
mod status_file;
mod stranded;
mod thread;
mod topology;
mod tree;
mod verified;

pub use admission::{Admission, ForeignContainer, Placed};
pub use claims::{claim, has_ended, with_container, with_pod_level};
pub use decision::{Decision, PodOutcome};
pub use drain::{DrainConfig, DrainOutcome, Drained, Scope, drain};
pub use error::{Error, Result};
pub use exclusive::Exclusive;
pub use grants::{class_name, to_current};
pub use node_config::NodeConfig;
pub use owner::{
    CPU_MANAGER_STATE, CpuManagerState, OWNER_NAMESPACES, OwnerSearch, connected_plugins,
    other_agents,
};
pub use pinner::{Pinner, PinnerConfig, SETTLED_AFTER};
pub use repairs::PauseCause;
pub use report::{Operation, Operations, PassReport, PinningStatus, Trace};
pub use status_file::not_in_effect;

pub use thread::{NodePods, PinningThread, Round, spawn};
pub use topology::Machine;
pub use verified::verified;
