//! The values that bursts require.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::rules::burst_usec;
use state_dir::Setting;

use crate::config::ActorConfig;
use crate::setting::Place;
use crate::setting::quota::QuotaValue;
use crate::want::Want;
use crate::writer::RequiredValues;

use super::member::{Member, quota_usec};

/// Sums of a pod's containers, as shares of a period.
#[derive(Default)]
struct PodSum {
    burst: f64,
    /// The pod-level limit of the spec, millicores.
    limit_millis: Option<u64>,
    uid: Box<str>,
}

/// The values to write.
pub(super) struct Values<'a> {
    config: &'a ActorConfig,
    /// Maximum burst, percent of the quota.
    most_percent: u64,
    wanted: RequiredValues,
    pods: BTreeMap<PathBuf, PodSum>,
}

impl<'a> Values<'a> {
    /// No values yet. `most_percent` is the maximum burst, percent of the quota.
    pub(super) fn new(config: &'a ActorConfig, most_percent: u64) -> Self {
        let (wanted, pods) = (RequiredValues::new(), BTreeMap::new());
        Self { config, most_percent, wanted, pods }
    }

    /// Adds a container's burst: below its quota, below the one that the spec requires, and below
    /// the one that the runtime is about to write, so that the quota can be lowered. Returns the
    /// burst, microseconds; `None` if there is no quota.
    pub(super) fn burst(&mut self, member: &Member<'_>, percent: u64) -> Option<u64> {
        let path = PathBuf::from(member.row.cgroup.as_deref()?);
        let QuotaValue { quota, period } = self.quota(&path)?;
        let id = &member.row.identity.container_id;
        let quota = self.config.resizes.lowest(id, quota?)?;
        let quota = quota.min(member.desired_usec(period).unwrap_or(u64::MAX));
        let usec = burst_usec(Some(quota), percent);
        let pod = self.pods.entry(path.parent()?.to_owned()).or_default();
        pod.burst += usec as f64 / period as f64;
        pod.limit_millis = member.pod.resources.cpu_limit_millis;
        pod.uid.clone_from(&member.pod.uid);
        self.wanted.insert((path, Setting::Burst), Want::Exactly(usec.to_string()));
        Some(usec)
    }

    /// The bandwidth of a cgroup; `None` if it cannot be read.
    fn quota(&self, path: &Path) -> Option<QuotaValue> {
        let key = (path.to_owned(), Setting::Quota);
        QuotaValue::read(&Place::of(&self.config.hierarchy, &key)?)
    }

    /// Adds the pods' values: what their containers may use more, the pod must be allowed to.
    pub(super) fn finish(mut self) -> RequiredValues {
        for (path, sum) in std::mem::take(&mut self.pods) {
            let Some(QuotaValue { quota, period }) = self.quota(&path) else { continue };
            let Some(quota) = quota else { continue };
            let desired = sum.limit_millis.map(|millis| quota_usec(millis, period));
            let lowest = self.config.resizes.lowest(&sum.uid, quota);
            let lowest = lowest.map(|lowest| lowest.min(desired.unwrap_or(lowest)));
            let burst = (sum.burst * period as f64).round() as u64;
            let burst = burst.min(burst_usec(lowest, self.most_percent));
            if burst > 0 {
                let burst = Want::Exactly(burst.to_string());
                self.wanted.insert((path, Setting::Burst), burst);
            }
        }
        self.wanted
    }
}
