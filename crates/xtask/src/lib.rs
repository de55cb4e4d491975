//! Development tasks, as a library so that integration tests can boot the QEMU node themselves.
//!
//! Owns what surrounds the product: the test command, its prerequisites and tools, virtual nodes, images and
//! releases. Nothing of it is ever linked
//! into the `cpuwarden` binary.

pub mod bpf;
pub mod cargo_test;
pub mod deny;
pub mod generated;
pub mod image;
pub mod node;
pub mod prerequisites;
pub mod process;
pub mod release;
pub mod runbooks;
pub mod test_run;
pub mod tools;
pub mod workspace;
