//! Compares the advice with the behavior of this machine's kernel.
//!
//! Not among the `kernel` tests. On an emulated CPU a thread's CPU time is the host's wall time, so
//! a burst of 30 ms takes 30 ms to 100 ms. The QEMU node also has no Go.

mod command;
mod go;
mod load;
mod rare_bursts;
mod recorded;
mod replay;
mod shapes;
mod windows;

use serde_json::Value;

use crate::support::Agent;

/// The advice for the container with this name; `None` as long as there is none.
fn row_of(agent: &Agent, container: &str) -> Option<Value> {
    let report: Value = serde_json::from_str(&agent.get("/api/v1/advice").1).unwrap();
    report["containers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["container"] == container)
        .cloned()
}
