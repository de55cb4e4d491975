//! Time that containers lose to other pods: part of the CPU time that they need.

use std::time::Instant;

use snapshot::{ContainerRow, Culprit, NodeSnapshot};

use crate::pods::PodNumbers;

/// Share of its CPUs from which on a container wants all of them.
const HUNGRY: f64 = 0.9;
/// Time for which a container counts as one that sleeps in between, nanoseconds.
const SLEPT_FOR_NS: u64 = 600_000_000_000;

/// Lost time of one pod.
#[derive(Debug, Clone, Copy, Default)]
struct PodLost {
    /// In the window, core-nanoseconds; `None` if it neither lost time nor woke up.
    lost_ns: Option<u64>,
    /// Waits of its containers for other pods, thread-nanoseconds.
    waits_ns: u64,
    containers: u32,
}

/// Time that each pod lost to other pods, in the last window.
#[derive(Debug, Default)]
pub(crate) struct LostTimes {
    /// Whether lost time is known.
    is_traced: bool,
    /// The trace's poll up to which it was read.
    until: Option<Instant>,
    /// By the pods' numbers; empty if no pod lost time.
    pods: Vec<PodLost>,
}

impl LostTimes {
    /// Reads the lost time of one window.
    pub(crate) fn follow(&mut self, latest: &NodeSnapshot, numbers: &PodNumbers) {
        let waits = &latest.waits;
        self.pods.clear();
        for lost in waits.lost_since(self.until) {
            let Some(number) = numbers.named(&lost.victim.namespace, &lost.victim.pod) else {
                continue;
            };
            let to_pods = lost.by.iter().filter(|(culprit, _)| matches!(culprit, Culprit::Pod(_)));
            self.pods.resize(numbers.count(), PodLost::default());
            *self.pods[number].lost_ns.get_or_insert(0) += to_pods.map(|(_, ns)| ns).sum::<u64>();
        }
        self.until = waits.lost_until().or(self.until);
        self.is_traced = waits.lost_until().is_some();
        if self.pods.is_empty() {
            return;
        }
        for (at, row) in latest.containers.iter().enumerate().filter(|(_, row)| row.live) {
            let pod = &mut self.pods[numbers.of_container(at)];
            pod.waits_ns += waits_ns(row);
            pod.containers += 1;
        }
    }

    /// Time that a container of the pod with this number lost in the window: its part of the pod's, by
    /// its waits so far. `None` if lost time is unknown.
    pub(crate) fn of(&self, row: &ContainerRow, number: usize) -> Option<u64> {
        let Some((pod, lost_ns)) = self.pods.get(number).and_then(|pod| Some((pod, pod.lost_ns?)))
        else {
            return self.is_traced.then_some(0);
        };
        let part = match pod.waits_ns {
            0 => 1.0 / f64::from(pod.containers.max(1)),
            all_ns => waits_ns(row) as f64 / all_ns as f64,
        };
        Some((lost_ns as f64 * part) as u64)
    }
}

fn waits_ns(row: &ContainerRow) -> u64 {
    row.waits.as_ref().map_or(0, |waits| waits.neighbor_ns)
}

/// Selects the lost time that counts as need of one container.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Time since it last left part of its CPUs unused, nanoseconds.
    hungry_ns: u64,
}

impl Lost {
    /// The lost time of a window that counts, nanoseconds: at most what its CPUs could have given,
    /// and none of a container that has wanted all CPUs for ten minutes, because no request is
    /// enough for it.
    pub(crate) fn add(
        &mut self,
        lost_ns: u64,
        used_ns: u64,
        cpus: Option<u32>,
        length_ns: u64,
    ) -> u64 {
        let Some(cpus) = cpus else { return 0 };
        let most_ns = u64::from(cpus).saturating_mul(length_ns);
        let wanted_ns = used_ns.saturating_add(lost_ns);
        let is_hungry = wanted_ns as f64 >= most_ns as f64 * HUNGRY;
        self.hungry_ns = if is_hungry { self.hungry_ns.saturating_add(length_ns) } else { 0 };
        if self.hungry_ns > SLEPT_FOR_NS {
            return 0;
        }
        lost_ns.min(most_ns.saturating_sub(used_ns))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::time::Duration;

    use snapshot::{
        ContainerIdentity, ContainerWaits, LostTime, NodeWaits, PodIdentity, PollLosses,
    };

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn pod(pod: &str) -> Arc<PodIdentity> {
        let (namespace, pod) = ("shop".into(), pod.into());
        Arc::new(PodIdentity { namespace, pod, ..PodIdentity::default() })
    }

    fn container(neighbor_ns: u64) -> ContainerRow {
        let identity = ContainerIdentity {
            namespace: "shop".into(),
            pod: "cart".into(),
            ..ContainerIdentity::default()
        };
        let waits = ContainerWaits { neighbor_ns, ..ContainerWaits::default() };
        let (identity, waits) = (Arc::new(identity), Some(Arc::new(waits)));
        ContainerRow { identity, live: true, waits, ..ContainerRow::default() }
    }

    /// Time lost by two containers in a second, whose threads have waited this long.
    fn lost([first, second]: [u64; 2]) -> [Option<u64>; 2] {
        let start = Instant::now();
        let node = |at, ns| {
            let by = vec![(Culprit::Pod(pod("report")), ns), (Culprit::System, 5 * SECOND_NS)];
            let victims = vec![LostTime { victim: pod("cart"), by, wakeups: 0, late_wakeups: 0 }];
            let polled_at = start + Duration::from_secs(at);
            let lost = vec![Arc::new(PollLosses { polled_at, victims })];
            NodeSnapshot {
                containers: vec![container(first), container(second)],
                waits: Arc::new(NodeWaits { lost, ..NodeWaits::default() }),
                ..NodeSnapshot::default()
            }
        };
        let (mut times, mut numbers) = (LostTimes::default(), PodNumbers::default());
        let latest = node(2, SECOND_NS);
        numbers.renumber(&latest.containers);
        times.follow(&node(1, 7 * SECOND_NS), &numbers);
        times.follow(&latest, &numbers);
        [0, 1].map(|at| times.of(&latest.containers[at], numbers.of_container(at)))
    }

    #[test]
    fn a_container_lost_its_part_of_what_its_pod_lost_to_pods() {
        assert_eq!(lost([SECOND_NS, 0]), [Some(SECOND_NS), Some(0)]);
        assert_eq!(lost([3, 1]), [Some(SECOND_NS / 4 * 3), Some(SECOND_NS / 4)]);
        assert_eq!(lost([0, 0]), [Some(SECOND_NS / 2); 2]);
        assert_eq!(LostTimes::default().of(&container(1), 0), None);
    }

    #[test]
    fn lost_time_counts_up_to_the_cpus_and_not_for_what_wants_them_all() {
        let mut lost = Lost::default();
        let mut add = |lost_ns| lost.add(lost_ns, SECOND_NS / 10, Some(2), SECOND_NS);
        assert_eq!(add(SECOND_NS), SECOND_NS);
        assert_eq!(add(9 * SECOND_NS), 2 * SECOND_NS - SECOND_NS / 10);
        (0..600).for_each(|_| {
            add(2 * SECOND_NS);
        });
        assert_eq!(add(2 * SECOND_NS), 0, "hungry for ten minutes");
        assert_eq!((add(SECOND_NS), add(2 * SECOND_NS) > 0), (SECOND_NS, true), "it slept");
        assert_eq!(Lost::default().add(1, 1, None, SECOND_NS), 0, "unknown CPUs");
    }
}
