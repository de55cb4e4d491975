//! Every kind of finding: the facts that bring it about, and those that just do not.

use std::collections::{BTreeMap, BTreeSet};

use analysis::{CpuAdvice, Facts, Gogc, Kind, Language, LimitAdvice, Runtime, Steady, findings, memory_advice, merged};

const GIB: u64 = 1 << 30;

/// A container of which there is nothing to say.
fn sound() -> Facts {
    Facts {
        container: "app".into(),
        limit_cores: Some(2.0),
        own_limit_cores: Some(2.0),
        request_cores: Some(1.0),
        throttled_share: Some(0.0),
        memory_limit: Some(GIB),
        memory_request: Some(GIB),
        kernel_release: "6.12.1".into(),
        cpu: CpuAdvice { windows: 3600, request_cores: Some(0.9), ..CpuAdvice::default() },
        runtime: Some(go("go1.25.1", Some(2), &[("GOMEMLIMIT", "700MiB")])),
        ..Facts::default()
    }
}

fn go(version: &str, parallelism: Option<u32>, settings: &[(&str, &str)]) -> Runtime {
    let settings: BTreeMap<_, _> = settings.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    let parallelism_source = Some("the limit".to_owned());
    let version = Some(version.to_owned());
    Runtime { language: Language::Go, version, parallelism, parallelism_source, settings, ..Runtime::default() }
}

fn kinds(facts: &Facts) -> Vec<Kind> {
    findings(facts).iter().map(|finding| finding.kind).collect()
}

fn set_limit(facts: &mut Facts, cores: f64) {
    (facts.limit_cores, facts.own_limit_cores) = (Some(cores), Some(cores));
}

type Change = fn(&mut Facts);

/// What must be changed of the sound container for one kind.
fn cases() -> Vec<(Kind, Change)> {
    vec![
        (Kind::NoCpuRequest, |facts| facts.request_cores = None),
        (Kind::FractionalLimit, |facts| set_limit(facts, 2.5)),
        (Kind::ParallelismAboveLimit, |facts| set_limit(facts, 1.0)),
        (Kind::ParallelismBelowLimit, |facts| set_limit(facts, 3.0)),
        (Kind::ThrottledByOwnQuota, |facts| facts.throttled_share = Some(0.06)),
        (Kind::ThrottledByAncestor, |facts| facts.ancestor_denied_cores = Some(0.06)),
        (Kind::LimitTooTightForBursts, |facts| {
            facts.throttled_share = Some(0.02);
            facts.cpu.burst_seconds = Some(0.05);
        }),
        (Kind::RequestAboveUse, |facts| facts.request_cores = Some(2.0)),
        (Kind::RequestBelowUse, |facts| facts.request_cores = Some(0.4)),
        (Kind::MemoryLimitNotRequest, |facts| facts.memory_request = Some(GIB / 2)),
        (Kind::NoMemoryLimit, |facts| facts.memory_limit = None),
        (Kind::HeapLimitUnset, |facts| facts.runtime = Some(go("go1.25.1", Some(2), &[]))),
        (Kind::GoIgnoresLimit, |facts| facts.runtime = Some(go("go1.24.9", Some(2), &[("GOMEMLIMIT", "700MiB")]))),
        (Kind::NoisyNeighbour, |facts| facts.contention_share = Some(0.11)),
        (Kind::KernelSliceExpiry, |facts| facts.kernel_release = "4.19.0-27-amd64".into()),
    ]
}

#[test]
fn a_sound_container_has_no_findings() {
    assert_eq!(kinds(&sound()), []);
}

#[test]
fn every_kind_is_brought_about_by_its_own_fact_alone() {
    for (kind, change) in cases() {
        let mut facts = sound();
        change(&mut facts);
        assert_eq!(kinds(&facts), [kind]);
    }
    let told: BTreeSet<_> = cases().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(told, Kind::ALL.into_iter().collect());
}

#[test]
fn what_is_absent_brings_about_only_what_its_absence_is() {
    assert_eq!(kinds(&Facts::default()), [Kind::NoCpuRequest, Kind::NoMemoryLimit]);
}

#[test]
fn a_name_is_the_same_in_the_code_and_in_json() {
    for kind in Kind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
    }
}

#[test]
fn the_change_is_a_patch_of_the_workload() {
    let mut facts = sound();
    facts.throttled_share = Some(0.5);
    facts.cpu.limit = Some(LimitAdvice { cores: 2.5, throttled_share: 0.0, is_lower_bound: true });
    let container = serde_json::json!({ "name": "app", "resources": { "limits": { "cpu": "2500m" } } });
    let patch = serde_json::json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
    assert_eq!(findings(&facts)[0].patch, Some(patch));
    facts.cpu.limit = None;
    assert_eq!(findings(&facts)[0].patch, None);
}

#[test]
fn a_finding_has_a_patch_or_says_why_not() {
    for (kind, change) in cases() {
        let mut facts = sound();
        change(&mut facts);
        for finding in findings(&facts) {
            assert!(finding.patch.is_some() != finding.no_patch.is_some(), "{kind:?}: {finding:?}");
        }
    }
}

#[test]
fn one_patch_of_several_keeps_the_first_of_two_changes_of_a_field() {
    let container = |limit: &str, more: serde_json::Value| {
        let mut container = serde_json::json!({ "name": "app", "resources": { "limits": { "cpu": limit } } });
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
    assert_eq!((below.kind, below.evidence["useP95Cores"]), (Kind::RequestBelowUse, 2.0));
}

#[test]
fn the_heap_gets_seventy_percent_but_never_under_its_live_set() {
    let soft = |live_set| memory_advice(1000, 600, live_set, false).soft_limit_bytes;
    assert_eq!(soft(100), Some(700));
    assert_eq!(soft(600), Some(750));
    assert_eq!(soft(801), None);
}

#[test]
fn fewer_collections_need_both_memory_to_spare_and_a_short_cpu() {
    let gogc = |working_set, short| memory_advice(1000, working_set, 100, short).gogc;
    assert_eq!(gogc(400, true), Gogc::Raise);
    assert_eq!(gogc(400, false), Gogc::Keep);
    assert_eq!(gogc(600, true), Gogc::Keep);
}

#[test]
fn a_shown_figure_follows_upwards_soon_downwards_late_and_never_flaps() {
    let mut steady = Steady::default();
    assert_eq!(steady.follow(Some(1.0)), Some(1.0));
    for round in 0..100 {
        assert_eq!(steady.follow(Some([1.25, 1.0][round % 2])), Some(1.0));
    }
    assert_eq!([1.25, 1.5, 1.5].map(|value| steady.follow(Some(value))), [Some(1.0), Some(1.0), Some(1.5)]);
    assert!((0..29).all(|_| steady.follow(Some(1.0)) == Some(1.5)));
    assert_eq!(steady.follow(Some(1.0)), Some(1.0));
    assert_eq!(steady.follow(None), None);
}
