//! Throttling that the kernel counts at the pod alone.
//!
//! The kubelet gives a pod the sum of its containers' limits. The two quotas of a pod with one
//! container run out together, and the kernel may count a throttled period at the pod only.

use snapshot::{ContainerRow, NodeSnapshot};

use crate::pods::PodNumbers;

/// Tolerance for equal limits, cores: quotas are whole microseconds.
const TOLERANCE: f64 = 0.005;

/// The pods of a window, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct PodThrottles(Vec<Pod>);

#[derive(Debug, Clone, Copy, Default)]
struct Pod {
    /// Limit and counter of its own quota, if it has one.
    quota: Option<(f64, u64)>,
    /// Number of live containers.
    containers: u32,
}

impl PodThrottles {
    /// Reads the quotas of the pods.
    pub(crate) fn follow(&mut self, latest: &NodeSnapshot, numbers: &PodNumbers) {
        self.0.clear();
        self.0.resize(numbers.count(), Pod::default());
        for (at, row) in latest.pods.iter().enumerate() {
            if let Some(number) = numbers.with_quota(at) {
                let limit_cores = row.cpu_limit.cores();
                self.0[number].quota = limit_cores.map(|cores| (cores, row.cfs.throttled_periods));
            }
        }
        for (at, _) in latest.containers.iter().enumerate().filter(|(_, row)| row.live) {
            self.0[numbers.of_container(at)].containers += 1;
        }
    }

    /// Counter of the throttled periods of the pod with this number, if they are those of this
    /// container.
    pub(crate) fn counter(&self, row: &ContainerRow, number: usize) -> Option<u64> {
        let pod = self.0.get(number).filter(|pod| pod.containers == 1)?;
        let (limit_cores, throttled_periods) = pod.quota?;
        let is_same = (limit_cores - row.own_limit_cores()?).abs() <= TOLERANCE;
        is_same.then_some(throttled_periods)
    }
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
        let (mut numbers, mut pods) = (PodNumbers::default(), PodThrottles::default());
        numbers.renumber(&latest.containers);
        numbers.follow(&latest);
        pods.follow(&latest, &numbers);
        let rows = latest.containers.iter().enumerate();
        let found: Vec<_> =
            rows.map(|(at, row)| pods.counter(row, numbers.of_container(at))).collect();
        assert_eq!(found, [Some(3), None, None, None, None]);
    }
}
