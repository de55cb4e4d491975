//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// `RLIMIT_NOFILE` after it was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// In force.
    pub soft: u64,
}

/// Raises the soft limit of open files to the hard one and gives what is in force then. Never fails: what cannot be
/// raised stays.
#[must_use]
pub fn raise_descriptor_limit() -> DescriptorLimit {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, wanted).is_ok() {
        return DescriptorLimit { soft: limit.maximum.unwrap_or(u64::MAX) };
    }
    DescriptorLimit { soft: limit.current.unwrap_or(u64::MAX) }
}
