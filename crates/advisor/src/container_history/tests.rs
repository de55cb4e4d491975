use analysis::{READ_EVERY_NS, READINGS, findings};
use api::{FindingKind, Runtime};
use snapshot::{Bandwidth, CfsTotals, ContainerWaits, CpuLimit, Limit, Quota, SpecRow};

use super::*;

const SECOND_NS: u64 = 1_000_000_000;
const NODE: NodeFacts = NodeFacts {
    after_seconds: 300,
    cpus: Some(8),
    lost_ns: None,
    pod_throttled: None,
    is_restricted: false,
};

/// Facts after ten minutes with this gain per second.
fn after_ten_minutes(gain: &ContainerRow) -> Facts {
    let mut subject = ContainerHistory::default();
    let grown = |value: Option<u64>, seconds: u64| value.map(|value| value * seconds);
    let at = |seconds: u64| ContainerRow {
        usage_ns: grown(gain.usage_ns, seconds),
        throttled_ancestor_ns: grown(gain.throttled_ancestor_ns, seconds),
        cfs: gain.cfs.map(|cfs| CfsTotals {
            periods: cfs.periods * seconds,
            throttled_periods: cfs.throttled_periods * seconds,
            throttled_ns: cfs.throttled_ns * seconds,
            ..cfs
        }),
        ..gain.clone()
    };
    (0..=600).for_each(|seconds| subject.observe(&at(seconds), SECOND_NS, NODE));
    subject.facts(&at(600), &NodeRow::default())
}

/// A busy thread, throttled for four fifths of the time by an ancestor's quota.
fn throttled_above() -> ContainerRow {
    ContainerRow {
        usage_ns: Some(SECOND_NS / 5),
        throttled_ancestor_ns: Some(SECOND_NS * 4 / 5),
        cpu_limit: Limit::Limited(CpuLimit { cores: 0.2, period_usec: 100_000 }),
        ..ContainerRow::default()
    }
}

fn has(facts: &Facts, kind: FindingKind) -> bool {
    findings(facts).iter().any(|finding| finding.kind == kind)
}

#[test]
fn demand_throttled_by_the_pods_quota_counts_as_demand() {
    let facts = after_ten_minutes(&throttled_above());
    assert_eq!((facts.own_limit_cores, facts.throttled_share), (None, None));
    let limit = facts.cpu.limit.expect("ten minutes suffice");
    assert!(limit.cores >= 1.0 && limit.is_lower_bound, "{limit:?}");
    assert!(
        has(&facts, FindingKind::ThrottledByAncestor)
            && !has(&facts, FindingKind::ThrottledByOwnQuota)
    );
}

#[test]
fn no_burst_is_advised_for_a_quota_that_has_not_throttled() {
    let own = ContainerRow {
        cfs: Some(CfsTotals { periods: 10, ..CfsTotals::default() }),
        bandwidth: Some(Bandwidth { quota: Quota::Usec(400_000), period_usec: 100_000 }),
        ..throttled_above()
    };
    let facts = after_ten_minutes(&own);
    assert_eq!((facts.own_limit_cores, facts.cpu.burst_seconds), (Some(4.0), None));
}

#[test]
fn idle_containers_do_not_inherit_throttling_of_neighbors() {
    let facts =
        after_ten_minutes(&ContainerRow { usage_ns: Some(SECOND_NS / 1000), ..throttled_above() });
    assert!(!has(&facts, FindingKind::ThrottledByAncestor), "{facts:?}");
    assert!(facts.cpu.limit.expect("ten minutes suffice").cores < 0.2, "{:?}", facts.cpu);
}

/// A thread that is throttled in half of its periods for ten minutes, and then has a higher limit
/// for one minute.
#[test]
fn throttling_under_an_old_limit_does_not_count_for_a_new_one() {
    let mut subject = ContainerHistory::default();
    let at = |seconds: u64, throttled: u64, quota_usec: u64| {
        let bandwidth = Bandwidth { quota: Quota::Usec(quota_usec), period_usec: 100_000 };
        ContainerRow {
            usage_ns: Some(seconds * SECOND_NS / 5),
            cfs: Some(CfsTotals {
                periods: seconds * 10,
                throttled_periods: throttled,
                ..CfsTotals::default()
            }),
            bandwidth: Some(bandwidth),
            cpu_limit: Limit::of(bandwidth),
            ..ContainerRow::default()
        }
    };
    (0..=600).for_each(|second| subject.observe(&at(second, second * 5, 20_000), SECOND_NS, NODE));
    assert!(has(
        &subject.facts(&at(600, 3000, 20_000), &NodeRow::default()),
        FindingKind::ThrottledByOwnQuota
    ));
    (601..=660).for_each(|second| subject.observe(&at(second, 3000, 100_000), SECOND_NS, NODE));
    let facts = subject.facts(&at(660, 3000, 100_000), &NodeRow::default());
    assert!(!has(&facts, FindingKind::ThrottledByOwnQuota), "{facts:?}");
}

