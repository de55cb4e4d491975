//! Every kind of finding: facts that produce it, and facts just below its threshold.

use std::collections::{BTreeMap, BTreeSet};

use analysis::{
    CollectionHistory, CollectionWindow, Collections, Facts, History, Place, PodQuota,
    READ_EVERY_NS, READINGS, Spec, Steady, UsageTrace, findings, memory_advice,
};
use api::{
    CauseKind, CpuAdvice, Culprit, FindingKind, Gogc, Injected, InjectionStatus, Language,
    LimitAdvice, OBJECTIVE, Runtime, Severity, SlowedReason, Verdict, VictimClass, merged,
};
use snapshot::Limit;

use crate::support::{MS, window};

const GIB: u64 = 1 << 30;

/// A container without findings.
fn sound() -> Facts {
    Facts {
        container: "app".into(),
        spec: Some(Spec::default()),
        limit_cores: Some(2.0),
        own_limit_cores: Some(2.0),
        request_cores: Some(1.0),
        throttled_share: Some(0.0),
        memory_limit: Limit::Limited(GIB),
        memory_request: Some(GIB),
        kernel_release: "6.12.1".into(),
        cpu: CpuAdvice { windows: 3600, request_cores: Some(0.9), ..CpuAdvice::default() },
        runtime: Some(go("go1.25.1", Some(2), &[("GOMEMLIMIT", "700MiB")])),
        ..Facts::default()
    }
}

fn go(version: &str, parallelism: Option<u32>, settings: &[(&str, &str)]) -> Runtime {
    let settings: BTreeMap<_, _> =
        settings.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    let parallelism_source = Some("the limit".to_owned());
    let version = Some(version.to_owned());
    Runtime {
        language: Language::Go,
        version,
        parallelism,
        parallelism_source,
        settings,
        ..Runtime::default()
    }
}

fn kinds(facts: &Facts) -> Vec<FindingKind> {
    findings(facts).iter().map(|finding| finding.kind).collect()
}

fn set_limit(facts: &mut Facts, cores: f64) {
    (facts.limit_cores, facts.own_limit_cores) = (Some(cores), Some(cores));
}

fn injected(name: &str, status: InjectionStatus) -> Injected {
    let current = (status == InjectionStatus::Stale).then(|| "1".to_owned());
    Injected { name: name.to_owned(), value: "2".to_owned(), status, current }
}

/// Garbage collection that costs little: a live heap of 64 MiB in a container with 1 GiB.
fn collections() -> Collections {
    Collections {
        windows: 60,
        cycles: 0.5,
        cpu_share: Some(0.05),
        cores: Some(0.05),
        by_throttling: None,
        live_bytes: Some(64 << 20),
        goal_bytes: Some(128 << 20),
        limit_bytes: Some(700 << 20),
        gogc: Some(100),
        working_set: Some(160 << 20),
    }
}

type Change = fn(&mut Facts);

