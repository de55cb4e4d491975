//! Bounds on patches, over random containers.

use analysis::{
    Facts, LEAST_REQUEST_CORES, LEAST_REQUEST_PART, PodQuota, REQUEST_AFTER_SECONDS, Spec,
    findings, memory_advice,
};
use api::{CpuAdvice, Language, LimitAdvice, Runtime, merged};
use proptest::prelude::*;
use serde_json::Value;
use snapshot::Limit;

/// Cores of a quantity in millicores.
fn cores(quantity: &Value) -> Option<f64> {
    quantity.as_str().map(|text| text.strip_suffix('m').unwrap().parse::<f64>().unwrap() / 1000.0)
}

/// Limit and request of the container once all of its patches are applied, and GOMEMLIMIT.
fn patched(facts: &Facts) -> (Option<f64>, Option<f64>, Option<u64>) {
    let patch = merged(findings(facts).iter().filter_map(|finding| finding.patch.as_ref()))
        .unwrap_or_default();
    let container = &patch["spec"]["template"]["spec"]["containers"][0];
    let resource = |section: &str| cores(&container["resources"][section]["cpu"]);
    let variables = container["env"].as_array().cloned().unwrap_or_default();
    let heap = variables.iter().find(|variable| variable["name"] == "GOMEMLIMIT");
    let heap = heap.map(|variable| variable["value"].as_str().unwrap().parse().unwrap());
    (
        resource("limits").or(facts.spec.unwrap().limit_cores),
        resource("requests").or(facts.request_cores),
        heap,
    )
}

fn millicores(range: std::ops::Range<u32>) -> impl Strategy<Value = f64> {
    // Whole cores are as common as fractions, because they may be exclusive.
    (range, any::<bool>()).prop_map(|(milli, whole)| {
        if whole { f64::from(milli.div_ceil(1000)) } else { f64::from(milli) / 1000.0 }
    })
}

prop_compose! {
    fn advice()(
        limit in prop::option::of(millicores(50..20_000)),
        is_lower_bound in any::<bool>(),
        p95 in prop::option::of(millicores(1..20_000)),
        more in 1.0_f64..3.0,
        watched_seconds in prop_oneof![0..REQUEST_AFTER_SECONDS, Just(REQUEST_AFTER_SECONDS)],
    ) -> CpuAdvice {
        let limit = limit.map(|cores| LimitAdvice { cores, is_lower_bound, ..LimitAdvice::default() });
        CpuAdvice { limit, request_cores: p95, most_cores: p95.map(|p95| p95 * more), watched_seconds, ..CpuAdvice::default() }
    }
}

prop_compose! {
    fn container()(
        cpu in advice(),
        limit in prop::option::of(millicores(10..20_000)),
        is_enforced in any::<bool>(),
        node_cpus in 1_u32..32,
        request in prop::option::of(millicores(10..20_000)),
        is_guaranteed in any::<bool>(),
        is_exclusive_class in any::<bool>(),
        throttled_share in prop::option::of(0.0_f64..1.0),
        pod in prop::option::of((millicores(10..20_000), any::<bool>())),
        memory in (1_u64..1 << 40, 0.0_f64..1.0),
        live in 0.0_f64..1.0,
    ) -> Facts {
        let (limit, request) = match is_guaranteed {
            true => (limit, limit),
            // Kubernetes rejects a request above the limit.
            false => (limit, request.map(|request| limit.map_or(request, |limit| request.min(limit)))),
        };
        let pod = pod.map(|(limit_cores, is_of_the_spec)| PodQuota { limit_cores, throttles: true, is_of_the_spec, advised_cores: None });
        let in_force = limit.filter(|_| is_enforced);
        let working_set = (memory.0 as f64 * memory.1) as u64;
        Facts {
            container: "app".into(),
            spec: Some(Spec {
                is_guaranteed: is_guaranteed && limit.is_some(),
                is_exclusive_class,
                limit_cores: limit,
                ..Spec::default()
            }),
            node_cpus: Some(node_cpus),
            limit_cores: in_force,
            own_limit_cores: in_force,
            request_cores: request,
            pod,
            throttled_share,
            memory_limit: Limit::Limited(memory.0),
            memory_request: Some(memory.0),
            memory: Some(memory_advice(memory.0, working_set, (working_set as f64 * live) as u64, false)),
            cpu,
            runtime: Some(Runtime { language: Language::Go, parallelism: Some(4), version: Some("go1.25.1".into()), ..Runtime::default() }),
            ..Facts::default()
        }
    }
}

