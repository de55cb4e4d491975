//! Harm, pressure and suggestions from snapshots.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use colocation::{
    Aggressor, Cause, ContainerUsage, HarmMeter, Pair, PairMeter, PressureMeter, Suggestions,
};
use kubepods::model::ContainerKind;
use proptest::prelude::*;
use snapshot::{
    ContainerIdentity, ContainerRow, ContainerWaits, InterferenceRow, Losses, NodeSnapshot,
    NodeWaits, PodIdentity, PressureRow, PressureScope, SpecRow, TraceMode, TraceRow,
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
        best_effort: qos_class == "BestEffort",
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
        meter.read(&snapshot(at, TraceMode::Continuous, pairs, rows), is_best_effort)
    };
    assert_eq!(read(0, 1_000, Some(50_000)), None);
    let harm = read(2, 1_600, None).unwrap();
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

/// Container with its waits.
type Waiting = (ContainerRow, ContainerWaits);

fn waiting(name: &str, qos_class: &str, threads: u64, waits: ContainerWaits) -> Waiting {
    (ContainerRow { threads: Some(threads), ..container(name, qos_class, 0) }, waits)
}

fn pressure(
    meter: &mut PressureMeter,
    now: Instant,
    mode: TraceMode,
    containers: &[Waiting],
    interference: Vec<InterferenceRow>,
) -> Vec<PressureRow> {
    let node = snapshot(now, mode, interference, Vec::new());
    let labeled = |(row, waits): &Waiting| (row.identity.labels.clone(), Arc::new(*waits));
    let by_labels = containers.iter().map(labeled).collect();
    let waits = NodeWaits { containers: by_labels, ..(*node.waits).clone() };
    let rows: Vec<ContainerRow> = containers.iter().map(|(row, _)| row.clone()).collect();
    meter.read(now, &waits, &rows)
}

fn of(rows: &[PressureRow], scope: PressureScope) -> (f64, f64) {
    let row = rows.iter().find(|row| row.scope == scope).unwrap();
    (row.lower, row.upper)
}

fn is_about(actual: (f64, f64), expected: (f64, f64)) -> bool {
    (actual.0 - expected.0).abs() < 1e-9 && (actual.1 - expected.1).abs() < 1e-9
}

#[test]
fn pressure_is_a_range_without_throttling() {
    let (mut meter, start) = (PressureMeter::default(), start());
    let mut read = |seconds: u64, mode| {
        let rows = [
            waiting("a", "Burstable", 4, contended(200 * seconds, 200 * seconds)),
            waiting("b", "Burstable", 1, contended(50 * seconds, 0)),
            waiting("c", "BestEffort", 1, contended(3_000 * seconds, 0)),
        ];
        pressure(&mut meter, start + Duration::from_secs(seconds), mode, &rows, vec![])
    };
    assert_eq!(read(0, TraceMode::Continuous), []);
    let rows = read(1, TraceMode::Continuous);
    let scopes: Vec<PressureScope> = rows.iter().map(|row| row.scope).collect();
    let (node, burstable) = (PressureScope::Node, PressureScope::Burstable);
    assert_eq!(scopes, [node, burstable, PressureScope::BestEffort]);
    assert!(is_about(of(&rows, burstable), (0.1, 0.45)), "0.4 s of four threads: {rows:?}");
    assert_eq!(of(&rows, PressureScope::BestEffort), (1.0, 1.0));
    assert_eq!(of(&rows, node), of(&rows, burstable), "best effort is not latency-sensitive");
    assert_eq!(read(2, TraceMode::Bursts { one_of: 4 }), [], "estimates bound nothing");
    assert_eq!(read(3, TraceMode::Continuous), [], "a new baseline");
    let rows = read(5, TraceMode::Continuous);
    assert!(is_about(of(&rows, node), (0.1, 0.45)), "{rows:?}");
    let near = |counter: u64, ms: u64| counter.abs_diff(ms * MS) < 10;
    assert!(near(rows[0].lower_ns, 300) && near(rows[0].upper_ns, 1350), "{rows:?}");
}

#[test]
fn burstable_batch_pods_wait_in_their_class_and_not_in_the_node() {
    let (mut meter, start) = (PressureMeter::default(), start());
    let mut read = |seconds: u64| {
        let mut batch = waiting("b", "Burstable", 1, contended(400 * seconds, 0));
        Arc::make_mut(&mut batch.0.identity).best_effort = true;
        let rows = [waiting("a", "Burstable", 1, contended(100 * seconds, 0)), batch];
        let now = start + Duration::from_secs(seconds);
        pressure(&mut meter, now, TraceMode::Continuous, &rows, vec![])
    };
    read(0);
    let rows = read(1);
    assert!(is_about(of(&rows, PressureScope::Node), (0.1, 0.1)), "{rows:?}");
    assert!(is_about(of(&rows, PressureScope::Burstable), (0.4, 0.5)), "{rows:?}");
}

