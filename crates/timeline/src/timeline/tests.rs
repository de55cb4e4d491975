//! Tests of the timeline on hand-made snapshots.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::time::UNIX_EPOCH;

use api::{BestEffort, Bounds, ContainerFrame, ContainerName, KEPT, Measure};
use snapshot::{
    Bandwidth, CfsTotals, ContainerRow, ContainerWaits, CpuLimit, CpuPlace, InterferenceRow, Limit,
    Losses, NodeWaits, PodIdentity, PressureRow, PressureScope, Quota, TraceMode, TraceRow,
};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn timeline(containers: usize) -> Timeline {
    Timeline::new(TimelineConfig { node: "n1".into(), containers, pairs: 4 })
}

fn identity(pod: &str) -> Arc<ContainerIdentity> {
    Arc::new(ContainerIdentity {
        labels: format!("namespace=\"shop\",pod=\"{pod}\",container=\"app\"").into(),
        namespace: "shop".into(),
        pod: pod.into(),
        container: "app".into(),
        uid: format!("uid-{pod}"),
        ..ContainerIdentity::default()
    })
}

/// A container that has used half a core, was throttled in a quarter of its periods, and waited
/// 100 ms per second for a neighbor.
fn row(pod: &str, second: u64) -> ContainerRow {
    let cfs = CfsTotals {
        periods: 10 * second,
        throttled_periods: 5 * second / 2,
        throttled_ns: second * 200_000_000,
        ..CfsTotals::default()
    };
    let waits = ContainerWaits { neighbor_ns: second * 100_000_000, ..ContainerWaits::default() };
    ContainerRow {
        identity: identity(pod),
        live: true,
        usage_ns: Some(second * 500_000_000),
        cfs: Some(cfs),
        bandwidth: Some(Bandwidth { quota: Quota::Max, period_usec: 100_000 }),
        cpu_limit: Limit::Limited(CpuLimit { cores: 0.5, period_usec: 100_000 }),
        waits: Some(Arc::new(waits)),
        ..ContainerRow::default()
    }
}

fn waits(second: u64) -> NodeWaits {
    let row = InterferenceRow {
        victim: Arc::new(PodIdentity {
            labels: "namespace=\"shop\",pod=\"web\"".into(),
            namespace: "shop".into(),
            pod: "web".into(),
        }),
        aggressor_namespace: "batch".into(),
        aggressor_pod: "hog".into(),
        wait_ns: second * 100_000_000,
    };
    let losses = Losses::default();
    let trace = TraceRow { mode: TraceMode::Continuous, run_ns: 0, switches: 0, losses };
    let pressure = PressureRow {
        scope: PressureScope::Node,
        lower_ns: second * 100_000_000,
        upper_ns: second * 300_000_000,
        lower: 0.1,
        upper: 0.3,
    };
    NodeWaits {
        interference: vec![row],
        pressure: vec![pressure],
        trace: Some(trace),
        ..NodeWaits::default()
    }
}

fn snapshot(start: Instant, second: u64, pods: &[&str]) -> NodeSnapshot {
    NodeSnapshot {
        sequence: second + 1,
        taken: Some(UNIX_EPOCH + Duration::from_secs(second)),
        read_at: Some(start + Duration::from_secs(second)),
        interval: SECOND,
        containers: pods.iter().map(|pod| row(pod, second)).collect(),
        waits: Arc::new(waits(second)),
        ..NodeSnapshot::default()
    }
}

fn is_about(actual: Option<f64>, expected: f64) -> bool {
    actual.is_some_and(|actual| (actual - expected).abs() <= expected * 1e-3)
}

