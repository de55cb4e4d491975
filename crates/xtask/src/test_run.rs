//! `cargo xtask test`: checks prerequisites, then format, lints and tests. The last lines of the
//! output list the failed tests and the number of tests.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::panic::resume_unwind;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Instant;

use crate::cargo_test::{self, Summary};
use crate::deny::{self, Advisories, DenyError};
use crate::prerequisites::{self, Missing, Task};
use crate::process::{self, CommandError};
use crate::tools::{self, ToolError};
use crate::workspace;

/// A step of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Step {
    /// `cargo fmt --check`.
    Fmt,
    /// `cargo clippy` with warnings as errors.
    Clippy,
    /// `cargo clippy` of the image's code: without default features.
    Image,
    /// `cargo xtask deny`.
    Deny,
    /// `cargo xtask tools`.
    Tools,
    /// `cargo test`.
    Test,
}

/// The steps in order; those that fail fast come first.
pub const STEPS: [Step; 6] =
    [Step::Fmt, Step::Clippy, Step::Image, Step::Deny, Step::Tools, Step::Test];

/// A failed run.
#[derive(Debug, thiserror::Error)]
pub enum TestRunError {
    /// Tools are missing, and this user cannot install them.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A step, or the installation of a tool, failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A dependency is not allowed.
    #[error(transparent)]
    Deny(#[from] DenyError),
    /// A tool that Debian does not have cannot be installed.
    #[error(transparent)]
    Tools(#[from] ToolError),
    /// A command that must run a test ran none.
    #[error("{0}: no test ran; correct the name in crates/xtask/src/test_run.rs")]
    NoTest(String),
    /// Tests failed; standard output lists them.
    #[error("cargo test: {0}")]
    Tests(ExitStatus),
}

/// Ensures the prerequisites, then runs the steps. `test_args` go to `cargo test`, which continues
/// after a failed target.
///
/// # Errors
/// The first failed step, or a missing prerequisite that cannot be installed.
pub fn run(steps: &[Step], test_args: &[OsString]) -> Result<(), TestRunError> {
    ensure_prerequisites()?;
    // Repeated at the end, where it is noticed.
    let mut advisories = String::new();
    for step in STEPS.iter().filter(|step| steps.contains(step)) {
        let mut command = step.command();
        if *step == Step::Test {
            command.args(test_args);
        }
        eprintln!("==> {}", process::command_line(&command));
        let began = Instant::now();
        let result: Result<(), TestRunError> = match step {
            Step::Deny => deny::run(Advisories::IfReachable).map_err(Into::into).map(|checked| {
                advisories = format!("{checked}\n");
                eprint!("{advisories}");
            }),
            Step::Tools => tools::install_all().map_err(Into::into),
            Step::Test if test_args.is_empty() => run_all_tests(&advisories),
            Step::Test => cargo_test::run(command, &mut io::stdout())
                .map_err(Into::into)
                .and_then(|result| conclude(&[result], &advisories)),
            _ => process::run(&mut command).map_err(Into::into),
        };
        eprintln!("==> {step:?} took {:.0} s", began.elapsed().as_secs_f64());
        result?;
    }
    Ok(())
}

/// Test of `tests/image.rs` that only compiles, for minutes: it runs beside the others, which
/// mostly wait.
const IMAGES: &str = "builds_of_both_platforms_are_static_and_reproducible";

/// Number of tests at once in a binary, unless `RUST_TEST_THREADS` is set. Tests that load or
/// measure the CPUs run one after the other; while they wait for their turn, others run.
const TEST_THREADS: &str = "4";

/// Runs all tests. The images are built beside the other tests with the policy `SCHED_IDLE`: so they
/// take only what those leave of the CPUs, and a test that wakes up preempts them at once.
fn run_all_tests(advisories: &str) -> Result<(), TestRunError> {
    let images = thread::spawn(|| {
        let mut output = Vec::new();
        let mut idle = Command::new("chrt");
        idle.args(["--idle", "0"]).arg(cargo()).current_dir(workspace::root());
        // The whole workspace, as below: a part of it would build dependencies with other features.
        idle.args(["test", "--locked", "--workspace", "--test", "image", "--", "--exact", IMAGES]);
        let line = process::command_line(&idle);
        (line, cargo_test::run(idle, &mut output), output)
    });
    let mut rest = Step::Test.command();
    rest.args(["--", "--skip", IMAGES]);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        rest.env("RUST_TEST_THREADS", TEST_THREADS);
    }
    let rest = cargo_test::run(rest, &mut io::stdout());
    let (line, images, output) = images.join().unwrap_or_else(|panic| resume_unwind(panic));
    println!("==> {line}");
    // If the output cannot be written, the result still counts.
    let _ = io::stdout().write_all(&output);
    let (rest, images) = (rest?, images?);
    let has_run = images.1.passed + images.1.failed > 0;
    conclude(&[rest, images], advisories)?;
    if has_run { Ok(()) } else { Err(TestRunError::NoTest(line)) }
}

/// Prints the sum of all results as the last lines.
fn conclude(results: &[(ExitStatus, Summary)], advisories: &str) -> Result<(), TestRunError> {
    let mut sum = Summary::default();
    results.iter().for_each(|(_, summary)| sum.add(summary));
    println!("\n{advisories}{}", sum.describe());
    let failed =
        results.iter().find(|(status, summary)| !status.success() || !summary.is_success());
    failed.map_or(Ok(()), |&(status, _)| Err(TestRunError::Tests(status)))
}

fn ensure_prerequisites() -> Result<(), TestRunError> {
    let Err(missing) = prerequisites::check(|tool| tool.task != Task::Cluster) else {
        return Ok(());
    };
    if !is_root() {
        return Err(missing.into());
    }
    eprintln!("{missing}\n==> installing them");
    prerequisites::install(&missing)?;
    Ok(prerequisites::check(|tool| tool.task != Task::Cluster)?)
}

/// Whether this process runs as root: `/proc/self` belongs to its effective user.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

impl Step {
    /// Arguments for cargo.
    #[must_use]
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Fmt => &["fmt", "--all", "--check"],
            Self::Clippy => {
                &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]
            }
            Self::Image => &[
                "clippy",
                "--locked",
                "--workspace",
                "--all-targets",
                "--no-default-features",
                "--",
                "-D",
                "warnings",
            ],
            Self::Deny => &["xtask", "deny"],
            Self::Tools => &["xtask", "tools"],
            Self::Test => &["test", "--locked", "--workspace", "--no-fail-fast"],
        }
    }

    fn command(self) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(workspace::root()).args(self.arguments());
        command
    }
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
