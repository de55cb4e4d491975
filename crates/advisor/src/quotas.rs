//! The quotas of pods' cgroups, with the advice for their containers.

use std::collections::HashMap;

use analysis::{Member, PodQuota};
use snapshot::{ContainerRow, PodRow};

/// Quotas by (namespace, pod).
pub(crate) type Quotas<'a> = HashMap<(&'a str, &'a str), PodQuota>;

/// The current quota of every pod that has one, together with its containers.
pub(crate) fn quotas<'a>(
    pods: &'a [PodRow],
    containers: impl Iterator<Item = (&'a ContainerRow, Member)>,
) -> Quotas<'a> {
    let mut members: HashMap<_, Vec<Member>> = HashMap::new();
    for (row, member) in containers {
        members.entry((&*row.identity.namespace, &*row.identity.pod)).or_default().push(member);
    }
    let quotas = pods.iter().filter_map(|pod| {
        let name = (&*pod.identity.namespace, &*pod.identity.pod);
        let throttles = pod.cfs.throttled_periods > 0;
        let quota = PodQuota::of(pod.cpu_limit.cores()?, throttles, members.get(&name)?);
        Some((name, quota))
    });
    quotas.collect()
}
