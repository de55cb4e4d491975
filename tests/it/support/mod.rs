//! The agent, a kubelet and their surroundings for tests; cgroups and load are in `testkit`.

mod agent;
mod exposition;
pub(crate) mod http;
mod kubelet;
mod ticks;
mod workload;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

pub(crate) use agent::Agent;
pub(crate) use exposition::Exposition;
pub(crate) use kubelet::{Kubelet, pod_list, running_pod};
pub(crate) use testkit::{Cgroup, OnStage, Qos, READY, RealTree, Running, Workload, turn};
pub(crate) use workload::BURST_EVERY;

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

/// Waits until the condition holds; panics with its name after a minute.
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    const EVERY: Duration = Duration::from_millis(20);
    poll(EVERY, Duration::from_secs(60), || what.to_owned(), condition);
}

/// Checks the condition at this interval until it holds; panics after `limit` with what did not
/// occur.
pub(crate) fn poll(
    every: Duration,
    limit: Duration,
    what: impl FnOnce() -> String,
    mut condition: impl FnMut() -> bool,
) {
    let began = Instant::now();
    while !condition() {
        if began.elapsed() > limit {
            panic!("{}: not within {limit:?}", what());
        }
        std::thread::sleep(every);
    }
}

/// Waits for a program's end, and kills it after `limit`.
pub(crate) fn end_of(child: &mut Child, limit: Duration) -> ExitStatus {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    let limit = Timespec::try_from(limit).unwrap();
    let ready =
        rustix::event::poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).unwrap();
    if ready == 0 {
        child.kill().unwrap();
    }
    child.wait().unwrap()
}
