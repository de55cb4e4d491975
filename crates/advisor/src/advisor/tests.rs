use api::FindingKind;
use snapshot::{ContainerIdentity, CpuLimit, Limit};

use super::*;

/// Lengths of the windows, milliseconds, for snapshots at this interval that are published late
/// by `late_ms` and seen at the ticks `seen`, so that some are seen twice or not at all.
fn windows_ms(interval_ms: u64, late_ms: &[u64], seen: &[usize]) -> Vec<u128> {
    let metrics = Arc::new(AgentMetrics::new(metrics::Build { version: "", revision: "" }));
    let advisor = Advisor::new("/nonexistent".into(), metrics, Duration::from_secs(300));
    let (mut node, start) = (advisor.lock(), Instant::now());
    let interval = Duration::from_millis(interval_ms);
    let lengths = seen.iter().filter_map(|&tick| {
        let read_at = Some(
            start + interval * tick as u32 + Duration::from_millis(late_ms[tick % late_ms.len()]),
        );
        let latest = NodeSnapshot {
            sequence: tick as u64 + 1,
            read_at,
            interval,
            ..NodeSnapshot::default()
        };
        let length = node.length_until(&latest)?;
        node.observe(Arc::new(latest));
        Some(length.as_millis())
    });
    lengths.collect()
}

#[test]
fn windows_have_the_length_between_the_readings() {
    assert_eq!(windows_ms(1000, &[0], &[0, 1, 2, 3]), [0, 1000, 1000, 1000]);
    assert_eq!(windows_ms(1500, &[0], &[0, 1, 2, 3]), [0, 1500, 1500, 1500]);
    assert_eq!(windows_ms(1000, &[0, 40], &[0, 1, 2, 3]), [0, 1040, 960, 1040]);
    assert_eq!(windows_ms(60_000, &[0], &[0, 1, 2]), [0, 60_000, 60_000]);
}

#[test]
fn a_workload_stays_known_when_its_only_container_has_ended() {
    let metrics = Arc::new(AgentMetrics::new(metrics::Build { version: "", revision: "" }));
    let advisor = Advisor::new("/nonexistent".into(), metrics, Duration::from_secs(300));
    let (known, start) = (advisor.known(), Instant::now());
    let identity = Arc::new(ContainerIdentity {
        namespace: "shop".into(),
        container: "app".into(),
        image: "shop/cart:1".into(),
        ..ContainerIdentity::default()
    });
    let row = |live, bytes| ContainerRow {
        live,
        identity: Arc::clone(&identity),
        memory_live_bytes: Some(bytes),
        ..ContainerRow::default()
    };
    let mut seconds = 0;
    let mut observe = |windows: u64, containers: Vec<ContainerRow>| {
        for _ in 0..windows {
            let latest = NodeSnapshot {
                read_at: Some(start + Duration::from_secs(seconds)),
                interval: Duration::from_secs(1),
                containers: containers.clone(),
                ..NodeSnapshot::default()
            };
            // Exports and the end of the ten minutes do not coincide.
            seconds += 7;
            advisor.lock().observe(Arc::new(latest));
        }
        let key = ("shop".to_owned(), "app".to_owned(), "shop/cart:1".to_owned());
        known.latest().get(&key).and_then(|known| known.live_set_bytes)
    };
    assert_eq!(observe(40, vec![row(true, 100)]), None, "the collector may not have run yet");
    assert_eq!(observe(48, vec![row(true, 100)]), None, "not exported yet");
    assert_eq!(observe(10, vec![row(false, 100)]), Some(100), "it has ended since");
    assert_eq!(observe(500, Vec::new()), Some(100));
    assert_eq!(observe(130, vec![row(true, 20)]), Some(100), "it fills its caches");
}

#[test]
fn the_quota_of_a_restricted_pod_is_the_agents() {
    let metrics = Arc::new(AgentMetrics::new(metrics::Build { version: "", revision: "" }));
    let advisor = Advisor::new("/nonexistent".into(), metrics, Duration::from_secs(300));
    let uid = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0106".to_owned();
    let identity = ContainerIdentity { uid: uid.clone(), ..ContainerIdentity::default() };
    let row = ContainerRow {
        live: true,
        identity: Arc::new(identity),
        cpu_limit: Limit::Limited(CpuLimit { cores: 0.5, period_usec: 100_000 }),
        ..ContainerRow::default()
    };
    let read_at = Some(Instant::now());
    let mut latest = NodeSnapshot { read_at, containers: vec![row], ..NodeSnapshot::default() };
    latest.node.kernel.release = "4.18.0".into();
    advisor.lock().observe(Arc::new(latest));
    let kinds = || {
        let findings = advisor.advice().containers.remove(0).findings;
        findings.into_iter().map(|finding| finding.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(), [FindingKind::KernelSliceExpiry], "a limit under an old kernel");
    advisor.restricted().publish(vec![uid]);
    assert_eq!(kinds(), []);
}

#[test]
fn a_snapshot_that_is_seen_twice_or_missed_moves_no_counts() {
    assert_eq!(windows_ms(1000, &[0], &[0, 1, 1, 3, 4]), [0, 1000, 2000, 1000]);
}

#[test]
fn shorter_intervals_add_up_to_a_second() {
    assert_eq!(windows_ms(100, &[0, 3], &(0..=30).collect::<Vec<_>>()), [0, 1000, 1000, 1000]);
    assert_eq!(windows_ms(400, &[0], &(0..=6).collect::<Vec<_>>()), [0, 800, 800, 800]);
}