#[test]
fn a_frame_has_the_rates_of_its_second() {
    let (timeline, start) = (timeline(8), Instant::now());
    assert_eq!(timeline.observe(&snapshot(start, 0, &["web"])), None);
    assert_eq!(timeline.latest(), None);
    assert_eq!(timeline.observe(&snapshot(start, 4, &["web"])), Some(2));
    let frame = timeline.latest().unwrap();
    assert_eq!((frame.at_ms, frame.seconds), (4000, 4.0));
    assert_eq!(frame.node.trace.mode, "continuous");
    let contention = frame.node.contention;
    assert_eq!(contention.node, Some(Bounds { lower: 0.1, upper: 0.3 }));
    assert_eq!(contention.burstable, None, "absent is not zero");
    let row = &frame.containers[0];
    assert_eq!(
        (row.pod.as_str(), row.uid.as_str(), row.limit_cores),
        ("web", "uid-web", Some(0.5))
    );
    let rates = row.rates;
    assert!(is_about(rates.usage_cores, 0.5), "{rates:?}");
    assert!(is_about(rates.throttled_share, 0.25), "{rates:?}");
    assert!(is_about(rates.throttled_own, 0.2), "{rates:?}");
    assert!(is_about(rates.neighbor, 0.1), "{rates:?}");
    assert_eq!(rates.throttled_ancestor, None);
    assert!((rates.lost() - 0.3).abs() < 1e-3);
    let pair = &frame.interference[0];
    assert_eq!((&*pair.victim.pod, &*pair.aggressor.pod), ("web", "hog"));
    assert!(is_about(Some(pair.wait), 0.1));
}

#[test]
fn actions_are_in_the_next_frame() {
    let (timeline, start) = (timeline(8), Instant::now());
    timeline.observe(&snapshot(start, 0, &["web"]));
    let best_effort = Some(BestEffort { step: 1, enforcing: true });
    let bursts = vec![ContainerName { uid: "uid-web".into(), container: "app".into() }];
    let yields = vec!["uid-batch".to_owned()];
    timeline.set_colocation(Colocation { best_effort, yields, bursts });
    timeline.observe(&snapshot(start, 1, &["web", "batch"]));
    let frame = timeline.latest().unwrap();
    let actions = &frame.node.colocation;
    let of = |row: &ContainerFrame| (row.pod.clone(), actions.yields(row), actions.bursts(row));
    let marked: Vec<_> = frame.containers.iter().map(of).collect();
    let expected = [("batch".to_owned(), true, false), ("web".to_owned(), false, true)];
    assert_eq!(marked, expected);
}

#[test]
fn the_load_of_the_cpus_is_read_only_for_a_view_and_once_per_frame() {
    let (timeline, start) = (timeline(8), Instant::now());
    let reads = Cell::new(0);
    let second = |second: u64| {
        let snapshot = node_in(start, second);
        let times = || {
            reads.set(reads.get() + 1);
            vec![CpuTimes { busy_ms: 250 * second, total_ms: 1000 * second }]
        };
        timeline.observe_with(&snapshot, times);
        // Another snapshot of the same tick, as when a container gets its name.
        timeline.observe_with(&snapshot, times);
    };
    let busy = || timeline.latest().and_then(|frame| frame.node.cpus[0].busy);
    (0..3).for_each(second);
    assert_eq!(reads.get(), 0, "no view is open");
    assert_eq!(busy(), None);
    second(3);
    assert_eq!((reads.get(), busy()), (1, None), "the first reading has none before it");
    second(4);
    assert_eq!((reads.get(), busy()), (2, Some(0.25)));
}

#[test]
fn ticks_below_a_second_make_frames_of_a_second() {
    let (timeline, start) = (timeline(8), Instant::now());
    let at = |tenths: u64| NodeSnapshot {
        read_at: Some(start + Duration::from_millis(100 * tenths)),
        interval: Duration::from_millis(100),
        ..snapshot(start, 0, &["web"])
    };
    let frames = (0..=30).filter_map(|tenths| timeline.observe(&at(tenths))).count();
    assert_eq!(frames, 3);
}

#[test]
fn recorded_frames_make_the_same_history() {
    let (observed, start) = (timeline(8), Instant::now());
    for second in 0..=20 {
        let pods: &[&str] = if second < 10 { &["api", "web"] } else { &["web"] };
        observed.observe(&snapshot(start, second, pods));
    }
    let span = Duration::from_secs(60);
    let frames: Vec<Frame> = observed.frames(span).collect();
    assert_eq!(frames.len(), 20);
    let replayed = timeline(8);
    let mut numbers = replayed.subscribe();
    for frame in &frames {
        replayed.add(frame);
        assert!(numbers.has_changed().unwrap(), "views are notified");
        numbers.mark_unchanged();
    }
    assert_eq!(replayed.frames(span).collect::<Vec<_>>(), frames);
    assert_eq!(replayed.latest(), observed.latest());
    assert_eq!(replayed.aggressors(span), observed.aggressors(span));
    let points =
        |timeline: &Timeline| timeline.points(|_| true, &last_ten_minutes(&Measure::ALL, 4));
    assert_eq!(points(&replayed), points(&observed));
}

