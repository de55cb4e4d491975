//! Runs real tests: a run continues after a failed target, and ends with a list of the failures.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use xtask::cargo_test::{FailedTarget, Summary, run};
use xtask::test_run::Step;

/// A crate whose first test binary fails, whose second one aborts, and whose last one passes.
fn crate_with_failing_tests() -> TempDir {
    let directory = TempDir::new().unwrap();
    let write = |file: &str, text: &str| {
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("Cargo.toml", "[package]\nname = \"probe\"\nedition = \"2024\"\n[workspace]\n");
    write("Cargo.lock", "version = 4\n[[package]]\nname = \"probe\"\nversion = \"0.0.0\"\n");
    write("tests/a.rs", "#[test] fn fails() { panic!() }\n#[test] fn passes() {}\n");
    write("tests/b.rs", "#[test] fn aborts() { std::process::abort() }\n");
    write(
        "tests/c.rs",
        "#[test] fn passes_too() {}\n#[test] #[ignore = \"to be counted\"] fn is_skipped() {}\n",
    );
    directory
}

fn run_in(directory: &Path) -> (bool, Summary, String) {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(Step::Test.arguments()).current_dir(directory);
    command.env("CARGO_TARGET_DIR", directory.join("target")).env_remove("RUSTFLAGS");
    let mut output = Vec::new();
    let (status, summary) = run(command, &mut output).unwrap();
    (status.success(), summary, String::from_utf8(output).unwrap())
}

#[test]
fn a_run_continues_after_a_failed_target_and_lists_it() {
    let directory = crate_with_failing_tests();
    let (succeeded, summary, output) = run_in(directory.path());
    assert!(!succeeded, "{output}");
    let failed = |arguments: &str, tests: &[&str]| FailedTarget {
        arguments: arguments.to_owned(),
        tests: tests.iter().map(|&test| test.to_owned()).collect(),
    };
    assert_eq!(
        summary.failures,
        [failed("--test a", &["fails"]), failed("--test b", &[])],
        "{output}"
    );
    assert_eq!((summary.passed, summary.failed, summary.skipped), (2, 1, 1), "{output}");
    assert!(output.contains("test passes_too ... ok"), "the last target did not run: {output}");
}
