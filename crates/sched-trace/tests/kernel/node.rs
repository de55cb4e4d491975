//! The `kernel_` tests on other kernels: this very binary, inside the QEMU node.

use std::time::Duration;

use xtask::node::{CpuTopology, Ending, GuestFile, KernelSeries, Node};

use crate::lab::turn;

/// All of them, at the speed of an emulated CPU.
const TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn the_kernel_tests_pass_on_6_1() {
    tests_pass_on(KernelSeries::V6_1);
}

#[test]
fn the_kernel_tests_pass_on_6_12() {
    tests_pass_on(KernelSeries::V6_12);
}

fn tests_pass_on(kernel: KernelSeries) {
    let _turn = turn();
    // Two CPUs, of one core: for the tests of siblings, which only the node can run.
    let cpus = CpuTopology { sockets: 1, cores: 1, threads: 2 };
    let files = vec![GuestFile::at("/usr/bin/chrt", "/usr/bin/chrt")];
    let node = Node { kernel, cpus, timeout: TIMEOUT, files, ..Node::default() };
    let args = ["::kernel_", "::smt_", "--include-ignored", "--test-threads=1", "--nocapture"];
    let tests = std::env::current_exe().unwrap();
    let outcome = node.run_again_if_lost(&tests, &args).unwrap_or_else(|error| panic!("{error}"));
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    println!("--- in the node, Linux {kernel}, {:.0} s:\n{stdout}", outcome.elapsed.as_secs_f64());
    println!("{}", String::from_utf8_lossy(&outcome.stderr));
    assert_eq!(outcome.ending, Ending::Exited(0), "{}", outcome.describe());
    let passed = stdout
        .lines()
        .find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok());
    assert!(passed.is_some_and(|passed: u32| passed >= 10), "not all tests ran in the node");
}