#[test]
fn past_frames_come_from_the_history() {
    let (timeline, start) = (timeline(8), Instant::now());
    for second in 0..=20 {
        let pods: &[&str] = if second < 10 { &["api", "web"] } else { &["web"] };
        timeline.observe(&snapshot(start, second, pods));
    }
    let frames: Vec<Frame> = timeline.frames(Duration::from_secs(15)).collect();
    assert_eq!(
        frames.iter().map(|frame| frame.at_ms).collect::<Vec<_>>(),
        (6..=20).map(|s| s * 1000).collect::<Vec<_>>()
    );
    let names = |frame: &Frame| -> Vec<String> {
        frame.containers.iter().map(|row| row.pod.clone()).collect()
    };
    assert_eq!(names(&frames[3]), ["api", "web"]);
    assert_eq!(names(&frames[4]), ["web"]);
    let row = &frames[0].containers[1];
    assert!(is_about(row.rates.usage_cores, 0.5) && is_about(row.limit_cores, 0.5), "{row:?}");
    assert_eq!(row.rates.throttled_ancestor, None, "absent stays absent");
    assert!(is_about(Some(frames[0].interference[0].wait), 0.1));
    let aggressors = timeline.aggressors(Duration::from_secs(10));
    assert!(is_about(Some(aggressors[0].seconds), 1.0), "{aggressors:?}");
}

#[test]
fn a_container_that_sleeps_has_a_value_in_each_frame() {
    let (timeline, start) = (timeline(8), Instant::now());
    for second in 0..=20_u64 {
        let mut snapshot = snapshot(start, second, &["web"]);
        // It sleeps after the fifth second and from the 16th on, and its limit is raised meanwhile.
        let worked = second.min(5) + second.clamp(12, 15) - 12;
        snapshot.containers = vec![row("web", worked)];
        if second >= 9 {
            let limit = CpuLimit { cores: 2.0, period_usec: 100_000 };
            snapshot.containers[0].cpu_limit = Limit::Limited(limit);
        }
        timeline.observe(&snapshot);
    }
    let frames: Vec<Frame> = timeline.frames(Duration::from_secs(60)).collect();
    assert_eq!(frames.len(), 20);
    for (second, frame) in (1..).zip(&frames) {
        let row = &frame.containers[0];
        let works = second <= 5 || (13..=15).contains(&second);
        let (cores, limit) = (if works { 0.5 } else { 0.0 }, if second < 9 { 0.5 } else { 2.0 });
        assert!(is_about(row.rates.usage_cores, cores), "{second}: {row:?}");
        assert!(is_about(row.limit_cores, limit), "{second}: {row:?}");
    }
    assert_eq!(timeline.latest().unwrap().containers[0].rates.usage_cores, Some(0.0));
}

#[test]
fn repeated_values_follow_gaps_restarts_and_limits() {
    let (timeline, start) = (timeline(8), Instant::now());
    let (mut expected, mut used, mut was_read, mut random) = (Vec::new(), 0, true, 1_u64);
    let mut cores = 0.5;
    for second in 0..=600_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut snapshot = snapshot(start, second, &["web"]);
        let before = used;
        let mut is_read = true;
        match random >> 60 {
            0 => used += 1,
            1 => is_read = second == 0,
            2 => cores = 2.5 - cores,
            // The counters begin at zero.
            3 if second > 0 => used = 0,
            _ => {}
        }
        snapshot.containers = vec![row("web", used)];
        snapshot.containers[0].live = is_read;
        let limit = CpuLimit { cores, period_usec: 100_000 };
        snapshot.containers[0].cpu_limit = Limit::Limited(limit);
        timeline.observe(&snapshot);
        let rate = used.saturating_sub(before) as f64 * 0.5;
        expected.push(is_read.then_some((was_read.then_some(rate), cores)));
        was_read = is_read;
    }
    let frames: Vec<Frame> = timeline.frames(Duration::from_secs(700)).collect();
    assert_eq!(frames.len(), 600);
    for (second, (frame, expected)) in (1..).zip(frames.iter().zip(&expected[1..])) {
        let row = frame.containers.iter().find(|row| row.rates.usage_cores.is_some());
        let wanted = expected.and_then(|(rate, cores)| Some((rate?, cores)));
        assert_eq!(row.is_some(), wanted.is_some(), "{second}: {row:?}");
        if let Some((row, (rate, cores))) = row.zip(wanted) {
            assert!(is_about(row.rates.usage_cores, rate), "{second}: {row:?}");
            assert!(is_about(row.limit_cores, cores), "{second}: {row:?}");
        }
    }
}

