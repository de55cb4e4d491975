//! Lints, next to the tests: clippy, the image's features, the other architecture, the kubectl
//! plugin's other systems, dependencies.

use std::process::Command;

use super::priority::Priority;
use super::{TestRunError, cargo};
use crate::deny::{self, Advisories};
use crate::image::{Platform, cross_compile};
use crate::process;
use crate::workspace;

/// Targets for which a release has the kubectl plugin alone.
pub const PLUGIN_TARGETS: [&str; 3] =
    ["aarch64-apple-darwin", "x86_64-apple-darwin", "x86_64-pc-windows-msvc"];
/// Folder of headers of these systems that ring includes. Clippy links nothing, so they are empty.
const HEADERS: &str = "crates/xtask/src/test_run/headers";

/// Runs all lints; with `all`, also those of the plugin's other systems.
///
/// # Errors
/// The first failed lint.
pub(super) fn run(priority: Priority, all: bool) -> Result<(), TestRunError> {
    let cargo = || with(priority, &cargo());
    let clippy = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    process::run(cargo().args(clippy))?;
    // The image's features on the other architecture: one pass shows what either breaks.
    let image = ["--locked", "--package", "cpuwarden", "--no-default-features"];
    let mut arm64 = cargo();
    arm64.arg("clippy").args(image);
    cross_compile(&mut arm64, Platform::Arm64)?;
    process::run(arm64.args(["--", "-D", "warnings"]))?;
    if all {
        plugin(cargo)?;
    }
    println!("{}", deny::run(Advisories::IfReachable)?);
    Ok(())
}

/// Clippy of the kubectl plugin for macOS and Windows. clang compiles the C code of ring without the
/// headers of these systems.
fn plugin(cargo: impl Fn() -> Command) -> Result<(), TestRunError> {
    let headers = workspace::root().join(HEADERS);
    let flags = "-nostdlibinc -ffreestanding -DRING_CORE_NOSTDLIBINC=1 -isystem";
    for target in PLUGIN_TARGETS {
        process::run(Command::new("rustup").args(["--quiet", "target", "add", target]))?;
        let variable = target.replace('-', "_");
        let archiver = if target.ends_with("msvc") { "llvm-lib-14" } else { "llvm-ar-14" };
        let mut clippy = cargo();
        clippy.args(["clippy", "--locked", "--package", "kubectl-plugin", "--target", target]);
        clippy.env(format!("CC_{variable}"), "clang-14");
        clippy.env(format!("CFLAGS_{variable}"), format!("{flags}{}", headers.display()));
        clippy.env(format!("AR_{variable}"), archiver);
        process::run(clippy.args(["--", "-D", "warnings"]))?;
    }
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
