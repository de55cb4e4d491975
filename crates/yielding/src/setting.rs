//! The settings of a cgroup that are written, and how each is written and restored.

use std::path::Path;

use cgroupfs::{Hierarchy, control};
use kernel_text::CgroupVersion;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::checkpoint::Written;

/// A setting of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `cpu.idle` of a pod.
    Idle,
    /// `cpuset.cpus` of a container.
    Cpus,
    /// Quota of a best-effort pod. Checkpoints of older agents may contain quotas above the limits
    /// of other pods, which are only restored.
    #[serde(alias = "scaled_quota")]
    Quota,
    /// `cpu.max.burst` of a pod or container.
    Burst,
}

/// A feature of this crate. Each has its own mode; they share the checkpoint and the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Best-effort pods that yield.
    BestEffort,
    /// CPU limits that burst.
    Burst,
}

impl Feature {
    /// The option that turns it on.
    pub(crate) const fn option(self) -> &'static str {
        match self {
            Self::BestEffort => "--best-effort",
            Self::Burst => "--burst",
        }
    }
}

impl Kind {
    /// The feature that writes the setting.
    #[must_use]
    pub const fn feature(self) -> Feature {
        match self {
            Self::Idle | Self::Cpus | Self::Quota => Feature::BestEffort,
            Self::Burst => Feature::Burst,
        }
    }

    /// Label value in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Cpus => "cpus",
            Self::Quota => "quota",
            Self::Burst => "burst",
        }
    }

    pub(crate) const fn file(self, version: CgroupVersion) -> &'static str {
        match (self, version) {
            (Self::Idle, _) => "cpu.idle",
            (Self::Cpus, _) => cgroupfs::cpuset::CPUS,
            (Self::Quota, CgroupVersion::V1) => "cpu.cfs_quota_us",
            (Self::Quota, CgroupVersion::V2) => "cpu.max",
            (Self::Burst, CgroupVersion::V1) => "cpu.cfs_burst_us",
            (Self::Burst, CgroupVersion::V2) => "cpu.max.burst",
        }
    }

    /// Whether the kernel has the setting, by the cgroups below the mount: the root of cgroup v2 has
    /// no settings.
    pub(crate) fn is_available(self, hierarchy: &Hierarchy) -> bool {
        let file = self.file(hierarchy.version);
        let has = |directory: &Path| directory.join(file).exists();
        let children = cgroupfs::subdirectories(&hierarchy.cpu).unwrap_or_default();
        has(&hierarchy.cpu) || children.iter().any(|child| has(&hierarchy.cpu.join(&child.name)))
    }
}

/// The value of [`Kind::Burst`] that every quota allows.
pub(crate) const NO_BURST: &str = "0";

/// A quota and its period, both microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaSetting {
    /// `None` for no quota.
    pub(crate) quota: Option<u64>,
    pub(crate) period: u64,
}

impl QuotaSetting {
    /// Reads a cgroup's bandwidth; `None` if it cannot be read.
    pub(crate) fn read(directory: &Path, version: CgroupVersion) -> Option<Self> {
        let text = |file: &str| control::read(&directory.join(file)).ok()?;
        match version {
            CgroupVersion::V1 => Self::parse(
                &text("cpu.cfs_quota_us")?,
                version,
                text("cpu.cfs_period_us")?.parse().ok(),
            ),
            CgroupVersion::V2 => Self::parse(&text("cpu.max")?, version, None),
        }
    }

    /// Parses the value of a quota; on v1 it needs the period.
    pub(crate) fn parse(value: &str, version: CgroupVersion, period: Option<u64>) -> Option<Self> {
        let (quota, period) = match version {
            CgroupVersion::V1 => (value, period?),
            CgroupVersion::V2 => {
                let (quota, period) = value.split_once(' ')?;
                (quota, period.parse().ok()?)
            }
        };
        // `max` and `-1` do not parse as u64: no quota.
        Some(Self { quota: quota.parse().ok(), period })
    }

