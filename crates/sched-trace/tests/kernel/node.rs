//! The `kernel_` tests on other kernels: this very binary, inside the QEMU node.

use std::time::Duration;

use xtask::node::{CpuTopology, GuestFile, KernelSeries, Node};

/// Limit by the host's clock; the tests take a tenth of it on a quiet host.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Number of tests whose name begins with `kernel_` or `smt_`.
const TESTS: usize = 30;

#[test]
fn the_kernel_tests_pass_on_6_1() {
    tests_pass_on(KernelSeries::V6_1);
}

#[test]
fn the_kernel_tests_pass_on_6_12() {
    tests_pass_on(KernelSeries::V6_12);
}

fn tests_pass_on(kernel: KernelSeries) {
    // Two CPUs, of one core: for the tests of siblings, which only the node can run.
    let cpus = CpuTopology { sockets: 1, cores: 1, threads: 2 };
    let files = vec![GuestFile::at("/usr/bin/chrt", "/usr/bin/chrt")];
    let node = Node { kernel, cpus, timeout: TIMEOUT, files, ..Node::default() };
    let args = ["::kernel_", "::smt_", "--include-ignored", "--nocapture"];
    let tests = std::env::current_exe().unwrap();
    let outcome = node.run_tests(&format!("sched-trace-{kernel}"), &tests, &args);
    outcome.unwrap_or_else(|error| panic!("{error}")).assert_passed(TESTS);
}
