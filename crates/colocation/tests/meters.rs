//! Harm, pressure and suggestions from snapshots.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use colocation::{
    Aggressor, Cause, ClassPressure, HarmMeter, Pair, PressureMeter, QosClass, Suggestions,
};
use proptest::prelude::*;
use snapshot::{
    ContainerIdentity, ContainerRow, ContainerWaits, InterferenceRow, Losses, NodeSnapshot,
    NodeWaits, PodIdentity, TraceMode, TraceRow,
};

const MS: u64 = 1_000_000;

#[expect(clippy::disallowed_methods, reason = "any moment will do: only differences are read")]
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
        ..ContainerIdentity::default()
    };
    ContainerRow {
        identity: Arc::new(identity),
        live: true,
        usage_ns: Some(usage_ms * MS),
        threads: Some(1),
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
    let waits =
        NodeWaits { containers: HashMap::new(), interference, trace: Some(trace), feature: None };
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
        meter.read(&snapshot(at, TraceMode::Continuous, pairs, rows), is_best_effort)
    };
    assert_eq!(read(0, 500, 500, 700), None, "the first reading has no interval");
    assert_eq!(read(1, 520, 510, 800), None, "one second may fall between two polls of the trace");
    let harm = read(2, 550, 530, 1_000).unwrap();
    // a waited 2 × 50 ms and ran 300 ms; b waited 30 ms and ran 300 ms.
    assert!((harm.lost - 0.25).abs() < 1e-9, "{harm:?}");
    assert_eq!(harm.victim, "n/a");
    let harm = read(4, 559, 530, 1_001).unwrap();
    assert_eq!(harm.lost, 0.0, "18 ms in two seconds are noise: {harm:?}");
}

#[test]
fn an_untraced_node_has_no_harm_reading() {
    let (mut meter, start) = (HarmMeter::default(), start());
    let second = Duration::from_secs(1);
    let mut read = |at, mode| {
        let pairs = vec![interference("a", "be1", 500)];
        meter.read(&snapshot(at, mode, pairs, vec![]), is_best_effort)
    };
    assert_eq!(read(start, TraceMode::Continuous), None);
    assert_eq!(read(start + second, TraceMode::Detached), None);
    assert_eq!(read(start + 2 * second, TraceMode::Continuous), None, "begins from zero");
    assert!(read(start + 4 * second, TraceMode::Continuous).is_some());
    assert_eq!(meter.read(&NodeSnapshot::default(), is_best_effort), None);
}

#[test]
fn a_trace_in_bursts_is_read_once_per_cycle() {
    let (mut meter, start) = (HarmMeter::default(), start());
    let mut read = |seconds| {
        let at = start + Duration::from_secs(seconds);
        let pairs = vec![interference("a", "be1", 100 * seconds)];
        let rows = vec![container("a", "Burstable", 300 * seconds)];
        meter.read(&snapshot(at, TraceMode::Bursts { one_of: 4 }, pairs, rows), is_best_effort)
    };
    let lost: Vec<_> = (0..9).map(|second| read(second).map(|harm| harm.lost)).collect();
    let quarter = Some(0.25);
    let expected = [None, None, None, None, quarter, None, None, None, quarter];
    assert_eq!(lost, expected);
}

fn waiting(name: &str, qos_class: &str, threads: u64, waits: ContainerWaits) -> ContainerRow {
    let waits = Some(Arc::new(waits));
    ContainerRow { threads: Some(threads), waits, ..container(name, qos_class, 0) }
}

fn contended(neighbor: u64, own: u64) -> ContainerWaits {
    ContainerWaits {
        neighbor_ns: neighbor * MS,
        self_ns: own * MS,
        // Neither counts: the own quota, and an unknown cause.
        throttled_ns: 900_000 * MS * (neighbor + own),
        unattributed_ns: 900_000 * MS * (neighbor + own),
        ..ContainerWaits::default()
    }
}

#[test]
fn pressure_is_a_range_without_throttling() {
    let (mut meter, start) = (PressureMeter::default(), start());
    let mut read = |seconds: u64, mode| {
        let rows = vec![
            waiting("a", "Burstable", 4, contended(200 * seconds, 200 * seconds)),
            waiting("b", "Burstable", 1, contended(50 * seconds, 0)),
            waiting("c", "BestEffort", 1, contended(3_000 * seconds, 0)),
        ];
        let at = start + Duration::from_secs(seconds);
        meter.read(&snapshot(at, mode, vec![], rows))
    };
    assert_eq!(read(0, TraceMode::Continuous), None);
    let pressure = read(1, TraceMode::Continuous).unwrap();
    let classes: Vec<QosClass> = pressure.iter().map(|(class, _)| *class).collect();
    assert_eq!(classes, [QosClass::Burstable, QosClass::BestEffort]);
    let burstable = pressure[0].1;
    assert!((burstable.lower - 0.1).abs() < 1e-9, "0.4 s of four threads: {burstable:?}");
    assert!((burstable.upper - 0.45).abs() < 1e-9, "{burstable:?}");
    assert_eq!(pressure[1].1, ClassPressure { lower: 1.0, upper: 1.0 });
    assert_eq!(read(2, TraceMode::Bursts { one_of: 4 }), None, "estimates bound nothing");
}

#[test]
fn the_union_of_classes_is_a_range_too() {
    let range = |lower, upper| ClassPressure { lower, upper };
    let all = ClassPressure::union([range(0.1, 0.4), range(0.3, 0.3)]);
    assert!((all.lower - 0.3).abs() < 1e-9 && (all.upper - 0.7).abs() < 1e-9, "{all:?}");
    assert_eq!(ClassPressure::union([]), range(0.0, 0.0));
    assert_eq!(ClassPressure::union([range(0.9, 0.9), range(0.8, 0.8)]).upper, 1.0);
}

proptest! {
    /// Simulates waits of threads on a grid of milliseconds and compares with the exact union.
    #[test]
    fn the_exact_union_lies_in_the_range(
        containers in proptest::collection::vec(
            proptest::collection::vec((0..1000usize, 0..400usize), 1..4), 1..5),
    ) {
        let mut union = vec![false; 1000];
        let rows = |scale: u64| -> Vec<ContainerRow> {
            containers.iter().enumerate().map(|(i, threads)| {
                let waited: usize =
                    threads.iter().map(|&(begin, length)| (begin + length).min(1000) - begin).sum();
                let waits = contended(waited as u64 * scale, 0);
                waiting(&i.to_string(), "Burstable", threads.len() as u64, waits)
            }).collect()
        };
        for &(begin, length) in containers.iter().flatten() {
            union[begin..(begin + length).min(1000)].fill(true);
        }
        let exact = union.iter().filter(|waits| **waits).count() as f64 / 1000.0;
        let (mut meter, start) = (PressureMeter::default(), start());
        meter.read(&snapshot(start, TraceMode::Continuous, vec![], rows(0)));
        let end = start + Duration::from_secs(1);
        let pressure = meter.read(&snapshot(end, TraceMode::Continuous, vec![], rows(1))).unwrap();
        let ClassPressure { lower, upper } = pressure[0].1;
        prop_assert!(lower <= exact + 1e-9 && exact <= upper + 1e-9, "{lower} {exact} {upper}");
    }
}

fn pair(victim: &str, aggressor: &str, lost: f64, facts: Aggressor) -> Pair {
    Pair { victim: victim.to_owned(), aggressor: aggressor.to_owned(), lost, facts }
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
            facts(None, 0.5, None, None),
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
