//! The policies of Koordinator's fine-grained CPU orchestration.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Placement of a pod's CPUs on physical cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum BindPolicy {
    /// Whole physical cores.
    #[default]
    FullPcpus,
    /// One CPU of each core before the second ones.
    SpreadByPcpus,
}

/// Separation of a pod's CPUs from other pods with the same policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ExclusivePolicy {
    /// No separation beyond the CPUs themselves.
    #[default]
    None,
    /// No shared core.
    PcpuLevel,
    /// No shared NUMA node.
    NumaNodeLevel,
}

/// Order in which NUMA nodes are filled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NumaStrategy {
    /// Fullest node that fits first.
    #[default]
    MostAllocated,
    /// Emptiest node first.
    LeastAllocated,
    /// An even split over all nodes.
    DistributeEvenly,
}

impl NumaStrategy {
    /// All strategies.
    pub const ALL: [Self; 3] = [Self::MostAllocated, Self::LeastAllocated, Self::DistributeEvenly];
}

/// A bind policy with its strictness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Bind {
    /// The requested policy.
    pub policy: BindPolicy,
    /// Whether the request fails instead of falling back to another placement.
    pub required: bool,
}

/// An exclusive policy with its strictness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Exclusivity {
    /// The requested policy.
    pub policy: ExclusivePolicy,
    /// Whether the request fails instead of falling back. If so, later exclusive pods are kept off,
    /// too.
    pub required: bool,
}

impl BindPolicy {
    /// Name in annotations and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FullPcpus => "FullPCPUs",
            Self::SpreadByPcpus => "SpreadByPCPUs",
        }
    }
}

impl ExclusivePolicy {
    /// Name in annotations.
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
