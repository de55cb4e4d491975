//! Single cases. [`model`] compares with the exact time.

mod model;

use std::time::Duration;

use snapshot::{CgroupRow, ContainerIdentity, CpusetRow, Losses, Threads, TraceRow};

use super::*;
use crate::waits::{LostPart, LostTo, PodId};

const MS: u64 = 1_000_000;

/// A node whose counters a test sets, and the meter that reads them each second.
struct Node {
    meter: PressureMeter,
    start: Instant,
    second: u64,
    mode: TraceMode,
    snapshot: NodeSnapshot,
    waits: NodeWaits,
    /// Lost time since the last poll, by the name of the victim.
    lost: BTreeMap<String, Vec<LostPart>>,
}

impl Node {
    /// A node with this many CPUs and one container in each pod.
    fn new(cpus: u32, pods: &[(&str, &str)]) -> Self {
        let mut snapshot = NodeSnapshot::default();
        snapshot.node.cpus = vec![("possible", 64), ("online", cpus)];
        snapshot.containers = pods.iter().map(|(name, class)| row(name, class)).collect();
        let mode = TraceMode::Continuous;
        let (meter, start) = (PressureMeter::default(), Instant::now());
        let (waits, lost) = (NodeWaits::default(), BTreeMap::new());
        Self { meter, start, second: 0, mode, snapshot, waits, lost }
    }

    /// Adds milliseconds to a container's counters.
    fn wait(&mut self, pod: &str, add: impl FnOnce(&mut ContainerWaits)) {
        let of_pod = |row: &&ContainerRow| row.identity.pod == pod;
        let row = self.snapshot.containers.iter().find(of_pod).unwrap();
        let containers = &mut self.waits.containers;
        let known = containers.iter().position(|(identity, _)| identity.pod == pod);
        let at = known.unwrap_or_else(|| {
            containers.push((Arc::clone(&row.identity), None));
            containers.len() - 1
        });
        add(Arc::make_mut(containers[at].1.get_or_insert_default()));
    }

    /// Adds milliseconds of time that a pod lost; an empty name stands for the system.
    fn lose(&mut self, victim: &str, holder: &str, ms: u64) {
        let holder = match holder.bytes().next() {
            Some(name) => LostTo::Pod(PodId(name.into())),
            None => LostTo::System,
        };
        self.lose_to(victim, holder, ms);
    }

    fn lose_to(&mut self, victim: &str, to: LostTo, ms: u64) {
        self.lost.entry(victim.to_owned()).or_default().push(LostPart {
            to,
            ns: ms * MS,
            late_ns: 0,
        });
    }

    fn pin(&mut self, pod: &str, cpus: &str, count: u32) {
        let mut rows = self.snapshot.containers.iter_mut();
        let row = rows.find(|row| &*row.identity.labels == pod).unwrap();
        row.cpuset = Some(Arc::new(CpusetRow { cpus: cpus.to_owned(), count }));
    }

    fn poll(&mut self) -> Vec<PressureRow> {
        let losses = Losses { lost_ns: 0, ..Losses::default() };
        let trace = TraceRow { mode: self.mode, run_ns: 0, switches: 0, losses };
        self.waits.trace.get_or_insert(trace).mode = self.mode;
        self.second += 1;
        let now = self.start + Duration::from_secs(self.second);
        let lost = std::mem::take(&mut self.lost).into_iter().map(|(victim, by)| {
            (identity(&victim), TracedLoss { victim: PodId(0), by, wakeups: 0, late_wakeups: 0 })
        });
        let lost: Vec<_> = lost.collect();
        let lost = lost.iter().map(|(victim, lost)| (victim, lost));
        self.meter.read(now, &self.waits, lost, &self.snapshot)
    }

    /// Shares of the second that ends now, in thousandths.
    fn shares(&mut self, scope: PressureScope) -> (u64, u64) {
        let rows = self.poll();
        let row = rows.iter().find(|row| row.scope == scope).unwrap();
        ((row.lower * 1000.0).round() as u64, (row.upper * 1000.0).round() as u64)
    }

    /// Totals so far, in milliseconds.
    fn totals(&self, scope: PressureScope) -> (u64, u64) {
        let total = &self.meter.totals[&scope];
        (total.lower_ns() / MS, total.upper_ns / MS)
    }
}

