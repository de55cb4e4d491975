//! Whether a feature writes, and why not.

use std::fmt;

use state_dir::ActingMode;

use crate::config::Feature;

/// Whether a feature writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// The feature writes its decisions to cgroups.
    Enforcing,
    /// The feature only decides and reports, for this reason.
    Observing(Why),
}

/// Reason not to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Configured: `--burst=observe`.
    Configured(Feature, ActingMode),
    /// A drain is requested.
    Drained,
    /// A pause after too many conflicts with another program.
    Paused,
    /// The kernel has no CPU burst.
    NoBurst,
    /// The lock or the checkpoint cannot be used; with the error.
    NoState(String),
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured(feature, switch) => {
                write!(out, "{}={}", feature.option(), switch.as_str())
            }
            Self::Drained => out.write_str("a drain is requested"),
            Self::Paused => out.write_str("another agent writes the same cgroups"),
            Self::NoBurst => out.write_str("the kernel has no CPU burst: it needs Linux 5.14"),
            Self::NoState(error) => out.write_str(error),
        }
    }
}
