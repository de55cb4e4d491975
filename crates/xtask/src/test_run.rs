//! `cargo xtask test`: checks prerequisites, then format, lints and tests. The last lines of the
//! output list the failed tests and the number of tests.

use std::ffi::OsString;
use std::process::{Command, ExitStatus};
use std::time::Instant;

use crate::cargo_test;
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
            Step::Test => run_tests(command, &advisories),
            _ => process::run(&mut command).map_err(Into::into),
        };
        eprintln!("==> {step:?} took {:.0} s", began.elapsed().as_secs_f64());
        result?;
    }
    Ok(())
}

fn run_tests(command: Command, advisories: &str) -> Result<(), TestRunError> {
    let (status, summary) = cargo_test::run(command, &mut std::io::stdout())?;
    println!("\n{advisories}{}", summary.describe());
    if status.success() && summary.is_success() { Ok(()) } else { Err(TestRunError::Tests(status)) }
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
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(workspace::root()).args(self.arguments());
        command
    }
}
