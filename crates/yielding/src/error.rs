//! The errors of this crate.

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of yielding.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cgroup file that cannot be read or written.
    #[error(transparent)]
    Kernel(#[from] cgroupfs::Error),
    /// A file or lock of the state directory.
    #[error(transparent)]
    State(#[from] state_dir::Error),
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
