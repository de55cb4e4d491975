//! Seconds from snapshots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use analysis::verdict::{PodSecond, Second, SnapshotReader, Verdicts};
use snapshot::{
    ContainerIdentity, ContainerRow, ContainerWaits, CpuLimit, Culprit, Limit, Losses, LostTime,
    NodeSnapshot, NodeWaits, PodRow, PollLosses, TraceMode, TraceRow,
};

use super::scene::{identity, lines};

pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn container(pod: &str, used_ms: u64, self_ms: u64) -> ContainerRow {
    let (namespace, name) = pod.split_once('/').unwrap();
    let identity = ContainerIdentity {
        labels: pod.into(),
        namespace: namespace.into(),
        pod: name.into(),
        container: "app".into(),
        ..ContainerIdentity::default()
    };
    ContainerRow {
        identity: Arc::new(identity),
        live: true,
        usage_ns: Some(used_ms * MS),
        waits: Some(Arc::new(ContainerWaits {
            self_ns: self_ms * MS,
            ..ContainerWaits::default()
        })),
        ..ContainerRow::default()
    }
}

/// The incident's counters after this many seconds.
fn node(start: Instant, second: u64) -> NodeSnapshot {
    let lost = |victim: &str, by: &[(&str, u64)]| LostTime {
        victim: identity(victim),
        by: by.iter().map(|(pod, ms)| (Culprit::Pod(identity(pod)), ms * MS)).collect(),
        wakeups: 50,
        late_wakeups: 20,
    };
    let victims = vec![
        lost("shop/checkout", &[("batch/report", 248), ("shop/cart", 20)]),
        LostTime {
            wakeups: 0,
            late_wakeups: 0,
            ..lost("batch/report", &[("shop/checkout", 60), ("shop/cart", 60)])
        },
    ];
    let poll = |second| PollLosses {
        polled_at: start + Duration::from_secs(second),
        victims: victims.clone(),
    };
    let losses = Losses::default();
    let trace = TraceRow { mode: TraceMode::Continuous, run_ns: 0, switches: 0, losses };
    let waits = NodeWaits {
        lost: (second.saturating_sub(9)..=second).map(|second| Arc::new(poll(second))).collect(),
        trace: Some(trace),
        ..NodeWaits::default()
    };
    let mut snapshot = NodeSnapshot {
        read_at: Some(start + Duration::from_secs(second)),
        interval: Duration::from_secs(1),
        containers: vec![
            container("batch/report", 1750 * second, 4000 * second),
            container("shop/cart", 60 * second, 0),
            container("shop/checkout", 150 * second, 0),
        ],
        waits: Arc::new(waits),
        ..NodeSnapshot::default()
    };
    snapshot.node.idle_ns = Some(10 * second * MS);
    snapshot
}

fn pod<'a>(second: &'a Second, name: &str) -> &'a PodSecond {
    second.pods.iter().find(|pod| pod.pod.pod == name).unwrap()
}

#[test]
fn counters_become_seconds_and_those_verdicts() {
    let (mut reader, mut verdicts, start) =
        (SnapshotReader::default(), Verdicts::default(), Instant::now());
    assert!(reader.read(&node(start, 100), |_| false).is_none(), "the baseline");
    let mut found = Vec::new();
    for number in 101..110 {
        let second = reader.read(&node(start, number), |_| false).unwrap();
        let (checkout, report) = (pod(&second, "checkout"), pod(&second, "report"));
        assert!(second.is_traced());
        assert!((checkout.used - 0.15).abs() < 1e-9 && checkout.lost.len() == 2);
        assert_eq!((checkout.wakeups, checkout.late_wakeups), (50, 20));
        assert!(checkout.sleeps && !report.sleeps);
        assert!((report.waited_self - 4.0).abs() < 1e-9);
        found = lines(&verdicts.push(&second));
    }
    assert_eq!(found[0], "shop/checkout Service neighbor ×2.8 by batch/report");
}

#[test]
fn a_second_in_reused_memory_is_the_same() {
    let (mut reader, mut other, start) =
        (SnapshotReader::default(), SnapshotReader::default(), Instant::now());
    let all = node(start, 0).containers;
    let quotas = ["shop/cart", "batch/report", "shop/new"].map(|pod| PodRow {
        identity: identity(pod),
        cpu_limit: Limit::Limited(CpuLimit { cores: 1.0, period_usec: 100_000 }),
        ..PodRow::default()
    });
    for number in 0..200 {
        let mut snapshot = node(start, number);
        // Containers and quotas come and go, and some pods lose nothing.
        snapshot.containers.push(container("shop/new", 30 * number, 0));
        for (at, row) in snapshot.containers.iter_mut().enumerate() {
            if let Some(known) = all.get(at) {
                row.identity = Arc::clone(&known.identity);
            }
            row.live = !(number / 7 + at as u64).is_multiple_of(3);
        }
        snapshot.containers.rotate_left((number / 11) as usize % 4);
        snapshot.pods = quotas[..(number / 5) as usize % 4].to_vec();
        if let Some(last) = snapshot.pods.last_mut().filter(|_| number.is_multiple_of(2)) {
            last.cpu_limit = Limit::Unlimited;
        }
        let second = reader.read(&snapshot, |_| number.is_multiple_of(3));
        let expected = other.read(&snapshot, |_| number.is_multiple_of(3));
        assert_eq!(format!("{second:?}"), format!("{expected:?}"));
        second.into_iter().for_each(|second| reader.reuse(second));
    }
}

