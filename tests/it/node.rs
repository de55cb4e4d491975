//! The QEMU node: it returns its results, and runs the `kernel` tests of this binary on its
//! kernels.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use xtask::node::{CpuTopology, Ending, GuestFile, KernelSeries, Node, Outcome, OutputFile};

use crate::support;

/// Timeout of all kernel tests together, at the speed of an emulated CPU.
const TIMEOUT: Duration = Duration::from_secs(1200);

/// Tests of what the agent writes for co-location.
const ACTING: [&str; 4] =
    ["kernel::yielding::", "kernel::burst::", "kernel::resize::", "kernel::scaled::"];

#[test]
fn the_kernel_tests_pass_on_6_1() {
    // The node condition, and the Event about a pod that makes others wait, add nothing to the tests
    // of waits that depends on the kernel.
    let elsewhere = ["kernel::condition::", "kernel::contention::"].into_iter().chain(ACTING);
    let elsewhere: Vec<_> = elsewhere.map(|test| format!("--skip={test}")).collect();
    let elsewhere = elsewhere.iter().map(String::as_str);
    let args: Vec<_> = ["kernel::"].into_iter().chain(elsewhere).collect();
    kernel_tests_pass_on(KernelSeries::V6_1, &args);
}

/// Those of the newer kernel that read the files in which the kernels differ. Names, and how
/// pinning restores, drains and repairs, depend on cgroup v2, which is the same on 6.1.
#[test]
fn the_kernel_tests_of_files_that_changed_pass_on_6_12() {
    let tests =
        ["kernel::accounting::", "kernel::agent::", "kernel::throttling::", "kernel::waits::"];
    kernel_tests_pass_on(KernelSeries::V6_12, &tests);
}

#[test]
fn hotplug_and_fewer_cpus_for_best_effort_work_on_6_1() {
    tests_of_eight_cpus_pass_on(KernelSeries::V6_1);
}

#[test]
fn hotplug_and_fewer_cpus_for_best_effort_work_on_6_12() {
    tests_of_eight_cpus_pass_on(KernelSeries::V6_12);
}

#[test]
fn best_effort_pods_yield_and_limits_burst_on_6_1() {
    // Without those that write nothing: there the kernel makes no difference.
    let idle = ["observing_", "without_its_own_option"].map(|test| format!("--skip={test}"));
    let idle = idle.iter().map(String::as_str);
    let args: Vec<_> = ACTING.into_iter().chain(idle).collect();
    acting_tests_pass_on(KernelSeries::V6_1, &args);
}

/// Only the bursts: before 6.10 the kernel changes them with the quota, `cpu.idle` is the same.
#[test]
fn limits_burst_on_6_12() {
    acting_tests_pass_on(KernelSeries::V6_12, &["kernel::burst::a_"]);
}

fn kernel_tests_pass_on(kernel: KernelSeries, tests: &[&str]) {
    let args = [tests, &["--test-threads=1"]].concat();
    tests_pass_on(kernel, Node::default().cpus, &args);
}

/// With two CPUs: these tests attach and detach the trace many times. Each time the kernel patches
/// its own code, and all emulated CPUs have to stop for it.
fn acting_tests_pass_on(kernel: KernelSeries, tests: &[&str]) {
    let cpus = CpuTopology { sockets: 1, cores: 2, threads: 1 };
    let args = [tests, &["--test-threads=1"]].concat();
    tests_pass_on(kernel, cpus, &args);
}

/// Tests that run only in a node of eight CPUs: one takes CPUs offline, which a test must not do to
/// the developer's machine; one needs more CPUs than best-effort pods keep at least.
fn tests_of_eight_cpus_pass_on(kernel: KernelSeries) {
    let args = [
        "kernel::pinning::hotplug::",
        "kernel::yielding::fewer_cpus",
        "--ignored",
        "--test-threads=1",
    ];
    tests_pass_on(kernel, Node::default().cpus, &args);
}

