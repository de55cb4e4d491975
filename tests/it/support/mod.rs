//! Real cgroups and real load for tests, which leave nothing behind.

mod agent;
mod cgroup;
mod exposition;
pub(crate) mod http;
mod kubelet;
mod ticks;
mod tree;
mod workload;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use agent::Agent;
pub(crate) use cgroup::Cgroup;
pub(crate) use exposition::Exposition;
pub(crate) use kubelet::{Kubelet, pod_list, running_pod};
pub(crate) use tree::{Qos, RealTree};
pub(crate) use workload::{BURST_EVERY, READY, Running, Workload};

/// Names the agent's binary where it is not where cargo put it: in the QEMU node.
pub(crate) const BINARY_VARIABLE: &str = "CPUWARDEN_BIN";

/// The agent's binary.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os(BINARY_VARIABLE).map_or_else(|| env!("CARGO_BIN_EXE_cpuwarden").into(), PathBuf::from)
}

static TURN: Mutex<()> = Mutex::new(());

/// Waits for one's turn on the CPUs: what loads them or measures on them runs alone. A failed test frees the turn.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the condition holds; panics, naming it, when that takes beyond any reason.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}
