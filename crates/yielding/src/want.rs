//! Values that a restriction requires, from the original values.

use cgroupfs::control;
use kernel_text::{CgroupVersion, CpuSet};

use crate::setting::Original;

/// Requirement on a setting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Want {
    Idle,
    /// At most these CPUs; the second set is all online CPUs.
    Cpus(CpuSet, CpuSet),
    /// At most this many cores.
    Quota(f64),
}

/// Minimum number of CPUs of a container.
const LEAST_CPUS: usize = 2;
/// The shortest quota that the kernel accepts, microseconds.
const LEAST_QUOTA_USEC: u64 = 1_000;
const PERIOD_USEC: u64 = 100_000;

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
                let (quota, period) = match version {
                    CgroupVersion::V1 => (original.value.as_str(), v1_period?),
                    CgroupVersion::V2 => {
                        let (quota, period) = original.value.split_once(' ')?;
                        (quota, period.parse().unwrap_or(PERIOD_USEC))
                    }
                };
                let usec = ((cores * period as f64) as u64).max(LEAST_QUOTA_USEC);
                // `max` and `-1` are no numbers of u64: no quota.
                if quota.parse::<u64>().is_ok_and(|quota| quota <= usec) {
                    return None;
                }
                Some(match version {
                    CgroupVersion::V1 => usec.to_string(),
                    CgroupVersion::V2 => format!("{usec} {period}"),
                })
            }
        }
    }
}

pub(crate) fn v1_period(directory: &std::path::Path) -> Option<u64> {
    control::read(&directory.join("cpu.cfs_period_us")).ok()??.parse().ok()
}
