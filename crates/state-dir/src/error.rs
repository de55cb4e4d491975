//! The errors of this crate.

use std::io;
use std::path::PathBuf;

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the state directory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Failed operation on a file.
    #[error("cannot {operation} {path}")]
    File {
        /// The operation, as a verb.
        operation: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// Damaged file.
    #[error("{path} is damaged: {reason}. {remedy}")]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
        /// What the operator must do.
        remedy: &'static str,
    },
    /// Another process holds the lock with this path.
    #[error("another cpuwarden has locked {0}: only one agent may write these settings of cgroups")]
    Locked(PathBuf),
}

impl Error {
    /// Adds an operation and a path to an error, for `map_err`.
    pub(crate) fn on(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { operation, path, source }
    }
}
