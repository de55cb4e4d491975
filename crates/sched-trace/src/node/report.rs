//! Results of a poll, under the names of the series.

use std::sync::{Arc, LazyLock};

use snapshot::{
    ContainerIdentity, ContainerWaits, Culprit, FeatureState, InterferenceRow, LostTime, NodeWaits,
    TraceMode, TraceRow,
};

use super::FEATURE;
use super::owners::NodeOwners;
use crate::waits::{Aggressor, ContainerId, LostTo, PodId, TracedLoss, WaitReport};

/// Namespaces of the aggressors that are no pod, and their name.
static NAMES_OF_NO_POD: LazyLock<[Arc<str>; 3]> =
    LazyLock::new(|| ["system", "other", ""].map(Into::into));

pub(crate) fn waits(found: &WaitReport, owners: &NodeOwners) -> NodeWaits {
    NodeWaits {
        containers: containers(found, owners),
        interference: found
            .interference
            .iter()
            .filter_map(|&(pair, wait_ns)| interference(pair, wait_ns, owners))
            .collect(),
        // Added by the caller, which knows the times of the polls.
        lost: Vec::new(),
        pressure: Vec::new(),
        trace: Some(TraceRow {
            mode: found.mode,
            run_ns: found.run_ns,
            switches: found.switches,
            losses: found.losses,
        }),
        feature: Some(feature(found.mode)),
    }
}

/// Waits of each container of the last snapshot.
fn containers(
    found: &WaitReport,
    owners: &NodeOwners,
) -> Vec<(Arc<ContainerIdentity>, Option<Arc<ContainerWaits>>)> {
    let row = |(identity, container): &(Arc<ContainerIdentity>, ContainerId)| {
        (Arc::clone(identity), found.waits(*container).cloned())
    };
    owners.rows().iter().map(row).collect()
}

fn interference(
    (victim, aggressor): (PodId, Aggressor),
    wait_ns: u64,
    owners: &NodeOwners,
) -> Option<InterferenceRow> {
    let [system, other, no_name] = &*NAMES_OF_NO_POD;
    let (aggressor_namespace, aggressor_pod) = match aggressor {
        Aggressor::Pod(pod) => {
            let names = owners.named(pod)?;
            (&names.namespace, &names.pod)
        }
        Aggressor::System => (system, no_name),
        Aggressor::Other => (other, no_name),
    };
    Some(InterferenceRow {
        victim: Arc::clone(owners.identity(victim)?),
        aggressor_namespace: Arc::clone(aggressor_namespace),
        aggressor_pod: Arc::clone(aggressor_pod),
        wait_ns,
    })
}

/// Lost time since the last poll, by victim.
pub(crate) fn lost(found: &WaitReport, owners: &NodeOwners) -> Vec<LostTime> {
    found.lost.iter().filter_map(|traced| lost_time(traced, owners)).collect()
}

fn lost_time(traced: &TracedLoss, owners: &NodeOwners) -> Option<LostTime> {
    let by = traced.by.iter().filter_map(|part| {
        let culprit = match part.to {
            LostTo::Pod(pod) => Culprit::Pod(Arc::clone(owners.name(pod)?)),
            LostTo::System => Culprit::System,
            LostTo::Unattributed => Culprit::Unattributed,
        };
        Some((culprit, part.ns))
    });
    Some(LostTime {
        victim: Arc::clone(owners.identity(traced.victim)?),
        by: by.collect(),
        wakeups: traced.wakeups,
        late_wakeups: traced.late_wakeups,
    })
}

