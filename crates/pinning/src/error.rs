//! The errors of this crate.

use std::io;
use std::path::PathBuf;

use kernel_text::CpuSet;

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of pinning.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Kernel file that cannot be read or written.
    #[error(transparent)]
    Kernel(#[from] cgroupfs::Error),
    /// Impossible relations between CPUs.
    #[error("invalid CPU topology in /sys/devices/system")]
    Topology(#[source] placement::TopologyError),
    /// A cgroup's effective CPUs differ from the plan, after a write or before a grant.
    #[error("{path} contains CPUs {found} after a write of {wanted}")]
    NotEffective {
        /// Path of the cgroup.
        path: PathBuf,
        /// CPUs of the plan.
        wanted: CpuSet,
        /// Effective CPUs.
        found: CpuSet,
    },
    /// Nothing to pin: no hierarchy with cpusets, or no pods below it.
    #[error("{0}")]
    NoCpusets(String),
    /// Cgroups that cannot be watched.
    #[error("cannot watch the cgroups; raise the limit of open files")]
    Watch(#[source] io::Error),
    /// No order of writes exists for the plan.
    #[error("the plan cannot be applied")]
    Steps(#[from] placement::StepError),
    /// A file or lock of the state directory.
    #[error(transparent)]
    State(#[from] state_dir::Error),
    /// None of the checkpoint's cgroups is here, nor one above them: a wrong mount.
    #[error(
        "no cgroup of the {entries} in {checkpoint} exists below {mount} (first: {first}); nothing was changed. Set \
         --cgroup-root to the mount of the host's cgroups, or delete the file if those pods no longer exist",
        checkpoint = checkpoint.display(), mount = mount.display(), first = first.display()
    )]
    Unmatched {
        /// Path of the checkpoint.
        checkpoint: PathBuf,
        /// Number of cgroups in the checkpoint.
        entries: usize,
        /// Path of the first cgroup.
        first: PathBuf,
        /// Mount below which the cgroups were searched.
        mount: PathBuf,
    },
}

impl Error {
    /// Whether the cgroup was removed meanwhile, which is normal.
    #[must_use]
    pub fn is_vanished(&self) -> bool {
        matches!(self, Self::Kernel(error) if error.is_vanished())
    }
}
