//! Errors of this crate, and detection of a removed cgroup.

use std::io;
use std::path::{Path, PathBuf};

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// A kernel file or directory that could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a path failed.
    #[error("cannot {operation} {path}")]
    Io {
        /// The failed operation, as a verb.
        operation: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The content of a file is not understood.
    #[error("cannot parse {path}")]
    Parse {
        /// Path of the file.
        path: PathBuf,
        /// Underlying parse error.
        source: kernel_text::ParseError,
    },
    /// No cgroup hierarchy with a cpu controller.
    #[error(
        "no cgroup hierarchy at {root}: neither {root}/cgroup.controllers (v2) nor {root}/cpu (v1) exists; mount the \
         host's /sys/fs/cgroup there or set --cgroup-root"
    )]
    NoHierarchy {
        /// The directory that was searched.
        root: PathBuf,
    },
    /// A cgroup v2 hierarchy whose root lacks the cpu controller.
    #[error(
        "{root}/cgroup.controllers does not list cpu: the controller is disabled or bound to a v1 hierarchy; \
         boot without cgroup_disable=cpu, or set --cgroup-root to the v1 mount"
    )]
    NoCpuController {
        /// The v2 root.
        root: PathBuf,
    },
}

impl Error {
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { operation, path, source }
    }

    /// Number of the kernel's error (errno).
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// True when the error says that this process may not do that.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// True when the error says that the cgroup or process is gone, which is normal.
    #[must_use]
    pub fn is_vanished(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_vanished(source))
    }
}

/// ENOENT (open after rmdir), ENODEV (read of a kept descriptor after rmdir), ESRCH (a process that
/// is gone).
///
/// By raw number: std has no `ErrorKind` for ENODEV.
#[must_use]
pub fn is_vanished(error: &io::Error) -> bool {
    let gone = [rustix::io::Errno::NOENT, rustix::io::Errno::NODEV, rustix::io::Errno::SRCH];
    error.raw_os_error().is_some_and(|raw| gone.iter().any(|errno| errno.raw_os_error() == raw))
}