/// Changes to the sound container, one per kind, that produce the finding.
fn cases() -> Vec<(FindingKind, Change)> {
    vec![
        (FindingKind::NoCpuRequest, |facts| facts.request_cores = None),
        (FindingKind::FractionalLimit, |facts| set_limit(facts, 1.5)),
        (FindingKind::ParallelismAboveLimit, |facts| set_limit(facts, 1.0)),
        (FindingKind::ParallelismBelowLimit, |facts| set_limit(facts, 3.0)),
        (FindingKind::ThrottledByOwnQuota, |facts| facts.throttled_share = Some(0.06)),
        (FindingKind::ThrottledByAncestor, |facts| facts.ancestor_throttled_rate = Some(0.06)),
        (FindingKind::ClaimedCpusThrottled, |facts| {
            facts.ancestor_throttled_rate = Some(0.06);
            facts.pod = Some(pod_quota());
            facts.runtime.iter_mut().for_each(|runtime| runtime.claims_cpus = true);
        }),
        (FindingKind::LimitTooTightForBursts, |facts| {
            facts.throttled_share = Some(0.02);
            facts.cpu.burst_seconds = Some(0.05);
        }),
        (FindingKind::RequestAboveUse, |facts| facts.request_cores = Some(2.0)),
        (FindingKind::RequestBelowUse, |facts| facts.request_cores = Some(0.4)),
        (FindingKind::MemoryLimitNotRequest, |facts| facts.memory_request = Some(GIB / 2)),
        (FindingKind::NoMemoryLimit, |facts| {
            facts.memory_limit = Limit::Unlimited;
            facts.spec = Some(Spec { has_memory_limits: true, ..Spec::default() });
        }),
        (FindingKind::LimitNotInForce, |facts| {
            facts.spec = Some(Spec { limit_cores: facts.limit_cores, ..Spec::default() });
            (facts.limit_cores, facts.own_limit_cores, facts.has_no_quota) = (None, None, true);
        }),
        (FindingKind::HeapLimitUnset, |facts| facts.runtime = Some(go("go1.25.1", Some(2), &[]))),
        (FindingKind::GoIgnoresLimit, |facts| {
            facts.runtime = Some(go("go1.24.9", None, &[("GOMEMLIMIT", "700MiB")]));
        }),
        (FindingKind::InjectedEnvStale, |facts| {
            facts.injected = vec![
                injected("GOMAXPROCS", InjectionStatus::Stale),
                injected("GOMEMLIMIT", InjectionStatus::Injected),
            ];
        }),
        (FindingKind::SlowedByOthers, |facts| facts.slowed = Some(slowed(1.0))),
        (FindingKind::GcCostly, |facts| {
            facts.gc =
                Some(Collections { cpu_share: Some(0.2), cores: Some(0.2), ..collections() });
        }),
        (FindingKind::GcTooOften, |facts| {
            facts.gc = Some(Collections { cycles: 2.5, ..collections() });
        }),
        (FindingKind::GcInThrottledTime, |facts| {
            facts.gc = Some(Collections { by_throttling: Some((0.05, 0.15)), ..collections() });
        }),
        (FindingKind::HeapNearLimit, |facts| {
            facts.gc = Some(Collections { live_bytes: Some(650 << 20), ..collections() });
        }),
        (FindingKind::GcSettingFightsLimit, |facts| {
            facts.gc = Some(Collections { gogc: Some(50), ..collections() });
        }),
        (FindingKind::KernelSliceExpiry, |facts| facts.kernel_release = "4.19.0-27-amd64".into()),
    ]
}

#[test]
fn a_sound_container_has_no_findings() {
    assert_eq!(kinds(&sound()), []);
}

#[test]
fn each_kind_of_finding_follows_from_its_own_fact_alone() {
    for (kind, change) in cases() {
        let mut facts = sound();
        change(&mut facts);
        assert_eq!(kinds(&facts), [kind]);
    }
    let found: BTreeSet<_> = cases().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(found, FindingKind::ALL.into_iter().collect());
}

fn pod_quota() -> PodQuota {
    PodQuota { limit_cores: 2.0, throttles: true, is_of_the_spec: false, advised_cores: None }
}

#[test]
fn claimed_cpus_are_throttled_only_by_the_quota_of_their_pod() {
    let mut facts = Facts { cpus: Some(4), pod: Some(pod_quota()), ..sound() };
    facts.runtime.as_mut().unwrap().claims_cpus = true;
    facts.ancestor_throttled_rate = Some(0.04);
    assert_eq!(kinds(&facts), []);
    facts.ancestor_throttled_rate = Some(0.06);
    let found = findings(&facts);
    let found =
        found.iter().find(|finding| finding.kind == FindingKind::ClaimedCpusThrottled).unwrap();
    assert_eq!((found.evidence["podLimitCores"], found.evidence["cpus"]), (2.0, 4.0));
    assert!(found.no_patch.as_ref().unwrap().contains("containers"), "{found:?}");
    let unclaimed = Facts { runtime: None, ..facts.clone() };
    assert_eq!(kinds(&unclaimed), [FindingKind::ThrottledByAncestor]);
    let reported = Facts { claims_cpus: true, ..unclaimed };
    assert_eq!(kinds(&reported), [FindingKind::ClaimedCpusThrottled]);
    facts.pod = None;
    assert!(kinds(&facts).contains(&FindingKind::ThrottledByAncestor), "above the pod");
    (facts.pod, facts.throttled_share) = (Some(pod_quota()), Some(0.5));
    facts.ancestor_throttled_rate = None;
    assert!(!kinds(&facts).contains(&FindingKind::ClaimedCpusThrottled), "its own quota");
}

