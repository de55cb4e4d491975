//! Applies a placement to the node's cpusets: the only crate that writes them, and only when told to enforce.
//!
//! [`placement`] decides and says in which order to write; here is what it costs to do so on a kernel: reading what is,
//! writing and reading back, the checkpoint that survives a crash, repairs of what others wrote, and taking it all back.

mod carry_out;
mod checkpoint;
mod claims;
mod decision;
mod drain;
mod error;
mod nested;
mod owner;
mod pinner;
mod repairs;
mod report;
mod state_dir;
mod stranded;
mod thread;
mod topology;
mod tree;
mod verified;

pub use checkpoint::{Checkpoint, Held, Pin, Rejection, Touched, class_name};
pub use claims::{claim, has_ended};
pub use decision::{Decision, Verdict};
pub use drain::{DrainConfig, Drained, Outcome, Scope, drain};
pub use error::{Error, Result};
pub use nested::Narrowed;
pub use owner::{CPU_MANAGER_STATE, CpuManagerState, OWNER_NAMESPACES, OwnerSearch, connected_plugins, other_agents};
pub use pinner::{NodeConfig, Pinner, PinnerConfig};
pub use repairs::Cause;
pub use report::{Operation, Operations, Report, Standing, Trace};
pub use state_dir::{DrainWish, Lock, STATE_DIR};
pub use thread::{Round, Running, spawn};
pub use topology::Machine;
pub use verified::verified;
