use std::time::Duration;

use proptest::prelude::*;
use snapshot::{
    ContainerIdentity, ContainerWaits, InterferenceRow, Losses, PodIdentity, Threads, TraceRow,
};

use super::*;

const MS: u64 = 1_000_000;

fn interference(victim: &str, aggressor: &str, wait_ms: u64) -> InterferenceRow {
    let victim =
        PodIdentity { namespace: "n".into(), pod: victim.into(), ..PodIdentity::default() };
    InterferenceRow {
        victim: Arc::new(victim),
        aggressor_namespace: "n".into(),
        aggressor_pod: aggressor.into(),
        wait_ns: wait_ms * MS,
    }
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
    let identity = Arc::new(ContainerIdentity {
        labels: name.into(),
        namespace: "n".into(),
        pod: name.into(),
        qos_class: qos_class.into(),
        best_effort: qos_class == "BestEffort",
        ..ContainerIdentity::default()
    });
    let threads = Threads::Counted(threads);
    (ContainerRow { identity, live: true, threads, ..ContainerRow::default() }, waits)
}

fn pressure(
    meter: &mut PressureMeter,
    now: Instant,
    mode: TraceMode,
    containers: &[Waiting],
    interference: Vec<InterferenceRow>,
) -> Vec<PressureRow> {
    let trace = TraceRow { mode, run_ns: 0, switches: 0, losses: Losses::default() };
    let labeled = |(row, waits): &Waiting| (row.identity.labels.clone(), Arc::new(*waits));
    let by_labels = containers.iter().map(labeled).collect();
    let waits = NodeWaits {
        containers: by_labels,
        interference,
        trace: Some(trace),
        ..NodeWaits::default()
    };
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
    let (mut meter, start) = (PressureMeter::default(), Instant::now());
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
    let (mut meter, start) = (PressureMeter::default(), Instant::now());
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
        let (mut meter, start) = (PressureMeter::default(), Instant::now());
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
        let mut pairs = BTreeMap::<(usize, usize), u64>::new();
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
        let (mut meter, start) = (PressureMeter::default(), Instant::now());
        pressure(&mut meter, start, TraceMode::Continuous, &idle, rows(0));
        let end = start + Duration::from_millis(40);
        let read = pressure(&mut meter, end, TraceMode::Continuous, &containers, rows(1));
        let (lower, upper) = of(&read, PressureScope::Burstable);
        prop_assert!(lower <= exact + 1e-9 && exact <= upper + 1e-9, "{lower} {exact} {upper}");
    }
}
