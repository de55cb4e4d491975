//! Values that a restriction requires, from the original values.

use cgroupfs::control;
use kernel_text::{CgroupVersion, CpuSet};

use crate::setting::{Original, QuotaSetting};

/// Requirement on a setting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Want {
    Idle,
    /// At most the CPUs to keep, but not less than the floor.
    Cpus {
        kept: CpuSet,
        /// CPUs of a container with an empty cpuset.
        online: CpuSet,
        /// Minimum number of CPUs of a container.
        floor: usize,
    },
    /// At most this many cores.
    Quota(f64),
    /// This value.
    Exactly(String),
}

/// The shortest quota that the kernel accepts, microseconds.
pub(crate) const MIN_QUOTA_USEC: u64 = 1_000;

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
            Self::Cpus { kept, online, floor } => {
                let configured: CpuSet = original.value.parse().ok()?;
                let now = if configured.is_empty() { online.clone() } else { configured };
                let left = now.intersection(kept);
                // A container that was confined before may share few CPUs with the ones to keep.
                let missing = floor.saturating_sub(left.len());
                let others = now.difference(kept);
                let left: CpuSet = left.iter().chain(others.iter().take(missing)).collect();
                (left != now).then(|| left.to_string())
            }
            Self::Quota(cores) => {
                let now = QuotaSetting::parse(&original.value, version, v1_period)?;
                let usec = ((cores * now.period as f64) as u64).max(MIN_QUOTA_USEC);
                let is_looser = now.quota.is_none_or(|quota| quota > usec);
                is_looser.then(|| QuotaSetting { quota: Some(usec), ..now }.value(version))
            }
            Self::Exactly(value) => Some(value.clone()),
        }
    }
}

pub(crate) fn v1_period(directory: &std::path::Path) -> Option<u64> {
    control::read(&directory.join("cpu.cfs_period_us")).ok()??.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_keeps_the_floor_of_its_own_cpus() {
        for (original, kept, floor, expected) in [
            ("0-7", "4-7", 4, Some("4-7")),
            ("", "4-7", 4, Some("4-7")),
            ("0-5", "4-7", 4, Some("0-1,4-5")),
            ("0-5", "4-7", 2, Some("4-5")),
            ("0-2", "4-7", 2, Some("0-1")),
            ("0-2", "4-7", 4, None),
            ("4-6", "4-7", 2, None),
            ("0-7", "", 2, Some("0-1")),
        ] {
            let set = |text: &str| text.parse::<CpuSet>().unwrap();
            let want = Want::Cpus { kept: set(kept), online: set("0-7"), floor };
            let of = Original { value: original.to_owned(), ..Original::default() };
            let value = want.value(&of, CgroupVersion::V2, None);
            assert_eq!(value.as_deref(), expected, "{original} of {kept}, floor {floor}");
        }
    }
}
