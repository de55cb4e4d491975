//! Harm from snapshots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use snapshot::{
    ContainerIdentity, ContainerRow, InterferenceRow, Losses, NodeSnapshot, NodeWaits, PodIdentity,
    TraceMode, TraceRow,
};
use yielding::rules::{ContainerUsage, HarmMeter, Harms};

const MS: u64 = 1_000_000;

fn start() -> Instant {
    Instant::now()
}

fn pod(name: &str) -> Arc<PodIdentity> {
    Arc::new(PodIdentity { namespace: "n".into(), pod: name.into(), ..PodIdentity::default() })
}

fn interference(victim: &str, aggressor: &str, wait_ms: u64) -> InterferenceRow {
    InterferenceRow {
        victim: pod(victim),
        aggressor_namespace: "n".into(),
        aggressor_pod: aggressor.into(),
        wait_ns: wait_ms * MS,
    }
}

fn container(name: &str, qos_class: &str, usage_ms: u64) -> ContainerRow {
    let identity = ContainerIdentity {
        labels: name.into(),
        namespace: "n".into(),
        pod: name.into(),
        qos_class: qos_class.into(),
        best_effort: qos_class == "BestEffort",
        ..ContainerIdentity::default()
    };
    ContainerRow {
        identity: Arc::new(identity),
        live: true,
        usage_ns: Some(usage_ms * MS),
        ..ContainerRow::default()
    }
}

fn snapshot(
    read_at: Instant,
    mode: TraceMode,
    interference: Vec<InterferenceRow>,
    containers: Vec<ContainerRow>,
) -> NodeSnapshot {
    let trace = TraceRow { mode, run_ns: 0, switches: 0, losses: Losses::default() };
    let waits = NodeWaits { interference, trace: Some(trace), ..NodeWaits::default() };
    NodeSnapshot {
        read_at: Some(read_at),
        waits: Arc::new(waits),
        containers,
        ..NodeSnapshot::default()
    }
}

fn is_best_effort(_: &str, pod: &str) -> bool {
    pod.starts_with("be")
}

/// Every pod requests a core.
fn one_core(_: &str, _: &str) -> f64 {
    1.0
}

#[test]
fn weighed_waits_count_up_to_the_request_of_the_victim() {
    let start = start();
    // Five hundred waiting threads, and the use of a tenth of a core.
    for (request_cores, expected) in [(0.0, 0.0), (0.001, 0.0), (0.1, 0.5), (0.3, 0.75)] {
        let mut meter = HarmMeter::default();
        let mut read = |seconds: u64| {
            let pairs = vec![interference("a", "be1", 500_000 * seconds)];
            let rows = vec![container("a", "Burstable", 100 * seconds)];
            let at = start + Duration::from_secs(seconds);
            let snapshot = snapshot(at, TraceMode::Continuous, pairs, rows);
            meter.read(&snapshot, is_best_effort, |_, _| request_cores)
        };
        assert_eq!(read(0), None);
        let Harms { worst, weighed } = read(2).unwrap();
        assert!(worst.lost > 0.99, "{worst:?}");
        assert!((weighed.lost - expected).abs() < 1e-6, "{request_cores} cores: {weighed:?}");
    }
}

#[test]
fn harm_is_the_share_of_the_worst_victims_time() {
    let (mut meter, start) = (HarmMeter::default(), start());
    let mut read = |seconds, a, b, usage| {
        let pairs = vec![
            interference("a", "be1", a),
            interference("a", "be2", a),
            interference("b", "be1", b),
            interference("b", "ls", 100 * b),
            interference("be1", "be2", 100 * b),
        ];
        let rows = vec![container("a", "Burstable", usage), container("b", "Guaranteed", 10 * b)];
        let at = start + Duration::from_secs(seconds);
        meter.read(&snapshot(at, TraceMode::Continuous, pairs, rows), is_best_effort, one_core)
    };
    assert_eq!(read(0, 500, 500, 700), None, "the first reading has no interval");
    assert_eq!(read(1, 520, 510, 800), None, "one second may fall between two polls of the trace");
    let harm = read(2, 550, 530, 1_000).unwrap().worst;
    // a waited 2 × 50 ms and ran 300 ms; b waited 30 ms and ran 300 ms.
    assert!((harm.lost - 0.25).abs() < 1e-9, "{harm:?}");
    assert_eq!(harm.victim, "n/a");
    let harm = read(4, 559, 530, 1_001).unwrap().worst;
    assert_eq!(harm.lost, 0.0, "18 ms in two seconds are noise: {harm:?}");
}

