//! Whether cpusets are written, as one value: what a mode needs exists in that mode only.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use kernel_text::CpuSet;

use crate::repairs::Repairs;
use crate::report::Standing;
use crate::state_dir::Lock;

/// Whether cpusets are written.
#[derive(Debug)]
pub(super) enum Mode {
    /// Plans only. Whoever has enforced before still holds the lock: what it wrote is its own to give back.
    Observing { why: Why, lock: Option<Lock> },
    /// Writes.
    Enforcing { lock: Lock, granted: Granted },
    /// Has written, and does not write any more.
    SteppedBack { why: Why },
}

/// Why cpusets are not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Why {
    /// No pass has been made.
    NotStarted,
    /// `--pinning=observe`.
    Configured,
    /// Another owner of cpusets, or a node that cannot be understood.
    Obstacle(String),
    /// `cpuwarden drain`.
    Drained,
    /// Another writer keeps rewriting cpusets.
    Rewritten,
    /// Writes fail, with the last error.
    Failing(String),
}

/// What holds while this agent enforces.
#[derive(Debug, Default)]
pub(super) struct Granted {
    /// Cgroups that were as planned after the last pass.
    pub(super) established: BTreeMap<PathBuf, Established>,
    /// The ceiling at that time.
    pub(super) ceiling: CpuSet,
    /// What others undo, and what fails.
    pub(super) repairs: Repairs,
}

/// A cgroup that was as planned after the last pass.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) inode: u64,
    /// Its effective set.
    pub(super) cpus: CpuSet,
    /// Its `cpuset.cpus` before this agent wrote it; of one that it has not written, what it read at first.
    pub(super) original: String,
}

impl Default for Mode {
    fn default() -> Self {
        Self::Observing { why: Why::NotStarted, lock: None }
    }
}

impl Mode {
    /// The mode for a pass with this in the way, or nothing.
    pub(super) fn facing(self, obstacle: Option<Why>) -> Self {
        match (self, obstacle) {
            (stepped_back @ Self::SteppedBack { .. }, _) => stepped_back,
            (Self::Enforcing { lock, .. }, Some(why)) => Self::Observing { why, lock: Some(lock) },
            (Self::Observing { lock, .. }, Some(why)) => Self::Observing { why, lock },
            (Self::Observing { lock: Some(lock), .. }, None) => Self::Enforcing { lock, granted: Granted::default() },
            // Without the lock, `why` says who has it.
            (unchanged, None) => unchanged,
        }
    }

    /// Whether the lock must be taken before a pass without obstacles.
    pub(super) fn lacks_lock(&self) -> bool {
        matches!(self, Self::Observing { lock: None, .. })
    }

    /// Whether this agent holds the lock, and so may write.
    pub(super) fn has_lock(&self) -> bool {
        matches!(self, Self::Enforcing { .. } | Self::Observing { lock: Some(_), .. })
    }

    pub(super) fn standing(&self) -> Standing {
        match self {
            Self::Enforcing { .. } => Standing::Enforcing,
            Self::Observing { why, .. } | Self::SteppedBack { why, .. } => Standing::Observing(why.to_string()),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => out.write_str("no pass has been made yet"),
            Self::Configured => out.write_str("told to observe"),
            Self::Obstacle(what) => out.write_str(what),
            Self::Drained => out.write_str("drained by the operator, until the agent is started again"),
            Self::Rewritten => out.write_str("somebody else keeps rewriting cpusets that were written here"),
            Self::Failing(error) => write!(out, "cpusets cannot be brought about: {error}"),
        }
    }
}
