//! Throttling that the kernel counts at the pod alone.
//!
//! The kubelet gives a pod the sum of its containers' limits. The two quotas of a pod with one
//! container run out together, and the kernel may count a throttled period at the pod only.

use foldhash::HashMap;
use snapshot::{ContainerRow, NodeSnapshot};

/// Tolerance for equal limits, cores: quotas are whole microseconds.
const TOLERANCE: f64 = 0.005;

/// Pods with a quota, by (namespace, pod).
#[derive(Debug, Default)]
pub(crate) struct PodThrottles<'a>(HashMap<(&'a str, &'a str), Pod>);

#[derive(Debug)]
struct Pod {
    limit_cores: f64,
    throttled_periods: u64,
    containers: u32,
}

impl<'a> PodThrottles<'a> {
    pub(crate) fn of(latest: &'a NodeSnapshot) -> Self {
        let with_quota = latest.pods.iter().filter_map(|row| {
            let name = (&*row.identity.namespace, &*row.identity.pod);
            let throttled_periods = row.cfs.throttled_periods;
            let limit_cores = row.cpu_limit.cores()?;
            Some((name, Pod { limit_cores, throttled_periods, containers: 0 }))
        });
        let mut pods: HashMap<_, _> = with_quota.collect();
        for row in latest.containers.iter().filter(|row| row.live) {
            if let Some(pod) = pods.get_mut(&name(row)) {
                pod.containers += 1;
            }
        }
        Self(pods)
    }

    /// Counter of the pod's throttled periods, if they are those of this container.
    pub(crate) fn counter(&self, row: &ContainerRow) -> Option<u64> {
        let pod = self.0.get(&name(row)).filter(|pod| pod.containers == 1)?;
        let is_same = (pod.limit_cores - row.own_limit_cores()?).abs() <= TOLERANCE;
        is_same.then_some(pod.throttled_periods)
    }
}

fn name(row: &ContainerRow) -> (&str, &str) {
    (&row.identity.namespace, &row.identity.pod)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use snapshot::{
        Bandwidth, CfsTotals, ContainerIdentity, CpuLimit, Limit, PodIdentity, PodRow, Quota,
    };

    use super::*;

    fn container(pod: &str, quota_usec: u64) -> ContainerRow {
        let identity = ContainerIdentity { pod: pod.into(), ..ContainerIdentity::default() };
        ContainerRow {
            identity: Arc::new(identity),
            live: true,
            bandwidth: Some(Bandwidth { quota: Quota::Usec(quota_usec), period_usec: 100_000 }),
            ..ContainerRow::default()
        }
    }

    fn pod(name: &str) -> PodRow {
        PodRow {
            identity: Arc::new(PodIdentity::new(String::new(), name.into())),
            cfs: CfsTotals { throttled_periods: 3, ..CfsTotals::default() },
            cpu_limit: Limit::Limited(CpuLimit { cores: 0.2, period_usec: 100_000 }),
            ..PodRow::default()
        }
    }

    #[test]
    fn the_pods_counter_is_that_of_its_only_container_with_the_same_limit() {
        let latest = NodeSnapshot {
            pods: ["one", "two", "lower"].map(pod).into(),
            containers: vec![
                container("one", 20_000),
                container("two", 20_000),
                container("two", 10_000),
                container("lower", 40_000),
                container("without", 20_000),
            ],
            ..NodeSnapshot::default()
        };
        let pods = PodThrottles::of(&latest);
        let found: Vec<_> = latest.containers.iter().map(|row| pods.counter(row)).collect();
        assert_eq!(found, [Some(3), None, None, None, None]);
    }
}