#[test]
fn what_the_agent_takes_from_a_restricted_pod_is_no_need_of_it() {
    let at = |seconds: u64| {
        let neighbor_ns = seconds * SECOND_NS / 2;
        ContainerRow {
            usage_ns: Some(seconds * SECOND_NS / 5),
            throttled_ancestor_ns: Some(seconds * SECOND_NS / 2),
            waits: Some(Arc::new(ContainerWaits { neighbor_ns, ..ContainerWaits::default() })),
            ..throttled_above()
        }
    };
    let facts = |restricted: std::ops::RangeInclusive<u64>| {
        let mut subject = ContainerHistory::default();
        for second in 0..=600 {
            let node = NodeFacts { is_restricted: restricted.contains(&second), ..NODE };
            subject.observe(&at(second), SECOND_NS, node);
        }
        subject.facts(&at(600), &NodeRow::default())
    };
    let free = facts(601..=601);
    assert!(has(&free, FindingKind::ThrottledByAncestor));
    assert!(free.lost_cores > Some(0.4), "{free:?}");
    // Also the second in which the restriction ends.
    let restricted = facts(0..=599);
    assert!(!has(&restricted, FindingKind::ThrottledByAncestor), "{restricted:?}");
    assert_eq!(restricted.lost_cores, Some(0.0));
    assert!(restricted.cpu.request_cores < Some(0.3), "{restricted:?}");
}

#[test]
fn a_raised_limit_above_it_is_not_blamed_either() {
    let mut subject = ContainerHistory::default();
    let at = |seconds: u64, throttled_seconds: u64, cores: f64| ContainerRow {
        usage_ns: Some(seconds * SECOND_NS / 5),
        throttled_ancestor_ns: Some(throttled_seconds * SECOND_NS),
        cpu_limit: Limit::Limited(CpuLimit { cores, period_usec: 100_000 }),
        ..ContainerRow::default()
    };
    (0..=600).for_each(|second| subject.observe(&at(second, second, 0.2), SECOND_NS, NODE));
    assert!(has(
        &subject.facts(&at(600, 600, 0.2), &NodeRow::default()),
        FindingKind::ThrottledByAncestor
    ));
    (601..=660).for_each(|second| subject.observe(&at(second, 600, 1.0), SECOND_NS, NODE));
    assert!(!has(
        &subject.facts(&at(660, 600, 1.0), &NodeRow::default()),
        FindingKind::ThrottledByAncestor
    ));
}

/// A limit of 200m, and 30 ms of work three times a second: each time the quota ends after 20 ms.
/// `of_pod`: the kernel counts the throttling at the pod alone.
fn short_bursts(seconds: u64, of_pod: bool) -> (ContainerRow, Option<u64>) {
    let bandwidth = Bandwidth { quota: Quota::Usec(20_000), period_usec: 100_000 };
    let (own, above) = if of_pod { (0, seconds) } else { (seconds, 0) };
    let row = ContainerRow {
        usage_ns: Some(seconds * 90_000_000),
        cfs: Some(CfsTotals {
            periods: seconds * 9,
            throttled_periods: own * 3,
            throttled_ns: own * 240_000_000,
            ..CfsTotals::default()
        }),
        throttled_ancestor_ns: Some(above * 240_000_000),
        bandwidth: Some(bandwidth),
        cpu_limit: Limit::of(bandwidth),
        ..ContainerRow::default()
    };
    (row, of_pod.then_some(above * 3))
}

#[test]
fn a_burst_helps_against_several_short_bursts_of_work_a_second() {
    for of_pod in [false, true] {
        let mut subject = ContainerHistory::default();
        for second in 0..=30 {
            let (row, pod_throttled) = short_bursts(second, of_pod);
            subject.observe(&row, SECOND_NS, NodeFacts { pod_throttled, ..NODE });
        }
        let forecast = subject.burst_forecast(&short_bursts(30, of_pod).0, 30).unwrap();
        let share = forecast.throttled_share.unwrap();
        assert!((0.32..0.34).contains(&share), "of the pod {of_pod}: {forecast:?}");
        let without = forecast.with(0.0).unwrap();
        assert!((0.2..0.4).contains(&without), "of the pod {of_pod}: {forecast:?}");
        let best = forecast.best(0.99, OBJECTIVE).unwrap();
        assert!(forecast.with(best).unwrap() <= 0.02, "of the pod {of_pod}: {forecast:?}");
    }
}

