//! Open files of this process, and their limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// `RLIMIT_NOFILE` after it was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// The soft limit in force.
    pub soft: u64,
}

/// Raises the soft limit on open files to the hard one and returns the resulting limit. Never
/// fails: a limit that cannot be raised is kept.
#[must_use]
pub fn raise_descriptor_limit() -> DescriptorLimit {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, wanted).is_ok() {
        return DescriptorLimit { soft: limit.maximum.unwrap_or(u64::MAX) };
    }
    DescriptorLimit { soft: limit.current.unwrap_or(u64::MAX) }
}

/// Descriptors of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Open now; `None` where `/proc/self/fd` cannot be read.
    pub open: Option<u64>,
    /// The limit in force; `None` where there is none.
    pub limit: Option<u64>,
}

/// Counts the open descriptors.
#[must_use]
pub fn open_descriptors() -> Descriptors {
    // The directory's size is their number since Linux 6.2, and 0 before.
    let size =
        std::fs::metadata("/proc/self/fd").map(|found| found.len()).ok().filter(|&size| size > 0);
    let listed = || Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64);
    Descriptors { open: size.or_else(listed), limit: getrlimit(Resource::Nofile).current }
}
