//! The plugin of `examples/adjust.rs` against the Go library of containerd, one version of each
//! generation: calls, answers of many lengths, a synchronization in chunks, other plugins beside
//! it, and a plugin whose handler hangs, that is stopped, killed, and started again. `tests/go` is
//! the runtime's side.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::PathBuf;
use std::process::Command;

/// The example, which `cargo test` builds.
fn plugin() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples/adjust");
    assert!(path.exists(), "{}: cargo build -p nri --example adjust", path.display());
    path
}

/// Runs the plugin against a version of the library, which says to be of a version of containerd.
fn run(library: &str, containerd: &str, containers: &str, arguments: &[&str]) {
    let runtimes = xtask::tools::nri_runtimes().unwrap_or_else(|error| panic!("{error}"));
    let mut runtime = Command::new(runtimes.join(library));
    runtime.arg(plugin()).args([containerd, containers]).args(arguments);
    let output = runtime.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && text.lines().any(|line| line == "PASSED");
    assert!(passed, "containerd/nri {library}, {}:\n{text}\n{log}", output.status);
    let times = text.lines().filter(|line| line.starts_with("CreateContainer"));
    times.for_each(|line| println!("{library}: {line}"));
}

/// Containers of a synchronization over 4 MiB, which the library splits since 0.7.
const IN_CHUNKS: &str = "3000";

#[test]
fn the_library_of_containerd_1_7_adjusts_containers_and_survives_the_plugin() {
    run("v0.6.1", "v1.7.24", "1000", &[]);
}

#[test]
fn the_library_of_containerd_2_0_adjusts_containers_and_survives_the_plugin() {
    run("v0.8.0", "v2.1.5", IN_CHUNKS, &[]);
}

#[test]
fn the_library_of_containerd_2_2_adjusts_containers_and_survives_the_plugin() {
    run("v0.10.0", "v2.2.0", IN_CHUNKS, &[]);
}

#[test]
fn the_library_of_containerd_2_4_adjusts_containers_and_survives_the_plugin() {
    run("v0.12.5", "v2.4.3", IN_CHUNKS, &[]);
}

#[test]
fn a_plugin_that_asks_to_be_kept_is_still_connected_after_a_timeout() {
    run("v0.12.5", "v2.4.3", IN_CHUNKS, &["keep"]);
}