#[test]
fn missing_facts_cause_only_findings_about_their_absence() {
    assert_eq!(kinds(&Facts::default()), []);
    let known =
        Facts { spec: Some(Spec::default()), memory_limit: Limit::Unlimited, ..Facts::default() };
    assert_eq!(kinds(&known), [FindingKind::NoCpuRequest], "no container has a memory limit");
}

#[test]
fn pod_level_resources_count_for_every_container() {
    let of_the_pod = Spec {
        pod_requests_cpu: true,
        pod_limits_memory: true,
        has_memory_limits: true,
        ..Spec::default()
    };
    assert_eq!(
        kinds(&Facts {
            spec: Some(of_the_pod),
            memory_limit: Limit::Unlimited,
            ..Facts::default()
        }),
        []
    );
}

#[test]
fn requests_that_are_not_known_are_not_missing() {
    assert_eq!(
        kinds(&Facts { spec: None, request_cores: None, memory_request: None, ..sound() }),
        []
    );
}

#[test]
fn ephemeral_containers_get_no_findings() {
    let ephemeral = Spec { place: Place::Ephemeral, ..Spec::default() };
    assert_eq!(kinds(&Facts { spec: Some(ephemeral), throttled_share: Some(0.5), ..sound() }), []);
}

#[test]
fn a_sidecar_is_patched_where_it_stands() {
    let sidecar = Spec { place: Place::InitContainers, ..Spec::default() };
    let patch = findings(&Facts { spec: Some(sidecar), request_cores: None, ..sound() })[0]
        .patch
        .clone()
        .unwrap();
    let spec = &patch["spec"]["template"]["spec"];
    assert_eq!((&spec["initContainers"][0]["name"], spec.get("containers")), (&"app".into(), None));
}

/// A container under this limit, whose runtime has this number of threads.
fn threads(limit: f64, threads: Option<u32>, version: &str) -> Facts {
    let mut facts =
        Facts { runtime: Some(go(version, threads, &[("GOMEMLIMIT", "700MiB")])), ..sound() };
    set_limit(&mut facts, limit);
    facts
}

#[test]
fn parallelism_within_the_limit_is_no_finding() {
    for (limit, number) in [(2.0, 2), (1.5, 1), (2.5, 2), (1.0, 1)] {
        assert_eq!(kinds(&threads(limit, Some(number), "go1.25.1")), [], "{number} of {limit}");
    }
    assert_eq!(kinds(&threads(1.5, Some(2), "go1.25.1")), [FindingKind::FractionalLimit]);
    assert_eq!(kinds(&threads(1.5, Some(3), "go1.25.1")), [FindingKind::ParallelismAboveLimit]);
}

#[test]
fn an_old_go_on_no_more_cpus_than_its_limit_ignores_nothing() {
    assert_eq!(kinds(&threads(2.0, Some(2), "go1.24.9")), []);
    assert!(kinds(&threads(2.0, Some(3), "go1.24.9")).contains(&FindingKind::GoIgnoresLimit));
}

#[test]
fn no_more_threads_are_advised_than_there_are_cpus() {
    let bounded = Facts { cpus: Some(2), ..threads(8.0, Some(2), "go1.25.1") };
    assert_eq!(kinds(&bounded), []);
    let found = findings(&Facts { cpus: Some(4), ..bounded });
    let variable =
        &found[0].patch.as_ref().unwrap()["spec"]["template"]["spec"]["containers"][0]["env"][0];
    assert_eq!(
        (found[0].kind, &variable["value"]),
        (FindingKind::ParallelismBelowLimit, &"4".into())
    );
}

