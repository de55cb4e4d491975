//! Rules, replay and patches.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod accepted;
mod findings;
mod patches;
mod pod_quota;
mod replay;
mod support;
mod usage_trace;
mod verdict;
