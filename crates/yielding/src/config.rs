//! Configuration of the actor.

use std::path::PathBuf;

use crate::rules::{BurstLimits, ControllerSettings};
use cgroupfs::{Hierarchy, node};
use kernel_text::CpuSet;
use state_dir::{ActingMode, Setting};

use crate::resize::Resizes;

/// A feature of this crate. Each has its own mode; they share the checkpoint and the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Best-effort pods that yield.
    BestEffort,
    /// CPU limits that burst.
    Burst,
}

impl Feature {
    /// The feature that writes a setting.
    pub(crate) const fn of(setting: Setting) -> Self {
        match setting {
            Setting::Idle | Setting::Cpus | Setting::Quota => Self::BestEffort,
            Setting::Burst => Self::Burst,
        }
    }

    /// The option that turns it on.
    pub(crate) const fn option(self) -> &'static str {
        match self {
            Self::BestEffort => "--best-effort",
            Self::Burst => "--burst",
        }
    }
}

/// Settings of burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstSettings {
    /// Maximum burst, percent of the quota, below 100.
    pub most_percent: u64,
    /// Conditions for burst.
    pub limits: BurstLimits,
    /// Whether the kernel has CPU burst.
    pub can_burst: bool,
}

impl Default for BurstSettings {
    fn default() -> Self {
        Self { most_percent: 75, limits: BurstLimits::default(), can_burst: true }
    }
}

/// Configuration of the actor.
#[derive(Debug, Clone)]
pub struct ActorConfig {
    /// Best-effort pods that yield.
    pub best_effort: ActingMode,
    /// CPU limits that burst.
    pub burst: ActingMode,
    /// Cgroup mounts.
    pub hierarchy: Hierarchy,
    /// The node's `/proc`.
    pub proc_root: PathBuf,
    /// The node's `/sys`.
    pub sys_root: PathBuf,
    /// Directory of the checkpoint and the lock.
    pub state_dir: PathBuf,
    /// Settings of the controller of best-effort pods.
    pub settings: ControllerSettings,
    /// Settings of burst.
    pub burst_settings: BurstSettings,
    /// CPUs reserved for the host: best-effort pods avoid them, and the utilization rule counts
    /// them as used.
    pub reserved: CpuSet,
    /// Resizes of containers, from the container runtime.
    pub resizes: Resizes,
}

impl ActorConfig {
    pub(crate) const fn switch(&self, feature: Feature) -> ActingMode {
        match feature {
            Feature::BestEffort => self.best_effort,
            Feature::Burst => self.burst,
        }
    }

    /// All possible CPUs as a list, which has the same effect as an empty cpuset.
    pub(crate) fn all_cpus(&self) -> String {
        node::cpu_list(&self.sys_root, "possible").unwrap_or_default().to_string()
    }
}
