//! The vocabulary of Koordinator's fine-grained CPU orchestration.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a pod's CPUs lie on physical cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum BindPolicy {
    /// Whole physical cores.
    #[default]
    FullPcpus,
    /// One CPU of each core first.
    SpreadByPcpus,
}

/// What a pod's CPUs are kept apart from: other pods that ask for the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ExclusivePolicy {
    /// Nothing beyond the CPUs themselves.
    #[default]
    None,
    /// No core in common.
    PcpuLevel,
    /// No NUMA node in common.
    NumaNodeLevel,
}

/// Which NUMA nodes are filled first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NumaStrategy {
    /// The fullest that fits.
    #[default]
    MostAllocated,
    /// The emptiest.
    LeastAllocated,
    /// An even split over all nodes.
    DistributeEvenly,
}

/// A bind policy and whether it may degrade.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Bind {
    /// The policy.
    pub policy: BindPolicy,
    /// Fails instead of degrading.
    pub required: bool,
}

/// An exclusive policy and whether it may degrade.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Exclusivity {
    /// The policy.
    pub policy: ExclusivePolicy,
    /// Fails instead of degrading; and keeps later exclusive pods off as well.
    pub required: bool,
}

impl BindPolicy {
    /// The name in annotations and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FullPcpus => "FullPCPUs",
            Self::SpreadByPcpus => "SpreadByPCPUs",
        }
    }
}

impl ExclusivePolicy {
    /// The name in annotations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::PcpuLevel => "PCPULevel",
            Self::NumaNodeLevel => "NUMANodeLevel",
        }
    }
}

impl fmt::Display for BindPolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Display for ExclusivePolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}
