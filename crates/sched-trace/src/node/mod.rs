//! Waits of a node: the program's counts under the names of the snapshot's series.

mod owners;
mod pressure;
mod report;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use cgroup_tree::PathIndex;
use foldhash::{HashMap, HashSet};
use snapshot::{FeatureState, LostTime, NodeSnapshot, NodeWaits, PollLosses, TraceMode};

use crate::trace::SchedTrace;
use crate::waits::{ContainerId, Owners, RunDelay, WaitReport};
use owners::NodeOwners;
use pressure::PressureMeter;

/// Name of the feature in `cpuwarden_feature_enabled`.
const FEATURE: &str = "sched_trace";

/// Number of polls whose lost time is published, so that a reader that is late misses none.
const PUBLISHED_POLLS: usize = 10;

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
    lost: RecentLosses,
}

impl<P: Program> NodeTrace<P> {
    /// `index`: paths of the hierarchy with the cpu controller.
    pub fn new(program: P, index: PathIndex) -> Self {
        Self {
            program,
            owners: NodeOwners::new(index),
            delays: Delays::default(),
            pressure: PressureMeter::default(),
            lost: RecentLosses::default(),
        }
    }

    /// Polls the program and joins its counts with the cgroups of the latest snapshot.
    pub fn poll(&mut self, now: Instant, snapshot: &NodeSnapshot) -> NodeWaits {
        self.owners.refresh(snapshot, now);
        let delays = self.delays.gained(snapshot, &self.owners);
        let found = self.program.poll(now, &mut self.owners, &delays);
        let mut waits = report::waits(found, &self.owners);
        let owners = &self.owners;
        let lost = found.lost.iter();
        let lost = lost.filter_map(|loss| Some((&**owners.identity(loss.victim)?, loss)));
        waits.pressure = self.pressure.read(now, &waits, lost, snapshot);
        waits.lost = match found.mode {
            TraceMode::Continuous => self.lost.with(now, report::lost(found, &self.owners)),
            TraceMode::Bursts { .. } | TraceMode::Detached => self.lost.clear(),
        };
        waits
    }
}

/// Lost time of the last polls, the newest first.
#[derive(Debug, Default)]
struct RecentLosses(VecDeque<Arc<PollLosses>>);

impl RecentLosses {
    fn clear(&mut self) -> Vec<Arc<PollLosses>> {
        self.0.clear();
        Vec::new()
    }

