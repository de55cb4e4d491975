//! The rules of co-location, without files: tables of their decisions, and properties over all
//! inputs.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod budget;
mod burst;
mod controller;
mod meters;
mod shares;