    /// The value of the quota's file.
    pub(crate) fn value(self, version: CgroupVersion) -> String {
        match (self.quota, version) {
            (Some(quota), CgroupVersion::V1) => quota.to_string(),
            (None, CgroupVersion::V1) => "-1".to_owned(),
            (Some(quota), CgroupVersion::V2) => format!("{quota} {}", self.period),
            (None, CgroupVersion::V2) => format!("max {}", self.period),
        }
    }
}

/// File of a cgroup's weight.
const fn weight_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "cpu.shares",
        CgroupVersion::V2 => "cpu.weight",
    }
}

/// A value before the first write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Original {
    /// The setting's own value.
    pub(crate) value: String,
    /// The weight, for [`Kind::Idle`]: the kernel replaces it when `cpu.idle` changes in either
    /// direction (`sched_group_set_idle` in kernel/sched/fair.c).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<String>,
    /// The burst of another program, microseconds, for a quota: kernels before 6.10 divide it at
    /// each write of the quota, and all reject a quota below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) burst: Option<u64>,
}

/// Reads the current value of a setting; `None` if the kernel does not have it.
pub(crate) fn read(
    directory: &Path,
    kind: Kind,
    version: CgroupVersion,
) -> Result<Option<Original>> {
    let Some(value) = control::read(&directory.join(kind.file(version)))? else { return Ok(None) };
    let (weight, burst) = match kind {
        Kind::Idle => (control::read(&directory.join(weight_file(version)))?, None),
        Kind::Quota => (None, read_burst(directory, version)?),
        Kind::Cpus | Kind::Burst => (None, None),
    };
    Ok(Some(Original { value, weight, burst }))
}

/// Reads a burst, microseconds; `None` without one.
fn read_burst(directory: &Path, version: CgroupVersion) -> Result<Option<u64>> {
    let text = control::read(&directory.join(Kind::Burst.file(version)))?;
    Ok(text.and_then(|text| text.parse().ok()).filter(|&usec| usec > 0))
}

/// Writes a setting.
pub(crate) fn write(
    directory: &Path,
    kind: Kind,
    version: CgroupVersion,
    value: &str,
) -> Result<()> {
    Ok(control::write(&directory.join(kind.file(version)), value)?)
}

/// Writes a quota of a checkpoint, and keeps the burst: it is lowered before a quota below it, and
/// written again after the quota.
pub(crate) fn write_quota(
    directory: &Path,
    kind: Kind,
    version: CgroupVersion,
    value: &str,
    was: &Written,
) -> Result<()> {
    let Some(found) = read_burst(directory, version)? else {
        return write(directory, kind, version, value);
    };
    let most = quota_usec(value).unwrap_or(u64::MAX);
    let write_burst = |usec: u64| write(directory, Kind::Burst, version, &usec.to_string());
    if found > most {
        write_burst(most)?;
    }
    write(directory, kind, version, value)?;
    let burst = was.burst(found).unwrap_or(found).min(most);
    match read_burst(directory, version)? == Some(burst) {
        true => Ok(()),
        false => write_burst(burst),
    }
}

/// The quota in the value of its file, microseconds; `None` for no quota.
pub(crate) fn quota_usec(value: &str) -> Option<u64> {
    value.split(' ').next()?.parse().ok()
}

