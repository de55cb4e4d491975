//! Directories of this checkout.

use std::path::{Path, PathBuf};

/// Root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate lies two levels below the root")
}

/// Cargo's target directory: `CARGO_TARGET_DIR` (relative to the root), or `target`.
pub fn target_dir() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
