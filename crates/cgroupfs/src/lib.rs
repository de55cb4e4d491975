//! The only crate that opens cgroupfs, `/proc` and `/sys`: hierarchy detection, walk, inotify, open
//! descriptors, control-file writes.
//!
//! Every root is a parameter, so that a directory of recorded files can stand in for a node.
//! Nothing here knows about pods.

pub mod bounded;
pub mod control;
pub mod cpuset;
mod descriptors;
mod error;
mod hierarchy;
mod kept;
pub mod node;
mod tasks;
mod walk;
mod watch;

pub use descriptors::{DescriptorLimit, Descriptors, open_descriptors, raise_descriptor_limit};
pub use error::{Error, Result, is_vanished};
pub use hierarchy::Hierarchy;
pub use kept::KeptFile;
pub use tasks::{
    Task, TaskReader, ThreadId, first_pid, has_processes, is_populated, pids, process_name,
    runs_only,
};
pub use walk::{Directory, descendants, inode, locate, subdirectories};
pub use watch::{TreeEvent, TreeWatch};
