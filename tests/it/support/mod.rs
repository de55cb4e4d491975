//! Real cgroups and real load for tests, removed afterwards.

mod agent;
mod cgroup;
mod exposition;
pub(crate) mod http;
mod kubelet;
mod stage;
mod ticks;
mod tree;
mod workload;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use agent::Agent;
pub(crate) use cgroup::Cgroup;
pub(crate) use exposition::Exposition;
pub(crate) use kubelet::{Kubelet, pod_list, running_pod};
pub(crate) use stage::OnStage;
pub(crate) use tree::{Qos, RealTree};
pub(crate) use workload::{BURST_EVERY, READY, Running, Workload};

/// Variable with the path of the agent's binary, if cargo did not build it there: in the QEMU node.
pub(crate) const BINARY_VARIABLE: &str = "CPUWARDEN_BIN";

/// Path of the agent's binary.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os(BINARY_VARIABLE)
        .map_or_else(|| env!("CARGO_BIN_EXE_cpuwarden").into(), PathBuf::from)
}

/// Writes a program, by a child process. If a thread of the test wrote it, a child that another
/// thread forks meanwhile would hold it open for writing, and its start would fail (ETXTBSY).
pub(crate) fn write_program(path: &Path, mut content: impl Read) {
    let write = "cat > \"$0\" && chmod 755 \"$0\"";
    let mut shell =
        Command::new("sh").args(["-c", write]).arg(path).stdin(Stdio::piped()).spawn().unwrap();
    io::copy(&mut content, &mut shell.stdin.take().unwrap()).unwrap();
    assert!(shell.wait().unwrap().success(), "{} not written", path.display());
}

static TURN: Mutex<()> = Mutex::new(());

/// Waits for exclusive use of the CPUs: tests that load them or measure on them run alone. A failed
/// test releases it.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the condition holds; panics with its name after a minute.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}
