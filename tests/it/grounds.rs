//! Grounds of the tests: each kernel test runs somewhere by default, and what only
//! `cargo xtask test --all` runs is listed.

use std::process::Command;

use xtask::grounds::{self, Ground, KERNEL_TESTS, NOT_ON_HOST, ONLY_IN_ALL};
use xtask::workspace;

/// Names of the tests of this binary.
fn all_tests() -> Vec<String> {
    listed(&[])
}

fn listed(arguments: &[&str]) -> Vec<String> {
    let mut list = Command::new(std::env::current_exe().unwrap());
    let output = list.args(["--list", "--format=terse"]).args(arguments).output().unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    names.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Names of the kernel tests of this binary, without the processes that some of them start.
pub(crate) fn kernel_tests() -> Vec<String> {
    let is_test = |test: &String| test.starts_with("kernel::") && !test.ends_with("_process");
    all_tests().into_iter().filter(is_test).collect()
}

#[test]
fn each_kernel_test_runs_on_some_ground() {
    for test in kernel_tests() {
        let row = grounds::of(&test)
            .unwrap_or_else(|| panic!("{test}: add it to crates/xtask/src/grounds.rs"));
        let is_only_in_all = row.why.starts_with("only with `--all`: ");
        assert!(is_only_in_all || !row.grounds.is_empty(), "{test} runs nowhere: {row:?}");
    }
}

#[test]
fn each_row_is_that_of_a_test() {
    let tests = all_tests();
    for row in KERNEL_TESTS {
        let is_its = |test: &String| grounds::of(test).is_some_and(|of| of.name == row.name);
        assert!(tests.iter().any(is_its), "no test has the row {row:?}");
        let rows = KERNEL_TESTS.iter().filter(|other| other.name == row.name);
        assert_eq!(rows.count(), 1, "{row:?}");
    }
}

#[test]
fn what_only_all_runs_is_what_the_host_ignores() {
    // Processes of other tests, tests for nodes, and one that prints figures.
    let elsewhere = [
        "kernel::",
        "node::",
        "support::",
        "floods::figures_beside_idle",
        "floods::scraping_process",
    ];
    let mut ignored = listed(&["--ignored"]);
    ignored.retain(|test| !elsewhere.iter().any(|name| test.starts_with(name)));
    assert_eq!(ignored, ONLY_IN_ALL);
}

/// libtest's `--skip` leaves out each test whose name contains the text.
#[test]
fn what_the_host_skips_are_the_tests_without_it() {
    for test in all_tests() {
        let is_skipped = NOT_ON_HOST.iter().any(|name| test.contains(name));
        let is_elsewhere = grounds::of(&test).is_some_and(|row| !row.is_on(Ground::Host));
        assert_eq!(is_skipped, is_elsewhere, "{test}");
    }
}

#[test]
fn the_table_of_grounds_is_in_contributing() {
    let page = std::fs::read_to_string(workspace::root().join(".github/CONTRIBUTING.md")).unwrap();
    let table = grounds::table();
    assert!(page.contains(&table), "put this into .github/CONTRIBUTING.md:\n{table}");
}
