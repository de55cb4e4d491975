//! Polls the program once per second and joins its counts with the sampler's cgroups.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use sched_trace::{ContainerId, Owners, RunDelay, SchedTrace, WaitReport};
use snapshot::NodeSnapshot;

use super::owners::NodeOwners;
use super::{INTERVAL, Wiring, report};
use crate::watchdog::Beat;

/// A program that counts waits, once it is loaded.
pub(super) trait Program {
    /// As [`SchedTrace::poll`].
    fn poll(&mut self, now: Instant, owners: &mut dyn Owners, delays: &[RunDelay]) -> &WaitReport;
}

impl Program for SchedTrace {
    fn poll(&mut self, now: Instant, owners: &mut dyn Owners, delays: &[RunDelay]) -> &WaitReport {
        Self::poll(self, now, owners, delays)
    }
}

pub(super) struct Poller<P> {
    trace: P,
    wiring: Wiring,
    owners: NodeOwners,
    delays: Delays,
}

impl<P: Program> Poller<P> {
    pub(super) fn new(trace: P, wiring: Wiring) -> Self {
        let owners = NodeOwners::new(wiring.hierarchy.cpu.clone());
        Self { trace, wiring, owners, delays: Delays::default() }
    }

    /// Polls until the other end of `stopped` is gone.
    pub(super) fn run(mut self, beat: &Beat, stopped: &Receiver<()>) {
        let mut deadline = Instant::now();
        loop {
            let now = Instant::now();
            self.poll(now);
            beat.beat(INTERVAL);
            deadline = (deadline + INTERVAL).max(now);
            let left = deadline.saturating_duration_since(Instant::now());
            if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn poll(&mut self, now: Instant) {
        let snapshot = self.wiring.published.latest();
        self.owners.refresh(&snapshot, now);
        let delays = self.delays.gained(&snapshot, &self.owners);
        let found = self.trace.poll(now, &mut self.owners, &delays);
        self.wiring.slot.publish(report::waits(found, &self.owners));
    }
}

/// The containers' run delays at the last call.
#[derive(Debug, Default)]
struct Delays {
    last: HashMap<ContainerId, u64>,
}

impl Delays {
    /// Gains of the run delays since the last call. The sampler reads a container's threads about every ten seconds. An
    /// unchanged delay has not been read again, or the threads did not wait.
    fn gained(&mut self, snapshot: &NodeSnapshot, owners: &NodeOwners) -> Vec<RunDelay> {
        self.last.retain(|&container, _| owners.is_container(container));
        let delays = snapshot.containers.iter().filter_map(|row| {
            let (container, delay_ns) = (owners.container_id(&row.identity.labels)?, row.run_delay_ns?);
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
        let identity = Arc::new(ContainerIdentity { labels: "c".into(), ..ContainerIdentity::default() });
        let containers = vec![ContainerRow { identity, run_delay_ns, ..ContainerRow::default() }];
        NodeSnapshot { containers, ..NodeSnapshot::default() }
    }

    #[test]
    fn only_a_delay_that_was_read_again_is_told() {
        let (mut owners, mut delays) = (NodeOwners::new("/nowhere".into()), Delays::default());
        let mut gained = |delay| {
            let snapshot = snapshot(delay);
            owners.refresh(&snapshot, Instant::now());
            delays.gained(&snapshot, &owners).iter().map(|delay| delay.gained_ns).collect::<Vec<_>>()
        };
        assert!(gained(None).is_empty());
        assert_eq!(gained(Some(500)), [0]);
        assert!(gained(Some(500)).is_empty());
        assert_eq!(gained(Some(700)), [200]);
    }
}
