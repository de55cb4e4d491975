//! The QEMU node: it returns its results, and runs the `kernel` tests of this binary on its
//! kernels.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use xtask::grounds::{self, Ground};
use xtask::node::{CpuTopology, Ending, GuestFile, KernelSeries, Node, Outcome, OutputFile};

use crate::grounds::kernel_tests;
use crate::support;

/// Limit by the host's clock. All tests together take a few minutes of one CPU of the host.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// CPUs of most tests: a CPU of the guest costs time on the host also while it is idle.
const TWO_CPUS: CpuTopology = CpuTopology { sockets: 1, cores: 2, threads: 1 };
/// CPUs of the tests of pinning, which need two nodes of NUMA and cores of two threads.
const EIGHT_CPUS: CpuTopology = CpuTopology { sockets: 2, cores: 2, threads: 2 };

/// Beginnings of the names of the tests that run with eight CPUs.
const OF_EIGHT_CPUS: [&str; 2] = ["kernel::pinning::", "kernel::yielding::fewer_"];

#[test]
fn kernel_tests_of_two_cpus_pass_on_6_1() {
    tests_pass_on(KernelSeries::V6_1, TWO_CPUS, |test| is_on(Ground::Linux61, test));
}

#[test]
fn kernel_tests_of_eight_cpus_pass_on_6_1() {
    tests_pass_on(KernelSeries::V6_1, EIGHT_CPUS, |test| is_on(Ground::Linux61, test));
}

#[test]
fn kernel_tests_of_two_cpus_pass_on_6_12() {
    tests_pass_on(KernelSeries::V6_12, TWO_CPUS, |test| is_on(Ground::Linux612, test));
}

#[test]
fn kernel_tests_of_eight_cpus_pass_on_6_12() {
    tests_pass_on(KernelSeries::V6_12, EIGHT_CPUS, |test| is_on(Ground::Linux612, test));
}

#[test]
#[ignore = "only in `cargo xtask test --all`: also the tests for which 6.12 makes no difference"]
fn all_kernel_tests_of_two_cpus_pass_on_6_12() {
    tests_pass_on(KernelSeries::V6_12, TWO_CPUS, |_| true);
}

#[test]
#[ignore = "only in `cargo xtask test --all`: also the tests for which 6.12 makes no difference"]
fn all_kernel_tests_of_eight_cpus_pass_on_6_12() {
    tests_pass_on(KernelSeries::V6_12, EIGHT_CPUS, |_| true);
}

fn is_on(ground: Ground, test: &str) -> bool {
    grounds::of(test).is_some_and(|tests| tests.is_on(ground))
}

/// Runs these kernel tests of this number of CPUs in a node, also those that are ignored on this
/// machine.
fn tests_pass_on(kernel: KernelSeries, cpus: CpuTopology, is_wanted: impl Fn(&str) -> bool) {
    let is_of_eight = |test: &str| OF_EIGHT_CPUS.iter().any(|name| test.starts_with(name));
    let tests: Vec<_> = kernel_tests()
        .into_iter()
        .filter(|test| is_of_eight(test) == (cpus == EIGHT_CPUS) && is_wanted(test))
        .collect();
    let node = Node {
        kernel,
        cpus,
        timeout: TIMEOUT,
        env: vec![(support::BINARY_VARIABLE.into(), "/usr/local/bin/cpuwarden".into())],
        files: vec![GuestFile::at(support::binary(), "/usr/local/bin/cpuwarden")],
        ..Node::default()
    };
    let options = ["--exact", "--include-ignored"];
    let args: Vec<_> = options.into_iter().chain(tests.iter().map(String::as_str)).collect();
    let label = format!("linux-{kernel}-{}-cpus", cpus.count());
    let outcome = node.run_tests(&label, &std::env::current_exe().unwrap(), &args);
    outcome.unwrap_or_else(|error| panic!("{error}")).assert_passed(tests.len());
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
    let node = Node { cpus: TWO_CPUS, timeout: Duration::from_secs(5), ..Node::default() };
    // A program that waits would end at once: an idle guest skips to its next timer.
    let outcome = run_shell(&node, &["echo still here; while :; do :; done"]);
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
    let args: Vec<_> = ["-c"].iter().chain(script_and_args).collect();
    node.run(Path::new("sh"), &args).unwrap_or_else(|error| panic!("{error}"))
}