    fn with(&mut self, polled_at: Instant, victims: Vec<LostTime>) -> Vec<Arc<PollLosses>> {
        self.0.truncate(PUBLISHED_POLLS - 1);
        self.0.push_front(Arc::new(PollLosses { polled_at, victims }));
        self.0.iter().rev().cloned().collect()
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
    is_begun: bool,
    /// The containers of the first call: their first delay may be from before the trace.
    older: HashSet<ContainerId>,
    last: HashMap<ContainerId, u64>,
}

impl Delays {
    /// Deltas of the run delays since the last call, for the snapshot that the owners were refreshed
    /// with. The sampler reads a container's threads about
    /// every ten seconds. An unchanged delay has not been read again, or the threads did not wait.
    ///
    /// A delay of 0 is the first of each container. One that is younger than the trace has it until
    /// its threads are read.
    fn gained(&mut self, snapshot: &NodeSnapshot, owners: &NodeOwners) -> Vec<RunDelay> {
        if owners.any_gone() {
            self.last.retain(|&container, _| owners.is_container(container));
            self.older.retain(|&container| owners.is_container(container));
        }
        let mut gained = Vec::new();
        for (row, &(_, container)) in snapshot.containers.iter().zip(owners.rows()) {
            if !self.is_begun {
                self.older.insert(container);
            }
            let is_older = self.older.contains(&container);
            let delay_ns = match row.run_delay_ns {
                None if is_older => continue,
                delay_ns => delay_ns.unwrap_or(0),
            };
            let last = self.last.insert(container, delay_ns);
            if last.is_none() || row.run_delay_ns.is_none() {
                gained.push(RunDelay { container, gained_ns: 0 });
            }
            let last_ns = last.unwrap_or(if is_older { delay_ns } else { 0 });
            if delay_ns > last_ns {
                gained.push(RunDelay { container, gained_ns: delay_ns - last_ns });
            }
        }
        self.is_begun = true;
        gained
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::time::Duration;

    use snapshot::{ContainerIdentity, ContainerRow};

    use super::*;
    use crate::waits::{LostPart, LostTo, PodId, TracedLoss};

    /// A program that reports a lost nanosecond more with each poll.
    struct Losing(WaitReport);

    impl Program for Losing {
        fn poll(&mut self, _: Instant, owners: &mut dyn Owners, _: &[RunDelay]) -> &WaitReport {
            let victim = (0..9).map(PodId).find(|&pod| owners.has_pod(pod)).unwrap();
            let ns = self.0.lost.first().map_or(1, |lost| lost.by[0].ns + 1);
            let by = vec![LostPart { to: LostTo::System, ns, late_ns: 0 }];
            self.0.lost = vec![TracedLoss { victim, by, wakeups: 0, late_wakeups: 0 }];
            &self.0
        }
    }

    #[test]
    fn lost_time_of_the_last_ten_polls_is_published_and_none_in_bursts() {
        let mut trace =
            NodeTrace::new(Losing(WaitReport::empty()), PathIndex::new("/nowhere", None));
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut poll = |mode, at: u32| {
            trace.program.0.mode = mode;
            trace.poll(start + second * at, &snapshot(None))
        };
        let waits = (1..=12).map(|at| poll(TraceMode::Continuous, at)).last().unwrap();
        let lost = |waits: &NodeWaits, since: u32| -> Vec<u64> {
            let rows = waits.lost_since(Some(start + second * since));
            rows.map(|row| row.by.iter().map(|(_, ns)| ns).sum()).collect()
        };
        assert_eq!(lost(&waits, 10), [11, 12]);
        assert_eq!(lost(&waits, 0), (3..=12).collect::<Vec<_>>());
        assert_eq!(waits.lost_since(None).count(), 0, "the baseline");
        assert!(poll(TraceMode::Bursts { one_of: 2 }, 13).lost.is_empty());
        assert_eq!(lost(&poll(TraceMode::Continuous, 14), 0), [14]);
    }

    fn snapshot(run_delay_ns: Option<u64>) -> NodeSnapshot {
        let identity =
            Arc::new(ContainerIdentity { labels: "c".into(), ..ContainerIdentity::default() });
        let containers = vec![ContainerRow { identity, run_delay_ns, ..ContainerRow::default() }];
        NodeSnapshot { containers, ..NodeSnapshot::default() }
    }

    #[test]
    fn of_a_container_from_before_the_trace_only_a_delay_that_was_read_twice_counts() {
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

    /// Delays that are reported of a container, by what the sampler has read in each poll.
    fn reported(first: &NodeSnapshot, then: [Option<u64>; 3]) -> Vec<Vec<u64>> {
        let (mut owners, mut delays) =
            (NodeOwners::new(PathIndex::new("/nowhere", None)), Delays::default());
        let mut gained = |snapshot: &NodeSnapshot| {
            owners.refresh(snapshot, Instant::now());
            let gained = delays.gained(snapshot, &owners);
            gained.iter().map(|delay| delay.gained_ns).collect()
        };
        gained(first);
        then.map(|delay| gained(&snapshot(delay))).to_vec()
    }

    #[test]
    fn all_delay_of_a_container_that_is_younger_than_the_trace_counts() {
        let none = NodeSnapshot::default();
        let expected = [vec![0], vec![0], vec![500]];
        assert_eq!(reported(&none, [None, None, Some(500)]), expected);
        let expected = [vec![0, 500], vec![], vec![200]];
        assert_eq!(reported(&none, [Some(500), Some(500), Some(700)]), expected);
        let expected = [vec![], vec![0], vec![200]];
        assert_eq!(reported(&snapshot(None), [None, Some(500), Some(700)]), expected);
    }
}