fn identity(pod: &str) -> PodIdentity {
    PodIdentity::new("n".into(), pod.into())
}

fn row(name: &str, qos_class: &str) -> ContainerRow {
    let identity = Arc::new(ContainerIdentity {
        labels: name.into(),
        namespace: "n".into(),
        pod: name.into(),
        qos_class: qos_class.into(),
        best_effort: qos_class == "BestEffort",
        ..ContainerIdentity::default()
    });
    let threads = Threads::Counted(1);
    ContainerRow { identity, live: true, threads, ..ContainerRow::default() }
}

#[test]
fn many_short_lived_threads_raise_only_the_upper_bound() {
    let mut node = Node::new(2, &[("a", "Burstable")]);
    node.lose("a", "", 0);
    node.poll();
    // 33 threads start at once, wait for 20 ms and end. The last scan found one thread.
    for _ in 0..20 {
        node.wait("a", |waits| waits.system_ns += 33 * 20 * MS);
        node.lose("a", "", 20);
        let (lower, upper) = node.shares(PressureScope::Node);
        assert!(lower <= 20 && upper == 660, "{lower} {upper}");
    }
}

#[test]
fn a_wait_that_has_not_ended_and_one_without_a_cause_are_in_the_upper_bound() {
    let mut node = Node::new(1, &[("a", "Burstable")]);
    node.lose("a", "", 0);
    node.poll();
    // Waits of 5 s of which the trace finds the cause of the last one.
    for second in 1..=20 {
        if second == 20 {
            node.wait("a", |waits| waits.neighbor_ns += 5000 * MS);
        }
        node.lose_to("a", LostTo::Unattributed, 1000);
        assert_eq!(node.shares(PressureScope::Node).1, 1000, "second {second}");
    }
    assert_eq!(node.totals(PressureScope::Node).1, 20_000);
}

#[test]
fn a_long_wait_that_counts_when_it_ends_counts_in_full() {
    let mut node = Node::new(1, &[("a", "Burstable")]);
    for _ in 0..6 {
        node.poll();
    }
    node.wait("a", |waits| (waits.self_ns, waits.latency.counts[9]) = (4500 * MS, 1));
    assert_eq!(node.shares(PressureScope::Node).1, 1000);
    assert_eq!(node.totals(PressureScope::Node).1, 4500, "it began before this second");
    // Short waits of many threads began in the second before at the earliest.
    node.poll();
    node.wait("a", |waits| waits.self_ns += 90_000 * MS);
    node.poll();
    assert_eq!(node.totals(PressureScope::Node).1, 6500);
    // Time without a cause is read late.
    node.wait("a", |waits| waits.unattributed_ns += 1200 * MS);
    node.poll();
    assert_eq!(node.totals(PressureScope::Node).1, 7700);
    node.wait("a", |waits| waits.unattributed_ns += 9000 * MS);
    node.poll();
    assert_eq!(node.totals(PressureScope::Node).1, 10_000, "no gap is left");
}

#[test]
fn losses_to_different_holders_add_up_on_one_cpu() {
    let spin = |cpus, cpuset: Option<&str>, class_of_b| {
        let mut node = Node::new(cpus, &[("a", "Burstable"), ("b", class_of_b)]);
        for pod in ["a", "b"] {
            cpuset.into_iter().for_each(|cpus| node.pin(pod, cpus, 1));
        }
        let mut second = |ms| {
            node.lose("a", "b", ms);
            node.lose("b", "a", ms);
            // The same time again, by the pods that lost less.
            node.lose("a", "", ms / 5);
            node.lose("b", "", ms / 10);
            node.poll();
        };
        second(0);
        (0..10).for_each(|_| second(400));
        [PressureScope::Node, PressureScope::Burstable].map(|scope| node.totals(scope).0)
    };
    // Less what may be of the time before.
    assert_eq!(spin(1, None, "Burstable"), [8800 - 250; 2]);
    assert_eq!(spin(1, None, "BestEffort"), [4800 - 250; 2]);
    assert_eq!(spin(8, None, "Guaranteed")[0], 1100 - 250, "the mean of all CPUs");
    assert_eq!(spin(8, Some("3"), "Guaranteed")[0], 8800 - 250, "both on CPU 3");
}

