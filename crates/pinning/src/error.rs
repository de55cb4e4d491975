//! The errors of this crate.

use std::io;
use std::path::PathBuf;

use kernel_text::CpuSet;

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// What keeps pinning from its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A kernel file that cannot be read or written.
    #[error(transparent)]
    Kernel(#[from] cgroupfs::Error),
    /// Relations that no machine has.
    #[error("the CPU topology in /sys/devices/system makes no sense")]
    Topology(#[source] placement::TopologyError),
    /// A cgroup's effective CPUs after a write, or before a grant, are not as meant.
    #[error("{path} has the CPUs {found}, meant were {wanted}")]
    NotEffective {
        /// The cgroup.
        path: PathBuf,
        /// What was meant.
        wanted: CpuSet,
        /// What is effective.
        found: CpuSet,
    },
    /// There is nothing to pin: no hierarchy with cpusets, or no pods below it.
    #[error("{0}")]
    NoCpusets(String),
    /// A plan that cannot be written.
    #[error("the plan cannot be written")]
    Steps(#[from] placement::StepError),
    /// A file of the state directory.
    #[error("cannot {operation} {path}")]
    State {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A checkpoint that is not what was written.
    #[error("{path} is damaged: {reason}")]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A checkpoint of cgroups of which none is here: another mount, or all of them are gone.
    #[error(
        "none of the {entries} cgroups in {checkpoint} is below {mount} (first: {first}): nothing was given back and \
         nothing deleted; give --cgroup-root as the mount of the host's cgroups, or, when those pods are gone, delete the \
         file", checkpoint = checkpoint.display(), mount = mount.display(), first = first.display()
    )]
    Unmatched {
        /// The checkpoint.
        checkpoint: PathBuf,
        /// How many cgroups it holds.
        entries: usize,
        /// The first of them.
        first: PathBuf,
        /// Where they were looked for.
        mount: PathBuf,
    },
    /// Another process enforces on this node.
    #[error("another cpuwarden holds {0}: only one may write cpusets")]
    Locked(PathBuf),
}

impl Error {
    pub(crate) fn state(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::State { operation, path, source }
    }

    /// The cgroup went away meanwhile, which is normal.
    #[must_use]
    pub fn is_vanished(&self) -> bool {
        matches!(self, Self::Kernel(error) if error.is_vanished())
    }
}