/// The node in a second: its values, and from the tenth on bursts instead of a continuous trace,
/// and a pod that yields.
fn node_in(start: Instant, second: u64) -> NodeSnapshot {
    let mut snapshot = snapshot(start, second, &[]);
    let mut waits = waits(second);
    waits.pressure[0].upper = second as f64 / 100.0;
    if second >= 10 {
        waits.trace =
            waits.trace.map(|trace| TraceRow { mode: TraceMode::Bursts { one_of: 10 }, ..trace });
    }
    snapshot.waits = Arc::new(waits);
    // 10 ms more in each second.
    let total_ns = 5_000_000 * second * (second + 1);
    snapshot.node.pressure_waiting_ns = Some(total_ns);
    snapshot.node.steal_ns = Some(2 * total_ns);
    snapshot.node.cpu_info = vec![CpuPlace { cpu: 3, socket: Some(1), ..CpuPlace::default() }];
    snapshot
}

#[test]
fn past_frames_have_the_state_of_the_node_in_their_second() {
    let (timeline, start) = (timeline(8), Instant::now());
    for second in 0..=20 {
        if second == 10 {
            let best_effort = Some(BestEffort { step: 2, enforcing: true });
            timeline.set_colocation(Colocation { best_effort, ..Colocation::default() });
        }
        timeline.observe(&node_in(start, second));
    }
    let frames: Vec<Frame> = timeline.frames(Duration::from_secs(20)).collect();
    assert_eq!(frames.len(), 20);
    for (second, frame) in (1..).zip(&frames) {
        let (node, share) = (&frame.node, f64::from(second) / 100.0);
        assert_eq!(node.name, "n1");
        assert!(is_about(node.pressure, share) && is_about(node.steal, 2.0 * share), "{node:?}");
        assert_eq!(node.contention.node, Some(Bounds { lower: 0.1, upper: share }));
        let step = node.colocation.best_effort.as_ref().map(|state| state.step);
        let expected = if second < 10 { ("continuous", None) } else { ("bursts", Some(2)) };
        assert_eq!((node.trace.mode.as_str(), step), expected, "{second}");
        assert_eq!((node.cpus[0].cpu, node.cpus[0].socket), (3, Some(1)));
    }
}

#[test]
fn frames_after_a_number_are_those_that_are_still_kept() {
    let (timeline, start) = (timeline(8), Instant::now());
    let kept = KEPT as u64;
    let observe = |seconds: RangeInclusive<u64>| {
        for second in seconds {
            timeline.observe(&snapshot(start, second, &["web"]));
        }
    };
    let times = |frames: &mut dyn Iterator<Item = Frame>| -> Vec<u64> {
        frames.map(|frame| frame.at_ms / 1000).collect()
    };
    let mut last = 0;
    assert!(times(&mut timeline.frames_after(&mut last)).is_empty());
    observe(0..=3);
    assert_eq!(times(&mut timeline.frames_after(&mut last)), [1, 2, 3]);
    assert!(times(&mut timeline.frames_after(&mut last)).is_empty());
    observe(4..=5);
    assert_eq!(times(&mut timeline.frames_after(&mut last)), [4, 5]);
    assert_eq!(last, *timeline.subscribe().borrow());
    // While they are taken, the history continues: frames that were replaced are left out.
    let mut slow = timeline.frames_after(&mut 0);
    assert_eq!(slow.next().map(|frame| frame.at_ms), Some(1000));
    observe(6..=kept + 2);
    assert_eq!(times(&mut slow), [3, 4, 5]);
    assert_eq!(times(&mut timeline.frames_after(&mut last)), (6..=kept + 2).collect::<Vec<_>>());
}

fn last_ten_minutes(measures: &[Measure], aggressors: usize) -> Selection<'_> {
    Selection { measures, aggressors, span: Duration::from_secs(600) }
}