/// A container without a limit that uses a twentieth of a core.
fn row(seconds: u64, throttled_ns: u64) -> ContainerRow {
    let cfs = Some(CfsTotals { throttled_ns, ..CfsTotals::default() });
    ContainerRow {
        live: true,
        usage_ns: Some(seconds * SECOND_NS / 20),
        cfs,
        ..ContainerRow::default()
    }
}

fn trace() -> UsageTrace {
    let readings: Vec<_> =
        (0..READINGS as u64).map(|at| (at * READ_EVERY_NS, at * READ_EVERY_NS / 20)).collect();
    UsageTrace::from_readings(&readings).unwrap()
}

/// Whether a trace that is learned after ten windows is used if the container is throttled in this
/// window.
fn is_used(throttled_in: Option<u64>) -> bool {
    let mut subject = ContainerHistory::default();
    let throttled_ns =
        |second| if throttled_in.is_some_and(|at| second >= at) { SECOND_NS } else { 0 };
    for second in 0..20 {
        if second == 10 {
            assert_eq!(subject.untraced_for().is_some(), throttled_in != Some(9));
            subject.learn(trace());
        }
        subject.observe(&row(second, throttled_ns(second)), SECOND_NS, NODE);
    }
    // Windows of 50 ms: under 0.05 cores all ten periods may be throttled, unless a trace shows
    // otherwise.
    let (_, count) = subject.history.limits().next().unwrap();
    count.throttled_at_most < 19 * 10 - 5 * 10
}

#[test]
fn a_trace_needs_unthrottled_periods_before_and_after_it() {
    assert!(is_used(None));
    assert_eq!([8, 9, 10, 12].map(|second| is_used(Some(second))), [false; 4]);
}

#[test]
fn a_go_program_shows_whether_it_follows_its_limit() {
    let shown = |language, go_follows_limit| {
        // Injected, as at the start of an earlier container.
        let settings = [("GOMAXPROCS".to_owned(), "1".to_owned())].into();
        let parallelism_source = Some("GOMAXPROCS".to_owned());
        let runtime = Runtime {
            language,
            go_follows_limit,
            settings,
            parallelism_source,
            ..Runtime::default()
        };
        let program = Program::with_runtime(runtime);
        ContainerHistory { program, ..ContainerHistory::default() }.shown().go_follows_limit
    };
    assert_eq!(shown(Language::Go, true), Some(true));
    assert_eq!(shown(Language::Go, false), Some(false));
    assert_eq!(shown(Language::Unknown, false), None, "a shell before its program");
    assert_eq!(ContainerHistory::default().shown(), Shown::default());
}

#[test]
fn the_live_set_is_shown_after_ten_minutes() {
    let mut subject = ContainerHistory::default();
    let row = |bytes| ContainerRow { memory_live_bytes: Some(bytes), ..row(0, 0) };
    let mut after = |windows: u64, bytes| {
        (0..windows).for_each(|_| subject.observe(&row(bytes), SECOND_NS, NODE));
        subject.shown().live_set_bytes
    };
    assert_eq!(after(1, 900), None, "the first reading only starts a window");
    assert_eq!(after(599, 900), None, "it may be garbage");
    assert_eq!(after(1, 100), Some(100));
}

/// A container of 256 MiB with 225 MiB of page cache that is used again and again.
#[test]
fn page_cache_is_no_part_of_the_live_set() {
    const MIB: u64 = 1 << 20;
    let row = ContainerRow {
        memory_working_set_bytes: Some(245 * MIB),
        memory_live_bytes: Some(20 * MIB),
        memory_limit_bytes: Limit::Limited(256 * MIB),
        ..row(0, 0)
    };
    let mut subject = ContainerHistory::default();
    (0..=600).for_each(|_| subject.observe(&row, SECOND_NS, NODE));
    let memory = subject.facts(&row, &NodeRow::default()).memory.unwrap();
    assert_eq!(memory.soft_limit_bytes, Some(256 * MIB * 7 / 10));
    assert_eq!(subject.shown().live_set_bytes, Some(20 * MIB));
    let unknown = ContainerRow { memory_live_bytes: None, ..row };
    assert!(ContainerHistory::default().facts(&unknown, &NodeRow::default()).memory.is_none());
}