#[test]
fn a_second_waits_for_the_next_poll_of_the_trace() {
    let (mut reader, start) = (SnapshotReader::default(), Instant::now());
    reader.read(&node(start, 0), |_| false);
    let first = node(start, 1);
    assert!(reader.read(&first, |_| false).is_some());
    let without_poll = NodeSnapshot { waits: Arc::clone(&first.waits), ..node(start, 2) };
    assert!(reader.read(&without_poll, |_| false).is_none());
    let second = reader.read(&node(start, 3), |_| false).unwrap();
    assert_eq!(second.seconds, 2.0);
    let checkout = pod(&second, "checkout");
    assert!((checkout.lost[0].1 - 0.496).abs() < 1e-9, "both polls: {checkout:?}");
    assert_eq!((checkout.lost.len(), checkout.wakeups), (2, 100));
    // A trace that is silent does not stop the verdicts.
    let waits = Arc::clone(&node(start, 3).waits);
    let silent = |second| NodeSnapshot { waits: Arc::clone(&waits), ..node(start, second) };
    reader.read(&silent(4), |_| false).unwrap();
    assert!(reader.read(&silent(5), |_| false).is_none());
    assert!(reader.read(&silent(7), |_| false).is_some());
}

/// Contention without the trace, per second; the threads are read every ten seconds.
fn contention(threads: u64) -> Vec<f64> {
    let (mut reader, start) = (SnapshotReader::default(), Instant::now());
    let untraced = |second: u64| {
        let mut row = container("shop/web", 500 * second, 0);
        row.contention_lower_ns = Some(second / 10 * 10 * 800 * MS);
        row.threads = snapshot::Threads::Counted(threads);
        let waits = Arc::default();
        NodeSnapshot { containers: vec![row], waits, ..node(start, second) }
    };
    let seconds = (0..30).filter_map(|second| reader.read(&untraced(second), |_| false));
    seconds.map(|second| (pod(&second, "web").contention * 10.0).round() / 10.0).collect()
}

#[test]
fn contention_without_the_trace_is_spread_and_without_waits_for_own_threads() {
    assert_eq!(contention(1)[9..], [0.8; 20]);
    assert_eq!(contention(2)[9..], [0.3; 20]);
    assert_eq!(contention(3), [0.0; 29]);
}

/// Six threads on two CPUs until second 25, and one that hardly runs after that.
#[test]
fn threads_that_are_gone_waited_for_each_other() {
    let (mut reader, start) = (SnapshotReader::default(), Instant::now());
    let node_at = |second: u64| {
        let scan = second / 10 * 10;
        let mut row = container("shop/web", 2000 * second.min(25) + 10 * second, 0);
        row.contention_lower_ns = Some(scan.saturating_sub(10).min(25) * 4000 * MS);
        row.threads = snapshot::Threads::Counted(if scan > 25 { 1 } else { 6 });
        NodeSnapshot { containers: vec![row], waits: Arc::default(), ..node(start, second) }
    };
    let seconds = (0..60).filter_map(|second| reader.read(&node_at(second), |_| false));
    let waited: Vec<f64> = seconds.map(|second| pod(&second, "web").contention).collect();
    assert_eq!(waited, [0.0; 59]);
}

#[test]
fn the_workload_of_a_pod_is_its_controller() {
    let (mut reader, start) = (SnapshotReader::default(), Instant::now());
    let of = |second, kind: &str| {
        let mut snapshot = node(start, second);
        let identity = Arc::make_mut(&mut snapshot.containers[0].identity);
        identity.workload =
            Some(kubepods::model::Owner { kind: kind.into(), name: "report".into() });
        snapshot
    };
    reader.read(&of(0, "CronJob"), |_| false);
    let second = reader.read(&of(1, "CronJob"), |_| false).unwrap();
    let workload = &pod(&second, "report").workload;
    assert_eq!((&*workload.kind, &*workload.name), ("CronJob", "report"));
}

/// As of gVisor: its threads are in the sandbox, which has no request of its own.
#[test]
fn the_request_of_a_sandboxed_pod_is_that_of_its_containers() {
    let (mut reader, start) = (SnapshotReader::default(), Instant::now());
    let of = |second: u64| {
        let sandbox = |pod: &str| {
            let mut row = container(pod, 500 * second, 0);
            Arc::make_mut(&mut row.identity).container = "POD".into();
            row
        };
        let mut app = container("shop/gvisor", 0, 0);
        (app.spec, app.request_cores) = (Some(snapshot::SpecRow::default()), Some(0.25));
        let containers = vec![sandbox("shop/gvisor"), app, sandbox("shop/machine")];
        NodeSnapshot { containers, ..node(start, second) }
    };
    reader.read(&of(0), |_| false);
    let second = reader.read(&of(1), |_| false).unwrap();
    let request = |name: &str| pod(&second, name).request_cores;
    assert_eq!([request("gvisor"), request("machine")], [Some(0.25), None]);
}