#[test]
fn late_losses_of_a_limited_container_are_no_lower_bound() {
    for (is_limited, expected) in [(true, 0), (false, 1000 - 250)] {
        let mut node = Node::new(1, &[("a", "Burstable")]);
        node.snapshot.containers[0].cfs = is_limited.then(Default::default);
        node.lose("a", "", 0);
        node.poll();
        // A wait that may have begun long ago.
        node.wait("a", |waits| waits.latency.counts[8] += 1);
        node.lose("a", "", 5000);
        node.poll();
        assert_eq!(node.totals(PressureScope::Node).0, expected, "limited: {is_limited}");
    }
}

#[test]
fn lost_time_without_a_holder_counts_for_its_pod_only() {
    let mut node = Node::new(1, &[("a", "Burstable"), ("b", "Burstable")]);
    let mut second = |ms| {
        node.lose("a", "", ms);
        node.lose_to("a", LostTo::Unattributed, ms);
        node.lose_to("b", LostTo::Unattributed, ms);
        node.poll();
    };
    second(0);
    second(300);
    assert_eq!(node.totals(PressureScope::Node).0, 600 - 250);
}

#[test]
fn lost_time_that_may_be_older_is_no_lower_bound() {
    let mut node = Node::new(1, &[("a", "Burstable")]);
    node.poll();
    node.lose("a", "", 900);
    node.lost.get_mut("a").unwrap()[0].late_ns = 900 * MS;
    assert_eq!(node.shares(PressureScope::Node), (0, 900));
    node.lose("a", "", 350);
    assert_eq!(node.shares(PressureScope::Node), (100, 350));
}

#[test]
fn throttling_is_in_no_bound_and_estimates_are_none() {
    let mut node = Node::new(2, &[("a", "Burstable")]);
    assert_eq!(node.poll(), []);
    node.wait("a", |waits| waits.throttled_ns += 900 * MS);
    assert_eq!(node.shares(PressureScope::Node), (0, 0));
    node.mode = TraceMode::Bursts { one_of: 4 };
    assert_eq!(node.poll(), []);
    node.mode = TraceMode::Continuous;
    node.wait("a", |waits| waits.self_ns += 500 * MS);
    assert_eq!(node.poll(), [], "a new baseline");
    node.wait("a", |waits| waits.self_ns += 500 * MS);
    assert_eq!(node.shares(PressureScope::Node), (0, 500));
    assert_eq!(node.totals(PressureScope::Node), (0, 500));
}

#[test]
fn the_upper_bound_is_the_interval_while_counts_are_missing() {
    let mut node = Node::new(2, &[("a", "Burstable"), ("b", "Guaranteed")]);
    node.poll();
    assert_eq!(node.shares(PressureScope::Node), (0, 0));
    let (path, inode) = ("kubepods/podx/y".into(), 7);
    node.snapshot.cgroups.push(CgroupRow { inode, path, kind: CgroupKind::Pending });
    assert_eq!(node.shares(PressureScope::Node), (0, 1000), "a container without a name");
    node.snapshot.cgroups.clear();
    node.snapshot.containers.pop();
    let mut burstable = |scope| node.shares(scope).1;
    assert_eq!(burstable(PressureScope::Node), 1000, "the last waits of b");
    assert_eq!(burstable(PressureScope::Burstable), 0);
    assert_eq!(burstable(PressureScope::Node), 0);
    // What the program could not store may have been anybody's.
    node.waits.trace.as_mut().unwrap().losses.lost_ns += 300 * MS;
    assert_eq!(node.shares(PressureScope::Node), (0, 300));
}

#[test]
fn burstable_batch_pods_wait_in_their_class_and_not_in_the_node() {
    let mut node = Node::new(1, &[("a", "Burstable"), ("b", "Burstable"), ("c", "BestEffort")]);
    Arc::make_mut(&mut node.snapshot.containers[1].identity).best_effort = true;
    let mut second = |ms: u64| {
        node.lose("a", "", ms);
        node.lose("b", "a", 2 * ms);
        node.poll();
    };
    second(0);
    (0..10).for_each(|_| second(100));
    let lower = |scope| node.totals(scope).0;
    assert_eq!(lower(PressureScope::Node), 1000 - 250);
    assert_eq!(lower(PressureScope::Burstable), 3000 - 250);
    assert_eq!(lower(PressureScope::BestEffort), 0);
}
