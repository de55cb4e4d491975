//! The state directory: locks between processes, and files that survive a crash.

mod checked_file;
mod lock;

use std::io;
use std::path::PathBuf;

pub use checked_file::CheckedFile;
pub use lock::Lock;

/// Default path of the state directory.
pub const STATE_DIR: &str = "/var/lib/cpuwarden";

/// Failed operation on a file of the state directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {path}")]
pub struct FileError {
    /// The operation, as a verb.
    pub operation: &'static str,
    /// Path of the file.
    pub path: PathBuf,
    /// Underlying error.
    pub source: io::Error,
}

impl FileError {
    /// Adds an operation and a path to an error, for `map_err`.
    pub fn on(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self { operation, path, source }
    }
}
