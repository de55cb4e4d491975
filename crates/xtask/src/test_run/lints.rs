//! Lints, next to the tests: clippy, the image's features, the other architecture, dependencies.

use std::process::Command;

use super::{TestRunError, cargo, timed};
use crate::deny::{self, Advisories};
use crate::image::{Platform, cross_compile};
use crate::process;

/// Runs all lints; the tests take precedence for CPU time.
///
/// # Errors
/// The first failed lint.
pub(super) fn run() -> Result<(), TestRunError> {
    timed("lints", || {
        let clippy = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
        process::run(idle(&cargo()).args(clippy))?;
        let image = ["--locked", "--package", "cpuwarden", "--no-default-features"];
        let deny = ["--", "-D", "warnings"];
        process::run(idle(&cargo()).arg("clippy").args(image).args(deny))?;
        let mut arm64 = idle(&cargo());
        arm64.arg("check").args(image);
        cross_compile(&mut arm64, Platform::Arm64)?;
        process::run(&mut arm64)?;
        println!("{}", deny::run(Advisories::IfReachable)?);
        Ok(())
    })
}

/// The command with the policy `SCHED_IDLE`: it takes only what the tests leave of the CPUs, and a
/// test that wakes up preempts it at once.
fn idle(command: &Command) -> Command {
    let mut idle = Command::new("chrt");
    idle.args(["--idle", "0"]).arg(command.get_program());
    if let Some(directory) = command.get_current_dir() {
        idle.current_dir(directory);
    }
    idle
}
