//! The errors of this crate.

use std::io;
use std::path::PathBuf;

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of yielding.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cgroup file that cannot be read or written.
    #[error(transparent)]
    Kernel(#[from] cgroupfs::Error),
    /// Failed operation on a file of the state directory.
    #[error("cannot {operation} {path}")]
    State {
        /// The operation, as a verb.
        operation: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// Damaged checkpoint.
    #[error(
        "{path} is damaged: {reason}. Restart the best-effort pods of this node, which gives them new cgroups, and \
         delete the file"
    )]
    Checkpoint {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// Another process acts on this node.
    #[error("another cpuwarden has locked {0}: only one agent may restrict best-effort pods")]
    Locked(PathBuf),
}

impl Error {
    pub(crate) fn state(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::State { operation, path, source }
    }

    /// Whether the cgroup was removed meanwhile, which is normal.
    #[must_use]
    pub fn is_vanished(&self) -> bool {
        matches!(self, Self::Kernel(error) if error.is_vanished())
    }
}