/// A service that needs 0.8 cores and gets a tenth of that beside its neighbors.
#[test]
fn a_request_counts_what_a_starved_container_lost() {
    let row = |seconds: u64| {
        let neighbor_ns = seconds * SECOND_NS * 72 / 100;
        let waits = ContainerWaits { neighbor_ns, ..ContainerWaits::default() };
        ContainerRow {
            usage_ns: Some(seconds * SECOND_NS * 8 / 100),
            request_cores: Some(0.01),
            waits: Some(Arc::new(waits)),
            spec: Some(SpecRow::default()),
            ..ContainerRow::default()
        }
    };
    let mut subject = ContainerHistory::default();
    (0..=600).for_each(|seconds| subject.observe(&row(seconds), SECOND_NS, NODE));
    let facts = subject.facts(&row(600), &NodeRow::default());
    let needs = facts.cpu.request_cores.unwrap();
    assert!((0.8..0.95).contains(&needs), "{needs}");
    let lost = facts.lost_cores.unwrap();
    assert!((lost - 0.72).abs() < 0.001, "{lost}");
    let limit = facts.cpu.limit.unwrap();
    assert!(limit.cores < 0.2, "waits are no use of a quota: {limit:?}");
}

#[test]
fn figures_are_at_most_the_nodes_cpus() {
    let row = |seconds: u64| ContainerRow {
        usage_ns: Some(seconds * SECOND_NS * 2),
        ..ContainerRow::default()
    };
    let mut subject = ContainerHistory::default();
    let node = NodeFacts { cpus: Some(2), ..NODE };
    (0..=600).for_each(|seconds| subject.observe(&row(seconds), SECOND_NS, node));
    let cpu = subject.facts(&row(600), &NodeRow::default()).cpu;
    assert_eq!((cpu.request_cores, cpu.most_cores), (Some(2.0), Some(2.0)));
    let mut crowded = ContainerHistory::default();
    let above = |seconds| ContainerRow {
        throttled_ancestor_ns: Some(seconds * SECOND_NS * 6),
        ..row(seconds)
    };
    (0..=600).for_each(|seconds| crowded.observe(&above(seconds), SECOND_NS, node));
    let limit = crowded.facts(&above(600), &NodeRow::default()).cpu.limit.unwrap();
    assert!(limit.cores <= 2.0 && !limit.is_lower_bound, "{limit:?}");
}

/// A container that is throttled in the first `throttled` seconds of its life.
fn throttled_for(throttled: u64, is_new: bool) -> Facts {
    let bandwidth = Bandwidth { quota: Quota::Usec(20_000), period_usec: 100_000 };
    let row = |seconds: u64| ContainerRow {
        usage_ns: Some(seconds * SECOND_NS / 10),
        cfs: Some(CfsTotals {
            periods: seconds * 10,
            throttled_periods: seconds.min(throttled) * 9,
            ..CfsTotals::default()
        }),
        bandwidth: Some(bandwidth),
        cpu_limit: Limit::of(bandwidth),
        ..ContainerRow::default()
    };
    let mut subject =
        if is_new { ContainerHistory::of_a_start() } else { ContainerHistory::default() };
    (0..=600).for_each(|seconds| subject.observe(&row(seconds), SECOND_NS, NODE));
    subject.facts(&row(600), &NodeRow::default())
}

#[test]
fn throttling_in_the_first_minute_only_is_told_apart() {
    assert!(throttled_for(50, true).is_throttled_at_start_only);
    assert!(has(&throttled_for(50, true), FindingKind::ThrottledByOwnQuota));
    assert!(!throttled_for(120, true).is_throttled_at_start_only);
    assert!(!throttled_for(50, false).is_throttled_at_start_only, "its start is unknown");
    assert!(!throttled_for(0, true).is_throttled_at_start_only);
}

#[test]
fn another_life_has_another_first_minute() {
    let mut startup = Startup::default();
    let window = |throttled| Window {
        periods: Some(10),
        throttled_periods: Some(throttled),
        length_ns: SECOND_NS,
        ..Window::default()
    };
    let mut lives = |id: &str, throttled| {
        for second in 0..200 {
            startup.follow(id);
            startup.add(&window(if second < 60 { throttled } else { 0 }));
        }
        startup.is_throttled_only_then()
    };
    assert!(!lives("a", 0), "older than the agent");
    assert!(lives("b", 9));
}
