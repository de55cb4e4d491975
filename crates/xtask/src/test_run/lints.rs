//! Lints, next to the tests: clippy, the image's features, the other architecture, dependencies.

use std::process::Command;

use super::priority::Priority;
use super::{TestRunError, cargo};
use crate::deny::{self, Advisories};
use crate::image::{Platform, cross_compile};
use crate::process;

/// Runs all lints.
///
/// # Errors
/// The first failed lint.
pub(super) fn run(priority: Priority) -> Result<(), TestRunError> {
    let cargo = || with(priority, &cargo());
    let clippy = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    process::run(cargo().args(clippy))?;
    // The image's features on the other architecture: one pass shows what either breaks.
    let image = ["--locked", "--package", "cpuwarden", "--no-default-features"];
    let mut arm64 = cargo();
    arm64.arg("clippy").args(image);
    cross_compile(&mut arm64, Platform::Arm64)?;
    process::run(arm64.args(["--", "-D", "warnings"]))?;
    println!("{}", deny::run(Advisories::IfReachable)?);
    Ok(())
}

/// The command with this priority.
fn with(priority: Priority, command: &Command) -> Command {
    let mut with = priority.command(command.get_program());
    if let Some(directory) = command.get_current_dir() {
        with.current_dir(directory);
    }
    with
}