#[test]
fn usage_above_the_parallelism_suppresses_parallelism_below_limit() {
    let mut facts = threads(4.0, Some(1), "go1.25.1");
    facts.cpu.request_cores = Some(1.1);
    assert_eq!(kinds(&facts), [FindingKind::ParallelismBelowLimit]);
    (facts.cpu.request_cores, facts.request_cores) = (Some(1.9), Some(1.9));
    assert_eq!(kinds(&facts), []);
}

#[test]
fn threads_are_advised_for_the_limit_that_is_advised_with_them() {
    let variables = |advised: f64| -> Vec<_> {
        let mut facts = Facts { throttled_share: Some(0.5), ..threads(0.5, Some(8), "go1.24.9") };
        facts.cpu.limit =
            Some(LimitAdvice { cores: advised, is_lower_bound: true, ..LimitAdvice::default() });
        let patch =
            merged(findings(&facts).iter().filter_map(|finding| finding.patch.as_ref())).unwrap();
        let container = patch["spec"]["template"]["spec"]["containers"][0].clone();
        let limit = container["resources"]["limits"]["cpu"].as_str().unwrap().to_owned();
        [limit]
            .into_iter()
            .chain(container["env"][0]["value"].as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(variables(0.75), ["750m", "1"]);
    assert_eq!(variables(2.5), ["2500m", "2"]);
    assert_eq!(variables(8.0), ["8000m"]);
}

#[test]
fn a_limit_that_the_pod_does_not_allow_is_not_counted_on() {
    let pod =
        PodQuota { limit_cores: 1.0, throttles: false, is_of_the_spec: true, advised_cores: None };
    let mut facts =
        Facts { throttled_share: Some(0.5), pod: Some(pod), ..threads(0.5, Some(8), "go1.24.9") };
    facts.cpu.limit =
        Some(LimitAdvice { cores: 8.0, is_lower_bound: true, ..LimitAdvice::default() });
    let patch =
        merged(findings(&facts).iter().filter_map(|finding| finding.patch.as_ref())).unwrap();
    assert_eq!(patch["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"], "1");
}

#[test]
fn a_heap_limit_from_any_source_counts_as_set() {
    let of = |runtime| kinds(&Facts { runtime: Some(runtime), ..sound() });
    for off in ["off", ""] {
        assert_eq!(
            of(go("go1.25.1", Some(2), &[("GOMEMLIMIT", off)])),
            [FindingKind::HeapLimitUnset],
            "{off:?}"
        );
    }
    assert_eq!(of(Runtime { automemlimit: true, ..go("go1.25.1", Some(2), &[]) }), []);
}

#[test]
fn a_jvm_heap_ignores_the_limit_only_without_container_support() {
    let heap = |version: &str, settings: &[(&str, &str)]| {
        let runtime = Runtime { language: Language::Jvm, ..go(version, Some(2), settings) };
        kinds(&Facts { runtime: Some(runtime), ..sound() }) == [FindingKind::HeapLimitUnset]
    };
    let off = ("UseContainerSupport", "false");
    assert!(!heap("17.0.15", &[]), "a quarter of the limit");
    assert!(!heap("1.8.0_191", &[]) && !heap("10.0.2", &[("UseContainerSupport", "true")]));
    assert!(heap("17.0.15", &[off]) && heap("17.0.15", &[off, ("MaxRAMPercentage", "70")]));
    assert!(heap("1.8.0_181", &[]) && heap("9.0.4", &[]) && heap("1.7.0_80", &[]));
    assert!(!heap("17.0.15", &[off, ("Xmx", "1g")]) && !heap("9.0.4", &[("@file", "x")]));
}

#[test]
fn a_variable_from_elsewhere_makes_room_for_the_advised_value() {
    let found = findings(&threads(2.0, Some(3), "go1.25.1"));
    let variable =
        &found[0].patch.as_ref().unwrap()["spec"]["template"]["spec"]["containers"][0]["env"][0];
    assert_eq!(
        *variable,
        serde_json::json!({ "name": "GOMAXPROCS", "value": "2", "valueFrom": null })
    );
}

#[test]
fn one_patch_of_several_containers_has_each_once() {
    let of = |container: &str, place, request_cores| {
        let spec = Some(Spec { place, ..Spec::default() });
        findings(&Facts {
            container: container.into(),
            spec,
            request_cores,
            memory_request: Some(1),
            ..sound()
        })
    };
    use Place::{Containers, InitContainers};
    let found = [
        of("a", Containers, None),
        of("b", Containers, Some(1.0)),
        of("proxy", InitContainers, None),
    ];
    let patch =
        merged(found.iter().flatten().filter_map(|finding| finding.patch.as_ref())).unwrap();
    let memory = GIB.to_string();
    let both = |name: &str| serde_json::json!({ "name": name, "resources": { "requests": { "cpu": "900m", "memory": memory } } });
    let b = serde_json::json!({ "name": "b", "resources": { "requests": { "memory": memory } } });
    let spec =
        serde_json::json!({ "containers": [both("a"), b], "initContainers": [both("proxy")] });
    assert_eq!(patch["spec"]["template"]["spec"], spec);
}

#[test]
fn a_stale_variable_is_named_with_its_value_then_and_now() {
    let mut facts = sound();
    facts.injected = vec![injected("GOMAXPROCS", InjectionStatus::Injected)];
    assert_eq!(kinds(&facts), []);
    facts.injected = vec![injected("GOMAXPROCS", InjectionStatus::Stale)];
    let [finding] = &findings(&facts)[..] else { panic!("one finding") };
    let reason =
        "the limits have changed (GOMAXPROCS=2 was injected, now 1); restart the pod to apply them";
    assert_eq!(finding.no_patch.as_deref(), Some(reason));
    assert_eq!(finding.evidence["staleVariables"], 1.0);
}

#[test]
fn a_name_is_the_same_in_the_code_and_in_json() {
    for kind in FindingKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
    }
}

#[test]
fn the_change_is_a_patch_of_the_workload() {
    let mut facts = sound();
    facts.throttled_share = Some(0.5);
    facts.cpu.limit =
        Some(LimitAdvice { cores: 2.5, is_lower_bound: true, ..LimitAdvice::default() });
    let container =
        serde_json::json!({ "name": "app", "resources": { "limits": { "cpu": "2500m" } } });
    let patch =
        serde_json::json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
    assert_eq!(findings(&facts)[0].patch, Some(patch));
    facts.cpu.limit = None;
    assert_eq!(findings(&facts)[0].patch, None);
}

#[test]
fn every_finding_has_a_patch_or_a_reason() {
    for (kind, change) in cases() {
        let mut facts = sound();
        change(&mut facts);
        for finding in findings(&facts) {
            assert!(finding.patch.is_some() != finding.no_patch.is_some(), "{kind:?}: {finding:?}");
        }
    }
}

#[test]
fn merged_patches_keep_the_first_change_of_a_field() {
    let container = |limit: &str, more: serde_json::Value| {
        let mut container =
            serde_json::json!({ "name": "app", "resources": { "limits": { "cpu": limit } } });
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::json!({ "spec": { "template": { "spec": { "containers": [container] } } } })
    };
    let environment = serde_json::json!({ "env": [{ "name": "GOMAXPROCS", "value": "2" }] });
    let patches = [container("2", serde_json::json!({})), container("3", environment.clone())];
    assert_eq!(merged(patches.iter()), Some(container("2", environment)));
    assert_eq!(merged(std::iter::empty()), None);
}

#[test]
fn a_request_is_never_advised_above_the_limit() {
    let mut facts = sound();
    (facts.request_cores, facts.cpu.request_cores) = (Some(0.5), Some(2.3));
    let below = &findings(&facts)[0];
    assert_eq!((below.kind, below.evidence["useP95Cores"]), (FindingKind::RequestBelowUse, 2.0));
}

#[test]
fn the_heap_gets_seventy_percent_but_never_under_its_live_set() {
    let soft = |live_set| memory_advice(1000, 600, live_set, false).soft_limit_bytes;
    assert_eq!(soft(100), Some(700));
    assert_eq!(soft(600), Some(750));
    assert_eq!((soft(720), soft(721)), (Some(900), None));
}

#[test]
fn gogc_is_raised_only_if_memory_is_free_and_cpu_is_short() {
    let gogc = |working_set, short| memory_advice(1000, working_set, 100, short).gogc;
    assert_eq!(gogc(400, true), Gogc::Raise);
    assert_eq!(gogc(400, false), Gogc::Keep);
    assert_eq!(gogc(600, true), Gogc::Keep);
}

#[test]
fn a_figure_rises_soon_falls_late_and_does_not_flap() {
    let mut steady = Steady::default();
    assert_eq!(steady.follow(Some(1.0)), Some(1.0));
    for round in 0..100 {
        assert_eq!(steady.follow(Some([1.25, 1.0][round % 2])), Some(1.0));
    }
    assert_eq!(
        [1.25, 1.5, 1.5].map(|value| steady.follow(Some(value))),
        [Some(1.0), Some(1.0), Some(1.5)]
    );
    assert!((0..29).all(|_| steady.follow(Some(1.0)) == Some(1.5)));
    assert_eq!(steady.follow(Some(1.0)), Some(1.0));
    assert_eq!(steady.follow(None), None);
}

/// The verdict about a service with this request that `batch/report` slows.
fn slowed(request_cores: f64) -> Verdict {
    let report = Culprit {
        namespace: "batch".to_owned(),
        kind: "Pod".to_owned(),
        name: "report".to_owned(),
        share: 0.9,
        used_cores: 1.74,
        request_cores: Some(0.5),
        beyond_request: true,
    };
    Verdict {
        reason: SlowedReason::Neighbor,
        class: VictimClass::Service,
        share: 0.65,
        used_cores: 0.15,
        request_cores: Some(request_cores),
        cause: CauseKind::One,
        culprits: vec![report],
        request_too_low: request_cores < 0.15,
        slowed_seconds: 20.0,
        summary: "slowed ×2.9 by batch/report, 20 s of the last minute".to_owned(),
        remedy: "raise its CPU request".to_owned(),
        ..Verdict::default()
    }
}

#[test]
fn a_slowed_service_has_one_warning_with_the_cause_and_the_request_that_helps() {
    let mut facts = Facts { slowed: Some(slowed(0.01)), request_cores: Some(0.01), ..sound() };
    facts.cpu.request_cores = Some(0.156);
    let found = findings(&facts);
    assert_eq!(kinds(&facts), [FindingKind::SlowedByOthers], "{found:?}");
    let found = &found[0];
    assert_eq!(found.severity, Severity::Warning);
    let summary = found.summary.as_deref().unwrap();
    assert!(summary.starts_with("slowed ×2.9 by batch/report"), "{summary}");
    assert!(summary.ends_with(": raise its CPU request"), "{summary}");
    assert_eq!((found.evidence["slowedFactor"] * 10.0).round(), 29.0);
    assert_eq!(found.evidence["culpritRequestCores"], 0.5);
    let patch = found.patch.as_ref().unwrap();
    let resources = &patch["spec"]["template"]["spec"]["containers"][0]["resources"];
    assert_eq!(resources["requests"]["cpu"], "156m");
    // The same without a request.
    facts.slowed = Some(slowed(0.0));
    facts.request_cores = None;
    assert_eq!(kinds(&facts), [FindingKind::SlowedByOthers]);
    let patch = findings(&facts)[0].patch.clone().unwrap();
    let resources = &patch["spec"]["template"]["spec"]["containers"][0]["resources"];
    assert_eq!(resources["requests"]["cpu"], "156m");
    // A request that suffices is not changed.
    let enough = Facts { slowed: Some(slowed(1.0)), ..sound() };
    assert_eq!(
        findings(&enough)[0].no_patch.as_deref(),
        Some("no field of this workload fixes it")
    );
}

#[test]
fn a_slowed_service_without_a_patch_has_the_reason() {
    let reason = |use_cores: Option<f64>, pod_requests_cpu| {
        let spec = Some(Spec { pod_requests_cpu, ..Spec::default() });
        let mut facts = Facts { slowed: Some(slowed(0.1)), spec, ..sound() };
        (facts.request_cores, facts.cpu.request_cores) = (Some(0.1), use_cores);
        findings(&facts).remove(0).no_patch
    };
    let has = |reason: Option<String>, text: &str| reason.is_some_and(|it| it.contains(text));
    assert!(has(reason(None, false), "not enough history"));
    assert!(has(reason(Some(0.05), false), "does not show how much it needs"));
    assert!(has(reason(Some(0.2), true), "the pod-level request"));
    assert_eq!(reason(Some(0.2), false), None);
}

#[test]
fn only_harm_by_others_is_a_finding_and_an_unknown_cause_is_no_warning() {
    let of = |change: fn(&mut Verdict)| {
        let mut verdict = slowed(1.0);
        change(&mut verdict);
        let found = findings(&Facts { slowed: Some(verdict), ..sound() });
        found.first().map(|found| found.severity)
    };
    assert_eq!(of(|_| ()), Some(Severity::Warning));
    assert_eq!(of(|verdict| verdict.reason = SlowedReason::Unknown), Some(Severity::Info));
    assert_eq!(of(|verdict| verdict.reason = SlowedReason::OwnLimit), None);
    assert_eq!(of(|verdict| verdict.class = VictimClass::Hungry), None);
    assert_eq!(of(|verdict| verdict.class = VictimClass::BestEffort), None);
    assert_eq!(of(|verdict| verdict.restricted = true), None);
}

/// With a live heap of 64 MiB and 32 MiB besides the heap, 70 % of 1 GiB let the heap grow to
/// 9/10 of 684 MiB: GOGC 800 is the largest advised.
#[test]
fn a_larger_heap_is_advised_with_what_it_saves() {
    let gc = Collections { cpu_share: Some(0.25), cores: Some(0.5), ..collections() };
    let facts = Facts { gc: Some(gc), ..sound() };
    let found = findings(&facts);
    let costly = found.iter().find(|finding| finding.kind == FindingKind::GcCostly).unwrap();
    let figure = |name: &str| costly.evidence[name];
    assert_eq!(figure("recommendedGogc"), 800.0);
    assert_eq!(figure("recommendedSoftLimitBytes"), (GIB as f64 * 0.7).floor());
    // The distance between the live heap and the goal grows from 64 to 512 MiB.
    assert_eq!(figure("expectedCyclesFactor"), 0.125);
    assert!((figure("expectedCoresSaved") - 0.5 * 0.875).abs() < 1e-9);
    let share = 0.25 * 0.125 / (0.75 + 0.25 * 0.125);
    assert!((figure("expectedGcShare") - share).abs() < 1e-9);
    let env = costly.patch.as_ref().unwrap().pointer("/spec/template/spec/containers/0/env");
    let names = env.unwrap().as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["GOMEMLIMIT", "GOGC"]);
}

