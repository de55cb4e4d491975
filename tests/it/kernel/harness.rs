//! That the harness itself cleans up behind itself, whatever happens.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support::{Qos, RealTree, Workload};

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
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

#[test]
fn a_workload_runs_in_its_cgroup_from_the_start() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, "1").child("c");
    let spinner = container.spawn(&Workload::Spin { threads: 1 });
    let pids = container.read("cpu", "cgroup.procs");
    assert_eq!(pids.trim(), spinner.pid().to_string());
}
