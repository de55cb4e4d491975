//! Where this checkout keeps its things.

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate lies two levels below the root")
}

/// Cargo's target directory: `CARGO_TARGET_DIR` (taken from the root when relative), else `target`.
pub fn target_dir() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
