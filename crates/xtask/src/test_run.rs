//! `cargo xtask test`: prerequisites, then format, lints and tests, so that the last lines are cargo test's.

use std::ffi::OsString;
use std::process::Command;

use crate::prerequisites::{self, Missing};
use crate::process::{self, CommandError};
use crate::workspace;

/// One part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Step {
    /// `cargo fmt --check`.
    Fmt,
    /// `cargo clippy`, warnings are errors.
    Clippy,
    /// `cargo test`.
    Test,
}

/// The steps in their order: what is quick to fail comes first.
pub const STEPS: [Step; 3] = [Step::Fmt, Step::Clippy, Step::Test];

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum TestRunError {
    /// Tools are missing and this user cannot install them.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A step, or the installation of a tool, failed.
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Sees to the prerequisites, then runs the steps; `test_args` go to `cargo test`.
///
/// # Errors
/// At the first step that fails, or when a prerequisite is missing and cannot be installed.
pub fn run(steps: &[Step], test_args: &[OsString]) -> Result<(), TestRunError> {
    ensure_prerequisites()?;
    for step in STEPS.iter().filter(|step| steps.contains(step)) {
        let mut command = step.command();
        if *step == Step::Test {
            command.args(test_args);
        }
        eprintln!("==> {}", process::command_line(&command));
        process::run(&mut command)?;
    }
    Ok(())
}

fn ensure_prerequisites() -> Result<(), TestRunError> {
    let Err(missing) = prerequisites::check(|_| true) else { return Ok(()) };
    if !is_root() {
        return Err(missing.into());
    }
    eprintln!("{missing}\n==> installing them");
    prerequisites::install(&missing)?;
    Ok(prerequisites::check(|_| true)?)
}

/// `/proc/self` belongs to the effective user of the process.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

impl Step {
    fn command(self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(workspace::root());
        command.args(match self {
            Self::Fmt => &["fmt", "--all", "--check"][..],
            Self::Clippy => &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"],
            Self::Test => &["test", "--locked", "--workspace"],
        });
        command
    }
}