#[test]
fn threads_that_wait_for_each_other_do_not_wait_at_the_same_time() {
    let read = |class_of_b: &str| {
        let (mut meter, start) = (PressureMeter::default(), start());
        let mut read = |seconds: u64| {
            let waits = contended(500 * seconds, 0);
            let rows = [waiting("a", "Burstable", 1, waits), waiting("b", class_of_b, 1, waits)];
            let pairs = [("a", "b"), ("b", "a")];
            let pairs = pairs.map(|(a, b)| interference(a, b, 500 * seconds)).to_vec();
            let now = start + Duration::from_secs(seconds);
            pressure(&mut meter, now, TraceMode::Continuous, &rows, pairs)
        };
        read(0);
        read(1)
    };
    assert!(is_about(of(&read("Burstable"), PressureScope::Burstable), (1.0, 1.0)));
    assert!(is_about(of(&read("Guaranteed"), PressureScope::Node), (1.0, 1.0)));
    let best_effort = read("BestEffort");
    assert!(is_about(of(&best_effort, PressureScope::Node), (0.5, 0.5)), "{best_effort:?}");
}

proptest! {
    /// Simulates CPUs that are shared by threads of pods in a random order, on a grid of
    /// milliseconds, and compares with the exact union.
    #[test]
    fn the_exact_union_lies_in_the_range(
        cpus in proptest::collection::vec(
            // Threads of the CPU by pod, and who is ready at each of 40 moments.
            (proptest::collection::vec(0..4usize, 1..4),
             proptest::collection::vec(0..64u8, 40..41)), 1..3),
    ) {
        const PODS: [&str; 4] = ["a", "b", "c", "d"];
        let (mut exact, mut waits) = (0, [ContainerWaits::default(); 4]);
        let mut pairs = std::collections::BTreeMap::<(usize, usize), u64>::new();
        for moment in 0..40 {
            let mut has_waiter = false;
            for (threads, ready) in &cpus {
                let is_ready = |at: &usize| ready[moment] >> at & 1 == 1;
                let mut ready = (0..threads.len()).filter(is_ready);
                let Some(running) = ready.next() else { continue };
                for waiting in ready {
                    has_waiter = true;
                    let (victim, aggressor) = (threads[waiting], threads[running]);
                    if victim == aggressor {
                        waits[victim].self_ns += MS;
                    } else {
                        waits[victim].neighbor_ns += MS;
                        *pairs.entry((victim, aggressor)).or_default() += 1;
                    }
                }
            }
            exact += u32::from(has_waiter);
        }
        let exact = f64::from(exact) / 40.0;
        let containers: Vec<Waiting> = PODS.iter().enumerate().map(|(pod, name)| {
            let threads = cpus.iter().flat_map(|(threads, _)| threads);
            let count = threads.filter(|thread| **thread == pod).count();
            waiting(name, "Burstable", count as u64, waits[pod])
        }).collect();
        let rows = |ms: u64| -> Vec<InterferenceRow> {
            let pair = |(&(a, b), waited): (&(usize, usize), &u64)| {
                interference(PODS[a], PODS[b], waited * ms)
            };
            pairs.iter().map(pair).collect()
        };
        let idle: Vec<Waiting> =
            containers.iter().map(|(row, _)| (row.clone(), ContainerWaits::default())).collect();
        let (mut meter, start) = (PressureMeter::default(), start());
        pressure(&mut meter, start, TraceMode::Continuous, &idle, rows(0));
        let end = start + Duration::from_millis(40);
        let read = pressure(&mut meter, end, TraceMode::Continuous, &containers, rows(1));
        let (lower, upper) = of(&read, PressureScope::Burstable);
        prop_assert!(lower <= exact + 1e-9 && exact <= upper + 1e-9, "{lower} {exact} {upper}");
    }
}

fn pair(victim: &str, aggressor: &str, lost: f64, facts: Aggressor) -> Pair {
    Pair { victim: victim.to_owned(), aggressor: aggressor.to_owned(), lost, facts }
}

#[test]
fn pairs_have_the_facts_of_the_aggressor() {
    let (mut meter, start) = (PairMeter::default(), start());
    let spec =
        SpecRow { kind: ContainerKind::App, pod_requests_cpu: false, pod_limits_memory: false };
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
        (b.request_cores, b.limit_cores, b.runnable_threads) = (Some(0.5), Some(2.0), Some(4));
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