/// Quantities are rounded up to a millicore.
const ROUNDING: f64 = 0.001_001;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_request_is_lowered_after_a_day_and_to_the_floor_at_most(facts in container()) {
        let (_, request, _) = patched(&facts);
        if let (Some(before), Some(after)) = (facts.request_cores, request) && after < before {
            prop_assert!(facts.cpu.watched_seconds >= REQUEST_AFTER_SECONDS, "{before} to {after}");
            prop_assert!(after >= LEAST_REQUEST_CORES && after >= before * LEAST_REQUEST_PART - 1e-9, "{before} to {after}");
            let node = f64::from(facts.node_cpus.unwrap());
            prop_assert!(after >= facts.cpu.request_cores.unwrap().min(before).min(node), "{before} to {after}, below its use");
        }
        if let (None, Some(after)) = (facts.request_cores, request) {
            let limit = facts.spec.unwrap().limit_cores;
            prop_assert!(after >= LEAST_REQUEST_CORES || limit.is_some_and(|limit| after >= limit), "{after}");
        }
    }

    #[test]
    fn a_limit_is_lowered_only_with_the_request_and_to_what_is_known_to_be_enough(facts in container()) {
        let (limit, request, _) = patched(&facts);
        if let (Some(before), Some(after)) = (facts.spec.unwrap().limit_cores, limit) && after < before {
            let advised = facts.cpu.limit.unwrap();
            prop_assert!(facts.spec.unwrap().is_guaranteed && Some(after) == request, "{before} to {after}");
            prop_assert!(!advised.is_lower_bound && after >= advised.cores, "{before} to {after}");
            prop_assert!(after >= facts.cpu.most_cores.unwrap(), "{before} to {after}");
        }
    }

    #[test]
    fn a_guaranteed_pod_stays_guaranteed_and_no_request_passes_the_limit(facts in container()) {
        let (limit, request, _) = patched(&facts);
        if facts.spec.unwrap().is_guaranteed {
            prop_assert_eq!(limit, request);
        }
        if let (Some(limit), Some(request)) = (limit, request) {
            prop_assert!(request <= limit + ROUNDING, "{request} of {limit}");
        }
    }

    #[test]
    fn nothing_is_raised_above_the_nodes_cpus_or_for_an_idle_container(facts in container()) {
        let (limit, request, _) = patched(&facts);
        let node = f64::from(facts.node_cpus.unwrap());
        let before = (facts.spec.unwrap().limit_cores, facts.request_cores);
        for (before, after) in [(before.0, limit), (before.1, request)] {
            if let Some(after) = after.filter(|&after| before.is_none_or(|before| after > before)) {
                prop_assert!(after <= node + ROUNDING, "{before:?} to {after} of {node}");
            }
        }
        let is_idle = facts.cpu.request_cores.is_none_or(|p95| p95 < 0.01);
        if let (Some(before), true, None) = (before.0, is_idle, facts.throttled_share) {
            prop_assert!(limit <= Some(before), "{before} to {limit:?}");
        }
    }

    #[test]
    fn whole_cores_that_may_be_exclusive_stay_whole(facts in container()) {
        let spec = facts.spec.unwrap();
        let was_whole = facts.request_cores.is_some_and(|request| request >= 1.0 && request.fract() == 0.0);
        let (limit, request, _) = patched(&facts);
        if was_whole && (spec.is_guaranteed || spec.is_exclusive_class) && facts.limit_cores.is_none_or(|limit| limit.fract() == 0.0) && facts.spec.unwrap().limit_cores.is_none_or(|limit| limit.fract() == 0.0) {
            prop_assert_eq!(request.unwrap().fract(), 0.0);
            prop_assert!(limit.is_none_or(|limit| limit.fract() == 0.0), "{:?}", limit);
        }
    }

    #[test]
    fn a_heap_has_nine_tenths_of_the_limit_at_most(facts in container()) {
        if let (_, _, Some(heap)) = patched(&facts) {
            prop_assert!(heap as f64 <= facts.memory_limit.limited().unwrap() as f64 * 0.9, "{heap} of {:?}", facts.memory_limit);
        }
    }
}

/// An idle container with a request of one core.
fn idle(watched_seconds: u64) -> Facts {
    Facts {
        container: "app".into(),
        spec: Some(Spec::default()),
        request_cores: Some(1.0),
        cpu: CpuAdvice { request_cores: Some(0.000_125), watched_seconds, ..CpuAdvice::default() },
        ..Facts::default()
    }
}

#[test]
fn idle_requests_are_lowered_to_a_tenth_after_a_day() {
    for (seconds, so_far) in
        [(40, "40 s"), (300, "5 min"), (13 * 3600, "13 h"), (24 * 3600 - 1, "23 h")]
    {
        let found = findings(&idle(seconds));
        assert_eq!(found[0].no_patch, Some(format!("not enough history: {so_far} of 24 h")));
    }
    assert_eq!(patched(&idle(24 * 3600)).1, Some(0.1));
}

#[test]
fn a_limit_of_a_guaranteed_pods_own_is_raised_with_its_request() {
    let pod = PodQuota {
        limit_cores: 1.0,
        throttles: true,
        is_of_the_spec: true,
        advised_cores: Some(2.0),
    };
    let resources = |is_guaranteed| {
        let spec = Some(Spec { is_guaranteed, pod_requests_cpu: true, ..Spec::default() });
        let facts =
            Facts { spec, pod: Some(pod), ancestor_throttled_rate: Some(0.5), ..Facts::default() };
        findings(&facts)[0].patch.clone().unwrap()["spec"]["template"]["spec"]["resources"].clone()
    };
    let cpu = serde_json::json!({ "cpu": "2000m" });
    assert_eq!(resources(true), serde_json::json!({ "limits": cpu, "requests": cpu }));
    assert_eq!(resources(false), serde_json::json!({ "limits": cpu }));
}

#[test]
fn missing_advice_names_the_time_until_it_is_available() {
    let reported = |watched_seconds| analysis::not_enough_history(watched_seconds, 300);
    let expected = |so_far, rest| Some(format!("not enough history: {so_far} of 24 h; {rest}"));
    assert_eq!(reported(0), expected("0 s", "limits from 5 min, lower requests from 24 h"));
    assert_eq!(reported(299), expected("4 min", "limits from 5 min, lower requests from 24 h"));
    assert_eq!(reported(300), expected("5 min", "lower requests from 24 h"));
    assert_eq!(reported(24 * 3600), None);
}