/// In force; with a reason if the values are estimates.
fn feature(mode: TraceMode) -> FeatureState {
    let reason = match mode {
        TraceMode::Continuous => "",
        TraceMode::Bursts { .. } => {
            "estimates: the trace samples in bursts to stay within --sched-trace-budget"
        }
        TraceMode::Detached => "over_budget: even bursts would exceed --sched-trace-budget",
    };
    FeatureState {
        feature: FEATURE,
        enabled: mode != TraceMode::Detached,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use crate::waits::LostPart;
    use cgroup_tree::PathIndex;
    use snapshot::{ContainerIdentity, ContainerRow, NodeSnapshot};

    use super::*;

    /// The pods `shop/cart` and `batch/encode`, with one container each.
    fn owners() -> NodeOwners {
        let row = |namespace: &str, pod: &str| ContainerRow {
            identity: identity(namespace, pod),
            ..ContainerRow::default()
        };
        let containers = vec![row("shop", "cart"), row("batch", "encode")];
        let mut owners = NodeOwners::new(PathIndex::new("/nowhere", None));
        owners.refresh(&NodeSnapshot { containers, ..NodeSnapshot::default() }, Instant::now());
        owners
    }

    fn identity(namespace: &str, pod: &str) -> Arc<ContainerIdentity> {
        let (labels, namespace, pod) = (pod.into(), namespace.to_owned(), pod.to_owned());
        Arc::new(ContainerIdentity { labels, namespace, pod, ..ContainerIdentity::default() })
    }

    fn pod(owners: &NodeOwners, name: &str) -> PodId {
        let named = (1..10)
            .map(PodId)
            .find(|&pod| owners.identity(pod).is_some_and(|identity| identity.pod == name));
        named.unwrap()
    }

    #[test]
    fn aggressors_have_their_own_names() {
        let owners = owners();
        let names = |aggressor| {
            interference((pod(&owners, "cart"), aggressor), 5, &owners).map(|row| {
                (
                    row.victim.pod.clone(),
                    row.aggressor_namespace.to_string(),
                    row.aggressor_pod.to_string(),
                )
            })
        };
        let of_cart = |namespace: &str, pod: &str| {
            Some(("cart".to_owned(), namespace.to_owned(), pod.to_owned()))
        };
        assert_eq!(names(Aggressor::Pod(pod(&owners, "encode"))), of_cart("batch", "encode"));
        assert_eq!(names(Aggressor::System), of_cart("system", ""));
        assert_eq!(names(Aggressor::Other), of_cart("other", ""));
        assert_eq!(names(Aggressor::Pod(PodId(99))), None, "a pod that is gone");
    }

    #[test]
    fn lost_time_names_culprits_that_are_gone_and_no_such_victims() {
        let mut owners = owners();
        let [cart, encode] = ["cart", "encode"].map(|name| pod(&owners, name));
        let cart_only =
            vec![ContainerRow { identity: identity("shop", "cart"), ..ContainerRow::default() }];
        let snapshot = NodeSnapshot { containers: cart_only, ..NodeSnapshot::default() };
        owners.refresh(&snapshot, Instant::now());
        let part = |(to, ns)| LostPart { to, ns, late_ns: 0 };
        let by = [
            (LostTo::Pod(encode), 30),
            (LostTo::Pod(PodId(99)), 7),
            (LostTo::System, 20),
            (LostTo::Unattributed, 10),
        ];
        let by = by.map(part).to_vec();
        let loss = |victim| TracedLoss { victim, by: by.clone(), wakeups: 5, late_wakeups: 2 };
        let found = WaitReport { lost: vec![loss(cart), loss(encode)], ..WaitReport::empty() };
        let published = lost(&found, &owners);
        let [row] = &published[..] else { panic!("{published:?}") };
        assert_eq!((&*row.victim.pod, row.wakeups, row.late_wakeups), ("cart", 5, 2));
        let by: Vec<_> = row.by.iter().map(|(culprit, ns)| (named(culprit), *ns)).collect();
        assert_eq!(by, [("encode", 30), ("system", 20), ("unattributed", 10)]);
        for _ in 0..10 {
            owners.refresh(&snapshot, Instant::now());
        }
        assert_eq!(lost_time(&loss(cart), &owners).unwrap().by.len(), 2, "names are forgotten");
    }

    fn named(culprit: &Culprit) -> &str {
        match culprit {
            Culprit::Pod(pod) => &pod.pod,
            Culprit::System => "system",
            Culprit::Unattributed => "unattributed",
        }
    }

    #[test]
    fn estimates_and_a_detached_program_are_reported() {
        let state = |mode| (feature(mode).enabled, feature(mode).reason);
        assert_eq!(state(TraceMode::Continuous), (true, String::new()));
        let (enabled, reason) = state(TraceMode::Bursts { one_of: 3 });
        assert!(enabled && reason.contains("estimates"), "{reason}");
        let (enabled, reason) = state(TraceMode::Detached);
        assert!(!enabled && reason.contains("--sched-trace-budget"), "{reason}");
    }
}
