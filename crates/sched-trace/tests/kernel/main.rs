//! The trace on a real kernel, against what the kernel itself says: this machine's, and the QEMU
//! node's.
//!
//! Everything runs on one CPU below a cgroup that comes before everything else on the machine. What
//! the machine does there all the same is real, counts as `system`, and is part of each sum.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod accuracy;
mod budget;
mod counters;
mod degrade;
mod edges;
mod lab;
mod lost;
mod migration;
mod node;
mod smt;
mod workload;
