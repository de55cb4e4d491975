//! Versions of the cgroup interface.

/// Version of a cgroup hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One mount per controller.
    V1,
    /// The unified hierarchy.
    V2,
}