#[test]
fn a_container_that_ends_does_not_hide_the_use_of_its_pod() {
    let (mut meter, start) = (HarmMeter::default(), start());
    let mut read = |seconds, usage_ms, init: Option<u64>| {
        let pairs = vec![interference("a", "be1", 100 * seconds)];
        let init = init.map(|usage_ms| {
            let row = container("a", "Burstable", usage_ms);
            let identity = ContainerIdentity { labels: "init".into(), ..(*row.identity).clone() };
            ContainerRow { identity: Arc::new(identity), ..row }
        });
        let rows = [container("a", "Burstable", usage_ms)].into_iter().chain(init).collect();
        let at = start + Duration::from_secs(seconds);
        meter.read(&snapshot(at, TraceMode::Continuous, pairs, rows), is_best_effort, one_core)
    };
    assert_eq!(read(0, 1_000, Some(50_000)), None);
    let harm = read(2, 1_600, None).unwrap().worst;
    assert!((harm.lost - 0.25).abs() < 1e-9, "200 ms of waits, 600 ms of use: {harm:?}");
}

#[test]
fn the_use_of_a_container_survives_a_restart_and_a_late_name() {
    let row = |labels: &str, id: &str, usage_ms| {
        let identity = ContainerIdentity {
            labels: labels.into(),
            container_id: id.into(),
            ..ContainerIdentity::default()
        };
        ContainerRow {
            identity: Arc::new(identity),
            usage_ns: Some(usage_ms * MS),
            ..ContainerRow::default()
        }
    };
    let mut meter = ContainerUsage::default();
    let mut read = |labels, id, usage_ms| -> u64 {
        let rows = [row(labels, id, usage_ms), ContainerRow::default()];
        meter.read(&rows).iter().map(|(_, used_ns)| used_ns / MS).sum()
    };
    assert_eq!(read("uid", "c1", 700), 700, "a new series began at 0");
    assert_eq!(read("app", "c1", 750), 50, "the name arrived");
    assert_eq!(read("app", "c2", 790), 40, "a restart");
    assert_eq!(read("app", "c3", 10), 10, "another pod of the same name");
    assert_eq!(read("web", "c4", 5), 5);
}

#[test]
fn an_untraced_node_has_no_harm_reading() {
    let (mut meter, start) = (HarmMeter::default(), start());
    let second = Duration::from_secs(1);
    let mut read = |at, mode| {
        let pairs = vec![interference("a", "be1", 500)];
        meter.read(&snapshot(at, mode, pairs, vec![]), is_best_effort, one_core)
    };
    assert_eq!(read(start, TraceMode::Continuous), None);
    assert_eq!(read(start + second, TraceMode::Detached), None);
    assert_eq!(read(start + 2 * second, TraceMode::Continuous), None, "begins from zero");
    assert!(read(start + 4 * second, TraceMode::Continuous).is_some());
    assert_eq!(meter.read(&NodeSnapshot::default(), is_best_effort, one_core), None);
}

#[test]
fn a_trace_in_bursts_is_read_once_per_cycle() {
    let (mut meter, start) = (HarmMeter::default(), start());
    let mut read = |seconds| {
        let at = start + Duration::from_secs(seconds);
        let pairs = vec![interference("a", "be1", 100 * seconds)];
        let rows = vec![container("a", "Burstable", 300 * seconds)];
        let snapshot = snapshot(at, TraceMode::Bursts { one_of: 4 }, pairs, rows);
        meter.read(&snapshot, is_best_effort, one_core)
    };
    let lost: Vec<_> = (0..9).map(|second| read(second).map(|harms| harms.worst.lost)).collect();
    let quarter = Some(0.25);
    let expected = [None, None, None, None, quarter, None, None, None, quarter];
    assert_eq!(lost, expected);
}
