//! The errors of this crate.

use std::path::PathBuf;

use state_dir::FileError;

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of yielding.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cgroup file that cannot be read or written.
    #[error(transparent)]
    Kernel(#[from] cgroupfs::Error),
    /// Failed operation on a file of the state directory.
    #[error(transparent)]
    State(#[from] FileError),
    /// Damaged checkpoint.
    #[error(
        "{path} is damaged: {reason}. Restart the best-effort pods of this node and those that burst, which gives \
         them new cgroups, and delete the file"
    )]
    Checkpoint {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// Another process acts on this node.
    #[error("another cpuwarden has locked {0}: only one agent may write these settings")]
    Locked(PathBuf),
}

impl Error {
    /// Whether the kernel rejects the value (EINVAL).
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        let invalid = rustix::io::Errno::INVAL.raw_os_error();
        matches!(self, Self::Kernel(error) if error.raw_os_error() == Some(invalid))
    }

    /// Whether the cgroup was removed meanwhile, which is normal.
    #[must_use]
    pub fn is_vanished(&self) -> bool {
        matches!(self, Self::Kernel(error) if error.is_vanished())
    }
}
