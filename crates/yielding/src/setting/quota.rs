//! The quota of a pod.

use kernel_text::CgroupVersion;
use state_dir::{Original, Written};

use super::{Access, Place, burst};
use crate::Result;

/// `cpu.max` (v2) and `cpu.cfs_quota_us` (v1), with the burst that depends on it.
pub(super) struct Quota;

impl Access for Quota {
    fn file(&self, version: CgroupVersion) -> &'static str {
        match version {
            CgroupVersion::V1 => "cpu.cfs_quota_us",
            CgroupVersion::V2 => "cpu.max",
        }
    }

    fn read(&self, place: &Place) -> Result<Option<Original>> {
        let Some(value) = place.read(self.file(place.version))? else { return Ok(None) };
        Ok(Some(Original { value, weight: None, burst: burst::read(place)? }))
    }

    /// Writes the quota and keeps the burst: it is lowered before a quota below it, and written
    /// again after the quota.
    fn write(&self, place: &Place, value: &str, was: &Written) -> Result<()> {
        let file = self.file(place.version);
        let Some(found) = burst::read(place)? else { return place.write(file, value) };
        let most = usec(value).unwrap_or(u64::MAX);
        if found > most {
            burst::write(place, most)?;
        }
        place.write(file, value)?;
        let kept = original_burst(was, found).unwrap_or(found).min(most);
        if burst::read(place)? == Some(kept) { Ok(()) } else { burst::write(place, kept) }
    }

    /// A burst that another program has set since the write is the original now.
    fn rebase(&self, was: &Written, found: Original, is_ours: bool, _: CgroupVersion) -> Original {
        let kept = found.burst.and_then(|burst| original_burst(was, burst));
        let value = if is_ours { was.original.value.clone() } else { found.value };
        Original { value, weight: None, burst: kept.or(found.burst) }
    }

    fn restore(&self, place: &Place, was: &Written, _all_cpus: &str) -> Result<()> {
        let Some(now) = self.read(place)? else { return Ok(()) };
        if self.is_ours(was, &now.value) {
            return self.write(place, &was.original.value, was);
        }
        // Another program wrote the quota: only the burst is left to restore.
        let Some(found) = now.burst else { return Ok(()) };
        let most = usec(&now.value).unwrap_or(u64::MAX);
        match original_burst(was, found).map(|burst| burst.min(most)) {
            Some(burst) if burst != found => burst::write(place, burst),
            _ => Ok(()),
        }
    }
}

/// The original burst next to a quota, microseconds, unless another program has written the burst
/// since: then `found` is neither the original one, nor what a written quota left of it.
fn original_burst(was: &Written, found: u64) -> Option<u64> {
    let original = was.original.burst?;
    let left = was.values().filter_map(|quota| Some(original.min(usec(quota)?)));
    let is = |usec: u64| usec == found || burst::is_divided(&found.to_string(), &usec.to_string());
    std::iter::once(original).chain(left).any(is).then_some(original)
}

/// The quota in the value of its file, microseconds; `None` for no quota.
fn usec(value: &str) -> Option<u64> {
    value.split(' ').next()?.parse().ok()
}

/// A quota and its period, both microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaValue {
    /// `None` for no quota.
    pub(crate) quota: Option<u64>,
    pub(crate) period: u64,
}

impl QuotaValue {
    /// Reads a cgroup's bandwidth; `None` if it cannot be read.
    pub(crate) fn read(place: &Place) -> Option<Self> {
        Self::parse(&place.read(Quota.file(place.version)).ok()??, place)
    }

    /// Parses the value of a cgroup's quota. On v1 the period is read, because it has its own file.
    pub(crate) fn parse(value: &str, place: &Place) -> Option<Self> {
        let (quota, period) = match place.version {
            CgroupVersion::V1 => (value, &*place.read("cpu.cfs_period_us").ok()??),
            CgroupVersion::V2 => value.split_once(' ')?,
        };
        // `max` and `-1` do not parse as u64: no quota.
        Some(Self { quota: quota.parse().ok(), period: period.parse().ok()? })
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
        let place = Place { directory: dir.path().to_owned(), version: CgroupVersion::V2 };
        assert!(Quota.write(&place, &was.wrote, &was).is_err());
        assert_eq!(fs::read_to_string(burst).unwrap(), "50000");
    }
}