/// Ten minutes of steady work that needs this many cores, without throttling.
fn steady_cpu(used_ms: u64) -> CpuAdvice {
    let readings = (0..READINGS as u64).map(|at| (at * READ_EVERY_NS, at * used_ms * MS / 50));
    let mut history = History::default();
    history.learn(UsageTrace::from_readings(&readings.collect::<Vec<_>>()).unwrap());
    (0..600).for_each(|_| history.push(&window(used_ms, Some(10)), Some(4.0)));
    analysis::cpu_advice(&history, OBJECTIVE, 300)
}

/// The larger heap leaves an eighth of the cycles. At 40 % of the CPU time they are 35 % of the work.
fn throttled_by_collections(used_ms: u64, limit: f64) -> Facts {
    let gc = Collections { cpu_share: Some(0.4), cores: Some(0.4), ..collections() };
    let mut facts =
        Facts { gc: Some(gc), throttled_share: Some(0.3), cpu: steady_cpu(used_ms), ..sound() };
    set_limit(&mut facts, limit);
    facts
}

#[test]
fn the_advised_limit_leaves_out_the_work_that_a_larger_heap_removes() {
    for (used_ms, left_ms) in [(700, 455), (1400, 910), (2900, 1885)] {
        let facts = throttled_by_collections(used_ms, 0.25);
        let found = findings(&facts);
        let of = |kind| found.iter().find(|finding| finding.kind == kind).unwrap();
        let throttled = of(FindingKind::ThrottledByOwnQuota);
        let figure = |name: &str| throttled.evidence[name];
        let (with, today) = (figure("recommendedLimitCores"), figure("limitCoresWithTodaysHeap"));
        let replayed = |used_ms| steady_cpu(used_ms).limit.unwrap().cores;
        assert_eq!((with, today), (replayed(left_ms), replayed(used_ms)), "{used_ms} ms");
        assert_eq!(of(FindingKind::GcCostly).evidence["limitCoresWithLargerHeap"], with);
        let limit = throttled.patch.as_ref().unwrap();
        let limit = limit.pointer("/spec/template/spec/containers/0/resources/limits/cpu");
        assert!(limit.is_some(), "{throttled:?}");
        // Without the advice about the heap all work counts.
        let found = findings(&Facts { gc: None, ..facts });
        assert_eq!(found[0].evidence["recommendedLimitCores"], today);
        assert!(!found[0].evidence.contains_key("limitCoresWithTodaysHeap"));
    }
}

