//! Quotas that cpuwarden keeps above CPU limits.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Quotas above CPU limits, by the cgroup's path below the mount of the cpu controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScaledQuotas(pub HashMap<PathBuf, ScaledQuota>);

/// The scaled quota of one container or pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaledQuota {
    /// Quota by the limit, microseconds.
    pub limit_usec: u64,
    /// Quotas that a reading may find, microseconds: the latest, and the one that it replaces.
    pub quotas_usec: Vec<u64>,
}

impl ScaledQuotas {
    /// Quota by the limit, microseconds, of a cgroup with this quota; `None` if the quota is not a
    /// scaled one.
    #[must_use]
    pub fn limit_usec(&self, cgroup: &str, quota_usec: u64) -> Option<u64> {
        let scaled = self.0.get(Path::new(cgroup))?;
        scaled.quotas_usec.contains(&quota_usec).then_some(scaled.limit_usec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_quotas_that_were_written_stand_for_the_limit() {
        let scaled = ScaledQuota { limit_usec: 20_000, quotas_usec: vec![24_000, 28_800] };
        let scaled = ScaledQuotas(HashMap::from([("pod/app".into(), scaled)]));
        let limits = [24_000, 28_800, 40_000].map(|quota| scaled.limit_usec("pod/app", quota));
        assert_eq!(limits, [Some(20_000), Some(20_000), None], "the last is another program's");
        assert_eq!(scaled.limit_usec("pod", 24_000), None);
    }
}