/// Restores a setting unless somebody else has written it since. `all_cpus` replaces an empty
/// cpuset where the kernel refuses to empty it.
pub(crate) fn restore(
    directory: &Path,
    kind: Kind,
    version: CgroupVersion,
    was: &Written,
    all_cpus: &str,
) -> Result<()> {
    let original = &was.original;
    let Some(now) = read(directory, kind, version)? else { return Ok(()) };
    if kind == Kind::Idle {
        return restore_idle(directory, version, original, &now);
    }
    if !was.may_be_ours(kind, &now.value) {
        // If another program wrote the quota, only the burst is left to restore.
        return match now.burst.and_then(|found| Some((found, was.burst(found)?))) {
            Some((found, burst)) => {
                let burst = burst.min(quota_usec(&now.value).unwrap_or(u64::MAX));
                match burst == found {
                    true => Ok(()),
                    false => write(directory, Kind::Burst, version, &burst.to_string()),
                }
            }
            None => Ok(()),
        };
    }
    if kind == Kind::Quota {
        return write_quota(directory, kind, version, &original.value, was);
    }
    if kind == Kind::Burst {
        return match write(directory, kind, version, &original.value) {
            // The quota has shrunk below the original burst.
            Err(error) if error.is_rejected() => write(directory, kind, version, NO_BURST),
            written => written,
        };
    }
    if kind == Kind::Cpus && original.value.is_empty() {
        // ENOSPC on most kernels while the cgroup has processes.
        return match write(directory, kind, version, "\n") {
            Ok(()) => Ok(()),
            Err(error) if error.is_vanished() => Err(error),
            Err(_) => write(directory, kind, version, all_cpus),
        };
    }
    write(directory, kind, version, &original.value)
}

/// Returns the value to restore after another program has written the setting: the written one. The
/// weight that the kernel itself sets with `cpu.idle` was not written, so the older one stays.
pub(crate) fn rebase(original: &Original, found: Original, version: CgroupVersion) -> Original {
    let is_default = found.weight.as_deref() == Some(default_weight(version));
    let weight = if is_default { original.weight.clone() } else { found.weight };
    Original { value: found.value, weight, burst: found.burst }
}

/// The weight that the kernel sets when `cpu.idle` is cleared.
const fn default_weight(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "1024",
        CgroupVersion::V2 => "100",
    }
}

/// Clears `cpu.idle`, then restores the weight. A crash in between leaves the kernel's default
/// weight, which the next restore replaces; any other weight was written by somebody else.
fn restore_idle(
    directory: &Path,
    version: CgroupVersion,
    original: &Original,
    now: &Original,
) -> Result<()> {
    let was_idle = now.value == "1";
    if was_idle && original.value != "1" {
        write(directory, Kind::Idle, version, "0")?;
    }
    match &original.weight {
        Some(weight) if was_idle || now.weight.as_deref() == Some(default_weight(version)) => {
            Ok(control::write(&directory.join(weight_file(version)), weight)?)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::hierarchy;

    #[test]
    fn a_setting_is_available_if_a_cgroup_below_the_mount_has_it() {
        for (version, burst) in
            [(CgroupVersion::V1, "cpu.cfs_burst_us"), (CgroupVersion::V2, "cpu.max.burst")]
        {
            let dir = tempfile::tempdir().unwrap();
            let hierarchy = hierarchy(version, dir.path());
            let available = || [Kind::Idle, Kind::Burst].map(|kind| kind.is_available(&hierarchy));
            fs::create_dir_all(dir.path().join("kubepods/burstable")).unwrap();
            for (directory, file, expected) in [
                ("kubepods", "cpu.max", [false, false]),
                ("kubepods/burstable", burst, [false, false]),
                ("kubepods", "cpu.idle", [true, false]),
                ("kubepods", burst, [true, true]),
            ] {
                fs::write(dir.path().join(directory).join(file), "").unwrap();
                assert_eq!(available(), expected, "{directory}/{file}");
            }
        }
    }

    /// A file of /proc stands for the quota: it rejects the value.
    #[test]
    fn a_burst_is_lowered_before_the_quota_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let burst = dir.path().join("cpu.max.burst");
        fs::write(&burst, "90000").unwrap();
        let file = dir.path().join("cpu.max");
        std::os::unix::fs::symlink("/proc/self/oom_score_adj", file).unwrap();
        let was = Written {
            namespace: String::new(),
            pod: String::new(),
            inode: 0,
            original: Original { burst: Some(90_000), ..Original::default() },
            wrote: "50000 100000".to_owned(),
            replaces: None,
        };
        let version = CgroupVersion::V2;
        assert!(write_quota(dir.path(), Kind::Quota, version, &was.wrote, &was).is_err());
        assert_eq!(fs::read_to_string(burst).unwrap(), "50000");
    }
}
