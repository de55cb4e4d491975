//! The integration tests, in one binary so that it links once and goes into the QEMU node as one file.
//!
//! `kernel` needs root and real cgroups and runs on this machine and, by `node`, on others; so does `advice`, here only;
//! the rest runs anywhere.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod advice;
mod arrows;
mod bad_inputs;
mod cli;
mod demo;
mod deploy;
mod doctor;
mod endpoint;
mod faults;
mod fixtures;
mod floods;
mod kernel;
mod node;
mod recordings;
mod runtimes;
mod supply_chain;
mod support;
