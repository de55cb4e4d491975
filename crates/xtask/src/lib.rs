//! Development tasks, as a library so that integration tests can boot the QEMU node themselves.
//!
//! Contains the test command with its prerequisites and tools, virtual nodes, a cluster, images and
//! releases. The `cpuwarden` binary never links it.

pub mod bpf;
pub mod cluster;
pub mod deny;
pub mod fleet;
pub mod generated;
pub mod grounds;
pub mod image;
pub mod krew;
mod make_once;
pub mod node;
pub mod prerequisites;
pub mod process;
mod qemu;
pub mod release;
pub mod runbooks;
pub mod test_run;
pub mod tools;
pub mod workspace;
