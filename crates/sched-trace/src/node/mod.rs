//! Waits of a node: the program's counts under the names of the snapshot's series.

mod owners;
mod pressure;
mod report;

use std::collections::HashMap;
use std::time::Instant;

use cgroup_tree::PathIndex;
use snapshot::{FeatureState, NodeSnapshot, NodeWaits};

use crate::trace::SchedTrace;
use crate::waits::{ContainerId, Owners, RunDelay, WaitReport};
use owners::NodeOwners;
use pressure::PressureMeter;

/// Name of the feature in `cpuwarden_feature_enabled`.
const FEATURE: &str = "sched_trace";

/// A program that counts waits, once it is loaded.
pub trait Program {
    /// As [`SchedTrace::poll`].
    fn poll(&mut self, now: Instant, owners: &mut dyn Owners, delays: &[RunDelay]) -> &WaitReport;
}

impl Program for SchedTrace {
    fn poll(&mut self, now: Instant, owners: &mut dyn Owners, delays: &[RunDelay]) -> &WaitReport {
        Self::poll(self, now, owners, delays)
    }
}

/// The trace of one node.
#[derive(Debug)]
pub struct NodeTrace<P> {
    program: P,
    owners: NodeOwners,
    delays: Delays,
    pressure: PressureMeter,
}

impl<P: Program> NodeTrace<P> {
    /// `index`: paths of the hierarchy with the cpu controller.
    pub fn new(program: P, index: PathIndex) -> Self {
        Self {
            program,
            owners: NodeOwners::new(index),
            delays: Delays::default(),
            pressure: PressureMeter::default(),
        }
    }

    /// Polls the program and joins its counts with the cgroups of the latest snapshot.
    pub fn poll(&mut self, now: Instant, snapshot: &NodeSnapshot) -> NodeWaits {
        self.owners.refresh(snapshot, now);
        let delays = self.delays.gained(snapshot, &self.owners);
        let found = self.program.poll(now, &mut self.owners, &delays);
        let mut waits = report::waits(found, &self.owners);
        waits.pressure = self.pressure.read(now, &waits, snapshot);
        waits
    }
}

/// State to publish while nothing is traced, with the reason.
#[must_use]
pub fn not_in_force(reason: String) -> NodeWaits {
    let feature = FeatureState { feature: FEATURE, enabled: false, reason };
    NodeWaits { feature: Some(feature), ..NodeWaits::default() }
}

/// The containers' run delays at the last call.
#[derive(Debug, Default)]
struct Delays {
    last: HashMap<ContainerId, u64>,
}

impl Delays {
    /// Deltas of the run delays since the last call. The sampler reads a container's threads about
    /// every ten seconds. An unchanged delay has not been read again, or the threads did not wait.
    fn gained(&mut self, snapshot: &NodeSnapshot, owners: &NodeOwners) -> Vec<RunDelay> {
        self.last.retain(|&container, _| owners.is_container(container));
        let delays = snapshot.containers.iter().filter_map(|row| {
            let (container, delay_ns) =
                (owners.container_id(&row.identity.labels)?, row.run_delay_ns?);
            let gained_ns = match self.last.insert(container, delay_ns) {
                Some(last) => delay_ns.saturating_sub(last),
                None => return Some(RunDelay { container, gained_ns: 0 }),
            };
            (gained_ns > 0).then_some(RunDelay { container, gained_ns })
        });
        delays.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use snapshot::{ContainerIdentity, ContainerRow};

    use super::*;

    fn snapshot(run_delay_ns: Option<u64>) -> NodeSnapshot {
        let identity =
            Arc::new(ContainerIdentity { labels: "c".into(), ..ContainerIdentity::default() });
        let containers = vec![ContainerRow { identity, run_delay_ns, ..ContainerRow::default() }];
        NodeSnapshot { containers, ..NodeSnapshot::default() }
    }

    #[test]
    fn only_a_delay_that_was_read_twice_is_reported() {
        let (mut owners, mut delays) =
            (NodeOwners::new(PathIndex::new("/nowhere", None)), Delays::default());
        let mut gained = |delay| {
            let snapshot = snapshot(delay);
            owners.refresh(&snapshot, Instant::now());
            delays
                .gained(&snapshot, &owners)
                .iter()
                .map(|delay| delay.gained_ns)
                .collect::<Vec<_>>()
        };
        assert!(gained(None).is_empty());
        assert_eq!(gained(Some(500)), [0]);
        assert!(gained(Some(500)).is_empty());
        assert_eq!(gained(Some(700)), [200]);
    }
}
