use analysis::{READ_EVERY_NS, READINGS, findings};
use api::{FindingKind, Runtime};
use snapshot::{Bandwidth, CfsTotals, CpuLimit, Limit, Quota};

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

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
    (0..=600).for_each(|seconds| subject.observe(&at(seconds), SECOND_NS, 300));
    subject.facts(&at(600), "6.12.1")
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
    (0..=600).for_each(|second| subject.observe(&at(second, second * 5, 20_000), SECOND_NS, 300));
    assert!(has(
        &subject.facts(&at(600, 3000, 20_000), "6.12.1"),
        FindingKind::ThrottledByOwnQuota
    ));
    (601..=660).for_each(|second| subject.observe(&at(second, 3000, 100_000), SECOND_NS, 300));
    let facts = subject.facts(&at(660, 3000, 100_000), "6.12.1");
    assert!(!has(&facts, FindingKind::ThrottledByOwnQuota), "{facts:?}");
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
    (0..=600).for_each(|second| subject.observe(&at(second, second, 0.2), SECOND_NS, 300));
    assert!(has(&subject.facts(&at(600, 600, 0.2), "6.12.1"), FindingKind::ThrottledByAncestor));
    (601..=660).for_each(|second| subject.observe(&at(second, 600, 1.0), SECOND_NS, 300));
    assert!(!has(&subject.facts(&at(660, 600, 1.0), "6.12.1"), FindingKind::ThrottledByAncestor));
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
        subject.observe(&row(second, throttled_ns(second)), SECOND_NS, 300);
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
    let row = |bytes| ContainerRow { memory_working_set_bytes: Some(bytes), ..row(0, 0) };
    let mut after = |windows: u64, bytes| {
        (0..windows).for_each(|_| subject.observe(&row(bytes), SECOND_NS, 300));
        subject.shown().live_set_bytes
    };
    assert_eq!(after(1, 900), None, "the first reading only starts a window");
    assert_eq!(after(599, 900), None, "it may be garbage");
    assert_eq!(after(1, 100), Some(100));
}