#[test]
fn a_limit_that_is_enough_with_a_larger_heap_is_not_raised() {
    let found = findings(&throttled_by_collections(1400, 1.0));
    let of = |kind| found.iter().find(|finding| finding.kind == kind).unwrap();
    let throttled = of(FindingKind::ThrottledByOwnQuota);
    assert!(throttled.patch.is_none() && of(FindingKind::GcCostly).patch.is_some());
    assert!(throttled.no_patch.as_ref().unwrap().contains("larger heap"), "{throttled:?}");
    assert!(!throttled.evidence.contains_key("recommendedLimitCores"));
}

#[test]
fn collections_are_judged_only_after_a_minute_and_only_of_go() {
    let gc = Collections { cpu_share: Some(0.5), windows: 5, ..collections() };
    let mut facts = Facts { gc: Some(gc), ..sound() };
    assert_eq!(kinds(&facts), []);
    facts.gc = Some(Collections { windows: 6, ..gc });
    assert_eq!(kinds(&facts), [FindingKind::GcCostly]);
    facts.runtime.as_mut().unwrap().language = Language::Jvm;
    assert!(!kinds(&facts).contains(&FindingKind::GcCostly));
}

#[test]
fn without_room_for_a_larger_heap_there_is_a_reason_instead_of_a_patch() {
    let gc = Collections {
        cycles: 4.0,
        live_bytes: Some(500 << 20),
        goal_bytes: Some(620 << 20),
        working_set: Some(800 << 20),
        ..collections()
    };
    let found = findings(&Facts { gc: Some(gc), ..sound() });
    let often = found.iter().find(|finding| finding.kind == FindingKind::GcTooOften).unwrap();
    assert!(often.patch.is_none() && often.no_patch.as_ref().unwrap().contains("no room"));
}

#[test]
fn the_collectors_share_is_weighted_by_use_and_split_by_throttling() {
    let mut history = CollectionHistory::default();
    let window = |cpu_share, used, is_throttled| CollectionWindow {
        seconds: 10.0,
        cycles: 20,
        cpu_share: Some(cpu_share),
        used,
        is_throttled,
    };
    for _ in 0..4 {
        history.add(window(0.1, 10.0, false));
    }
    assert_eq!(history.figures(Collections::default()).by_throttling, None);
    for _ in 0..4 {
        history.add(window(0.4, 10.0, true));
    }
    let found = history.figures(Collections::default());
    let (without, with) = found.by_throttling.unwrap();
    assert!((without - 0.1).abs() < 1e-9 && (with - 0.4).abs() < 1e-9);
    assert!((found.cycles - 2.0).abs() < 1e-9, "{found:?}");
    // The newer windows count a little more.
    assert!(found.cpu_share.is_some_and(|share| share > 0.25 && share < 0.27), "{found:?}");
    assert!((found.cores.unwrap() - found.cpu_share.unwrap()).abs() < 1e-9);
}
