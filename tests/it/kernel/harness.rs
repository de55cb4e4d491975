//! Cleanup of the test harness itself, in all cases.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::support::{Qos, RealTree, Running, Workload, eventually};

#[test]
fn a_tree_is_gone_with_its_processes_after_a_panic() {
    let mut left = None;
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let tree = RealTree::new();
        let container = tree.pod(Qos::Burstable, "1").child("c");
        let spinner = container.spawn(&Workload::Spin { threads: 2 });
        left = Some((container.dir("cpu"), spinner.pid()));
        std::mem::forget(spinner);
        panic!("on purpose");
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"on purpose"));
    let (directory, pid) = left.unwrap();
    assert!(!directory.exists(), "{} is left", directory.display());
    assert!(has_ended(pid), "process {pid} is left");
}

#[test]
fn a_workload_runs_in_its_cgroup_from_the_start() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, "1").child("c");
    let spinner = container.spawn(&Workload::Spin { threads: 1 });
    let pids = container.read("cpu", "cgroup.procs");
    assert_eq!(pids.trim(), spinner.pid().to_string());
}

#[test]
fn a_workload_that_ends_early_fails_its_test() {
    let tree = RealTree::new();
    let spinner = tree.pod(Qos::Burstable, "1").child("c").spawn(&Workload::Spin { threads: 1 });
    let pid = Pid::from_raw(spinner.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    // Waits until all of its threads have ended.
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| drop(spinner))).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("ended before its test did"), "{message}");
}

/// A workload may print more after its ready line: after a minute, libtest prints that its test
/// takes long.
#[test]
fn a_workload_may_print_more_than_its_ready_line() {
    let mut command = Command::new("sh");
    // More output than a pipe holds, written by the shell itself.
    command.args(["-c", "echo ready; sleep 0.2; i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done; exec cat"]);
    let (running, printed) = Running::start(command, |line| line == "ready");
    assert_eq!(printed, "ready\n");
    let is_cat = || {
        fs::read_to_string(format!("/proc/{}/comm", running.pid()))
            .is_ok_and(|name| name == "cat\n")
    };
    eventually("all of its output to be taken", || has_ended(running.pid()) || is_cat());
    // The shell has printed all when it becomes this.
    assert!(is_cat(), "the program ended when it printed");
}

/// Whether the process is gone or a zombie.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}