fn tests_pass_on(kernel: KernelSeries, cpus: CpuTopology, args: &[&str]) {
    let _turn = support::turn();
    let node = Node {
        kernel,
        cpus,
        timeout: TIMEOUT,
        env: vec![
            (support::BINARY_VARIABLE.into(), "/usr/local/bin/cpuwarden".into()),
            ("CPUWARDEN_CHURN_SECONDS".into(), "20".into()),
            // Only tests that ask for the trace attach it: it takes long on emulated CPUs.
            ("CPUWARDEN_SCHED_TRACE".into(), "off".into()),
        ],
        files: vec![GuestFile::at(support::binary(), "/usr/local/bin/cpuwarden")],
        ..Node::default()
    };
    let tests = std::env::current_exe().unwrap();
    let outcome = node.run_again_if_lost(&tests, args).unwrap_or_else(|error| panic!("{error}"));
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    // After a failure without the list of the tests that passed: logs of CI are cut.
    let (_, told) = stdout.split_once("\nfailures:\n").unwrap_or(("", &*stdout));
    println!("--- in the node, Linux {kernel}, {:.0} s:\n{told}", outcome.elapsed.as_secs_f64());
    println!("{}", String::from_utf8_lossy(&outcome.stderr));
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.describe());
    let passed = stdout
        .lines()
        .find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok());
    assert!(passed.is_some_and(|passed: u32| passed > 0), "no test ran in the node");
}

#[test]
fn a_node_brings_back_output_code_and_files() {
    let host = TempDir::new().unwrap();
    let report = host.path().join("report");
    let node = Node {
        env: vec![("GREETING".into(), "it's me".into())],
        outputs: vec![OutputFile { guest: "/tmp/report".into(), host: report.clone() }],
        ..Node::default()
    };
    let script = r#"echo "$GREETING" "$1"; echo aside >&2; cat $2 > /tmp/report; exit 42"#;
    let facts = "/sys/devices/system/node/node1/cpulist /sys/fs/cgroup/cgroup.subtree_control";
    let outcome = run_shell(&node, &[script, "sh", "a  b", facts]);
    assert_eq!(outcome.ending, Ending::Exited(42), "{}", outcome.describe());
    assert_eq!(outcome.stdout, b"it's me a  b\n");
    assert_eq!(outcome.stderr, b"aside\n");
    let report = fs::read_to_string(report).unwrap();
    let (cpus_of_node_1, controllers) = report.split_once('\n').unwrap();
    assert_eq!(cpus_of_node_1, "4-7");
    assert!(
        ["cpu", "cpuset", "memory"]
            .iter()
            .all(|wanted| controllers.split_whitespace().any(|c| c == *wanted))
    );
}

#[test]
fn a_node_that_hangs_is_killed_and_its_output_is_kept() {
    let cpus = CpuTopology { sockets: 1, cores: 2, threads: 1 };
    let node = Node { cpus, timeout: Duration::from_secs(2), ..Node::default() };
    let outcome = run_shell(&node, &["echo still here; sleep 1000"]);
    assert_eq!(outcome.ending, Ending::TimedOut);
    assert_eq!(outcome.stdout, b"still here\n");
}

#[test]
fn a_node_with_a_kernel_panic_is_reported_with_the_reason() {
    let outcome = run_shell(
        &Node::default(),
        &["test -s /sys/kernel/btf/vmlinux && echo c > /proc/sysrq-trigger"],
    );
    assert_eq!(outcome.ending, Ending::Lost);
    assert!(
        outcome.describe().contains("Kernel panic - not syncing: sysrq triggered crash"),
        "{}",
        outcome.describe()
    );
}

fn run_shell(node: &Node, script_and_args: &[&str]) -> Outcome {
    let _turn = support::turn();
    let args: Vec<_> = ["-c"].iter().chain(script_and_args).collect();
    node.run(Path::new("sh"), &args).unwrap_or_else(|error| panic!("{error}"))
}
