//! Values that a restriction requires, from the original values.

use cgroupfs::control;
use kernel_text::{CgroupVersion, CpuSet};

use crate::setting::{Bandwidth, Original};

/// Requirement on a setting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Want {
    Idle,
    /// At most these CPUs; the second set is all online CPUs.
    Cpus(CpuSet, CpuSet),
    /// At most this many cores.
    Quota(f64),
    /// This value.
    Exactly(String),
}

/// Minimum number of CPUs of a container.
const LEAST_CPUS: usize = 2;
/// The shortest quota that the kernel accepts, microseconds.
pub(crate) const LEAST_QUOTA_USEC: u64 = 1_000;

impl Want {
    /// The value to write over the original; `None` if the original is at least as strict.
    pub(crate) fn value(
        &self,
        original: &Original,
        version: CgroupVersion,
        v1_period: Option<u64>,
    ) -> Option<String> {
        match self {
            Self::Idle => (original.value == "0").then(|| "1".to_owned()),
            Self::Cpus(kept, online) => {
                let configured: CpuSet = original.value.parse().ok()?;
                let now = if configured.is_empty() { online.clone() } else { configured };
                let left = now.intersection(kept);
                // A container that was confined before may share few CPUs with the ones to keep.
                (left.len() >= LEAST_CPUS && left != now).then(|| left.to_string())
            }
            Self::Quota(cores) => {
                let now = Bandwidth::parse(&original.value, version, v1_period)?;
                let usec = ((cores * now.period as f64) as u64).max(LEAST_QUOTA_USEC);
                let is_looser = now.quota.is_none_or(|quota| quota > usec);
                is_looser.then(|| Bandwidth { quota: Some(usec), ..now }.value(version))
            }
            Self::Exactly(value) => Some(value.clone()),
        }
    }
}

pub(crate) fn v1_period(directory: &std::path::Path) -> Option<u64> {
    control::read(&directory.join("cpu.cfs_period_us")).ok()??.parse().ok()
}
