//! Access to cgroupfs, `/proc` and `/sys`: hierarchy detection, walk, inotify, open descriptors,
//! control-file writes, CPU times.
//!
//! Every root is a parameter, so that a directory of recorded files can stand in for a node.
//! Nothing here knows about pods.

pub mod bounded;
pub mod control;
mod cpu_times;
pub mod cpuset;
mod descriptors;
mod error;
mod hierarchy;
mod kept;
pub mod node;
mod tasks;
mod walk;
mod watch;

pub use cpu_times::cpu_times;
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
