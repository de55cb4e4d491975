//! The files for installation on a cluster (`deploy/`), checked against the agent and with the
//! tools that read them.

mod catalogue;
mod chart;
mod dashboards;
mod defaults;
mod docs;
mod evidence;
mod houses;
mod mixin;
mod notes;
mod platforms;
mod presets;
mod prometheus;
mod reliability;
mod rules;
mod values;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of a file below `deploy/`.
fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

/// Text of a file below `deploy/`.
fn read(path: &str) -> String {
    let path = deploy(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a command; returns its standard output. If it fails, panics with all its output.
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}\n{stdout}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    stdout
}
