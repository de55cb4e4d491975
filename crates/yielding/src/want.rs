//! Values that a restriction requires, from the original values.

use kernel_text::CpuSet;
use state_dir::Original;

use crate::setting::Place;
use crate::setting::quota::QuotaValue;

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
    /// The value to write over the original of a cgroup; `None` if the original is at least as
    /// strict.
    pub(crate) fn value(&self, original: &Original, place: &Place) -> Option<String> {
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
                let now = QuotaValue::parse(&original.value, place)?;
                let usec = ((cores * now.period as f64) as u64).max(MIN_QUOTA_USEC);
                let is_looser = now.quota.is_none_or(|quota| quota > usec);
                is_looser.then(|| QuotaValue { quota: Some(usec), ..now }.value(place.version))
            }
            Self::Exactly(value) => Some(value.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use kernel_text::CgroupVersion;

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
            let place = Place { directory: PathBuf::new(), version: CgroupVersion::V2 };
            let value = want.value(&of, &place);
            assert_eq!(value.as_deref(), expected, "{original} of {kept}, floor {floor}");
        }
    }
}
