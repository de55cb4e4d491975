//! Harm and suggestions from snapshots.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use colocation::{
    Aggressor, Cause, ContainerUsage, HarmMeter, Harms, Pair, PairMeter, Suggestions,
};
use kubepods::model::ContainerKind;
use snapshot::{
    ContainerIdentity, ContainerRow, CpuLimit, InterferenceRow, Limit, Losses, NodeSnapshot,
    NodeWaits, PodIdentity, SpecRow, TraceMode, TraceRow,
};

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

fn pair(victim: &str, aggressor: &str, lost: f64, facts: Aggressor) -> Pair {
    Pair { victim: victim.to_owned(), aggressor: aggressor.to_owned(), lost, facts }
}

#[test]
fn pairs_have_the_facts_of_the_aggressor() {
    let (mut meter, start) = (PairMeter::default(), start());
    let spec = SpecRow { kind: ContainerKind::App, ..SpecRow::default() };
    let mut read = |seconds: u64, spec: SpecRow| {
        let pairs = vec![
            interference("a", "b", 200 * seconds),
            interference("a", "be1", 100 * seconds),
            interference("a", "c", seconds),
            interference("a", "", 500 * seconds),
            interference("be1", "b", 500 * seconds),
        ];
        let mut b = container("b", "Burstable", 1_500 * seconds);
        b.spec = Some(spec);
        b.cpu_limit = Limit::Limited(CpuLimit { cores: 2.0, period_usec: 100_000 });
        (b.request_cores, b.runnable_threads) = (Some(0.5), Some(4));
        let rows = vec![container("a", "Burstable", 800 * seconds), b];
        let at = start + Duration::from_secs(seconds);
        meter.read(&snapshot(at, TraceMode::Continuous, pairs, rows), is_best_effort)
    };
    assert_eq!(read(0, spec), None);
    let pairs = read(10, spec).unwrap();
    let names: Vec<_> = pairs.iter().map(|pair| (&*pair.victim, &*pair.aggressor)).collect();
    assert_eq!(names, [("n/a", "n/b"), ("n/a", "n/be1")], "c is noise, and the system is no pod");
    assert!((pairs[0].lost - 0.2).abs() < 1e-9, "{pairs:?}");
    let facts = Aggressor {
        request_cores: Some(0.5),
        used_cores: 1.5,
        limit_cores: Some(2.0),
        runnable_threads: Some(4),
    };
    assert_eq!(pairs[0].facts, facts);
    let pod_level = read(20, SpecRow { pod_requests_cpu: true, ..spec }).unwrap();
    assert_eq!(pod_level[0].facts.request_cores, None, "the request of the pod is not in the row");
}

#[test]
fn a_lasting_pair_is_suggested_once_in_ten_minutes() {
    let mut suggestions = Suggestions::default();
    let times: Vec<u64> = (0..1400)
        .filter(|&second| {
            let pairs = [pair("n/a", "n/b", 0.2, Aggressor::default())];
            !suggestions.tick(Duration::from_secs(second), pairs, |_| false).is_empty()
        })
        .collect();
    assert_eq!(times, [60, 660, 1260]);
    let mut in_force = |second| suggestions.in_force(Duration::from_secs(second)).count();
    assert_eq!((in_force(1859), in_force(1860)), (1, 0));
}

#[test]
fn best_effort_aggressors_and_brief_harm_are_not_suggested() {
    let mut suggestions = Suggestions::default();
    for second in 0..300 {
        let brief = if second % 50 == 0 { 0.0 } else { 0.3 };
        let pairs = [
            pair("n/a", "n/be", 0.5, Aggressor::default()),
            pair("n/a", "n/b", brief, Aggressor::default()),
            pair("n/a", "n/c", 0.04, Aggressor::default()),
        ];
        let due = suggestions.tick(Duration::from_secs(second), pairs, |pod| pod == "n/be");
        assert_eq!(due, []);
    }
}

#[test]
fn suggestions_name_the_likely_cause() {
    let facts = |request_cores, used_cores, limit_cores, runnable_threads| Aggressor {
        request_cores,
        used_cores,
        limit_cores,
        runnable_threads,
    };
    for (facts, cause) in [
        (
            facts(Some(0.0), 0.5, None, None),
            Cause::RequestBelowUse { request_cores: 0.0, used_cores: 0.5 },
        ),
        (
            facts(Some(1.0), 2.0, Some(2.0), Some(9)),
            Cause::RequestBelowUse { request_cores: 1.0, used_cores: 2.0 },
        ),
        (
            facts(Some(2.0), 1.0, Some(1.5), Some(8)),
            Cause::ParallelismAboveLimit { threads: 8, limit_cores: 1.5 },
        ),
        (facts(Some(2.0), 2.1, Some(4.0), Some(4)), Cause::WithinRequest),
        (facts(Some(2.0), 1.0, None, Some(64)), Cause::WithinRequest),
        (facts(None, 8.0, None, None), Cause::UnknownRequest),
    ] {
        let mut suggestions = Suggestions::default();
        let mut tick = |second| {
            let pairs = [pair("n/a", "n/b", 0.2, facts)];
            suggestions.tick(Duration::from_secs(second), pairs, |_| false)
        };
        assert_eq!(tick(0), []);
        assert_eq!(tick(60)[0].cause, cause, "{facts:?}");
    }
}