#[test]
fn series_have_gaps_and_omit_measures_without_values() {
    let (timeline, start) = (timeline(8), Instant::now());
    for second in 0..=6 {
        let pods: &[&str] = if second == 3 { &[] } else { &["web"] };
        timeline.observe(&snapshot(start, second, pods));
    }
    let measures = [Measure::UsageCores, Measure::Smt];
    let points = timeline.points(|row| row.uid == "uid-web", &last_ten_minutes(&measures, 0));
    assert_eq!(points.at_ms, [1000, 2000, 3000, 4000, 5000, 6000]);
    let series = &points.containers[0].measures;
    assert_eq!(series.keys().copied().collect::<Vec<_>>(), [Measure::UsageCores]);
    let known: Vec<bool> = series[&Measure::UsageCores].iter().map(Option::is_some).collect();
    // The rate of the fourth second is unknown, too: the third is missing.
    assert_eq!(known, [true, true, false, false, true, true]);
}

#[test]
fn the_worst_aggressors_of_a_pod_are_known_second_by_second() {
    let (timeline, start) = (timeline(8), Instant::now());
    let by = |aggressor: &str, milliseconds: u64| InterferenceRow {
        aggressor_pod: aggressor.into(),
        wait_ns: milliseconds * 1_000_000,
        ..waits(0).interference.remove(0)
    };
    let traced = |second: u64, interference| NodeSnapshot {
        waits: Arc::new(NodeWaits { interference, ..waits(0) }),
        ..snapshot(start, second, &["web", "api"])
    };
    timeline.observe(&traced(0, vec![by("hog", 0)]));
    timeline.observe(&traced(1, vec![by("hog", 100)]));
    // The kernel's tables have no entry of a pair that has not waited.
    timeline.observe(&traced(2, vec![by("late", 700)]));
    let mut untraced = snapshot(start, 3, &["web"]);
    untraced.waits = Arc::default();
    untraced.containers[0].waits = None;
    timeline.observe(&untraced);
    let points = |select: fn(&ContainerIdentity) -> bool, most| {
        timeline.points(select, &last_ten_minutes(&[], most))
    };
    let pairs = points(|row| row.pod == "web", 5).pairs;
    let names: Vec<&str> = pairs.iter().map(|pair| pair.aggressor.pod.as_str()).collect();
    assert_eq!(names, ["late", "hog"], "the longest wait first");
    assert!(is_about(pairs[0].wait[1], 0.7) && is_about(pairs[1].wait[0], 0.1), "{pairs:?}");
    assert_eq!((pairs[0].wait[0], pairs[1].wait[1]), (Some(0.0), Some(0.0)), "it did not wait");
    assert_eq!((pairs[0].wait[2], pairs[0].wait.len()), (None, 3), "not traced is not zero");
    assert_eq!(points(|row| row.pod == "web", 1).pairs.len(), 1);
    assert_eq!(points(|_| true, 0).pairs, []);
    assert_eq!(points(|row| row.pod == "api", 5).pairs, [], "no victim");
}

#[test]
fn containers_without_a_place_are_counted() {
    let (timeline, start) = (timeline(1), Instant::now());
    timeline.observe(&snapshot(start, 0, &["api", "web"]));
    timeline.observe(&snapshot(start, 1, &["api", "web"]));
    assert_eq!(timeline.latest().unwrap().containers.len(), 1);
    assert_eq!(timeline.dropped(), 2);
}

#[test]
fn a_frame_survives_json() {
    let (timeline, start) = (timeline(8), Instant::now());
    for second in 0..=2 {
        timeline.observe(&snapshot(start, second, &["web"]));
    }
    let frame = timeline.latest().unwrap();
    let json = serde_json::to_string(&frame).unwrap();
    assert!(json.contains("\"self\":0.0") && !json.contains("null"), "{json}");
    assert_eq!(serde_json::from_str::<Frame>(&json).unwrap(), frame);
    // A recording of a version that has more, or less.
    let other = "{\"atMs\":5,\"news\":1,\"containers\":[{\"pod\":\"a\",\"usageCores\":1.5}]}";
    let frame: Frame = serde_json::from_str(other).unwrap();
    assert_eq!((frame.at_ms, frame.containers[0].rates.usage_cores), (5, Some(1.5)));
}
