//! Applies a placement to the node's cpusets: the only crate that writes them, and only when told to enforce.
//!
//! [`placement`] decides and says in which order to write; here is what it costs to do so on a kernel: reading what is,
//! writing and reading back, the checkpoint that survives a crash, repairs of what others wrote, and taking it all back.

mod claims;
mod error;
mod owner;
mod topology;

pub use claims::{claim, has_ended};
pub use error::{Error, Result};
pub use owner::{CPU_MANAGER_STATE, CpuManagerState, other_agents};
pub use topology::Machine;
