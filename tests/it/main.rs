//! The integration tests, in one binary: it links once and is a single file for the QEMU node.
//!
//! `kernel` needs root and real cgroups; it runs on this machine and, by `node`, on QEMU nodes.
//! `advice` needs the same, but runs only here. The rest runs anywhere.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod advice;
mod arrows;
mod bad_inputs;
mod cli;
mod demo;
mod dependencies;
mod deploy;
mod doctor;
mod endpoint;
mod faults;
mod fixtures;
mod fleet;
mod floods;
mod grounds;
mod incident;
mod injection;
mod kernel;
mod kubectl;
mod node;
mod other_nodes;
mod page;
mod reading;
mod recording;
mod recordings;
mod removal;
mod runtimes;
mod supply_chain;
mod support;
mod terminal;
