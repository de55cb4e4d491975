//! A plugin against a runtime that speaks the wire format by itself, as the Go library does.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod calls;
mod connections;
mod faults;
mod node;
mod runtime;
