//! What the advice must never be: rejected by Kubernetes, more than the node has, or for good where
//! it is needed only at the start.

use analysis::{Facts, PodQuota, REQUEST_AFTER_SECONDS, Spec, findings};
use api::{CpuAdvice, Finding, FindingKind, Language, LimitAdvice, Runtime, Severity, merged};
use serde_json::Value;
use snapshot::Limit;

fn found(facts: &Facts, kind: FindingKind) -> Finding {
    let all = findings(facts);
    all.iter().find(|finding| finding.kind == kind).unwrap_or_else(|| panic!("{all:?}")).clone()
}

/// Resources of the container in the patch of all findings.
fn resources(facts: &Facts) -> Value {
    let patch = merged(findings(facts).iter().filter_map(|finding| finding.patch.as_ref()));
    patch.unwrap_or_default()["spec"]["template"]["spec"]["containers"][0]["resources"].clone()
}

/// A container with this limit in its spec and in the kernel, and a use that needs `advised`.
fn throttled(limit: f64, advised: f64) -> Facts {
    let advice = LimitAdvice { cores: advised, is_lower_bound: true, ..LimitAdvice::default() };
    Facts {
        container: "app".into(),
        spec: Some(Spec { limit_cores: Some(limit), ..Spec::default() }),
        limit_cores: Some(limit),
        own_limit_cores: Some(limit),
        request_cores: Some(limit),
        throttled_share: Some(0.5),
        cpu: CpuAdvice {
            limit: Some(advice),
            request_cores: Some(limit),
            most_cores: Some(limit),
            watched_seconds: REQUEST_AFTER_SECONDS,
            ..CpuAdvice::default()
        },
        ..Facts::default()
    }
}

/// A container that uses `used` cores, without a limit in the kernel.
fn using(used: f64, request: f64, spec: Spec) -> Facts {
    Facts {
        container: "app".into(),
        spec: Some(spec),
        request_cores: Some(request),
        cpu: CpuAdvice { request_cores: Some(used), ..CpuAdvice::default() },
        ..Facts::default()
    }
}

#[test]
fn a_request_is_at_most_the_limit_of_the_spec() {
    let spec = Spec { limit_cores: Some(1.0), ..Spec::default() };
    assert_eq!(resources(&using(3.0, 0.2, spec))["requests"]["cpu"], "1000m");
    let of_the_pod = Spec { pod_limit_cores: Some(0.5), ..Spec::default() };
    let without = Facts { request_cores: None, ..using(3.0, 0.0, of_the_pod) };
    assert_eq!(resources(&without)["requests"]["cpu"], "500m");
    let tiny = Spec { limit_cores: Some(0.005), ..Spec::default() };
    let idle = Facts { request_cores: None, limit_cores: Some(0.01), ..using(0.001, 0.0, tiny) };
    assert_eq!(resources(&idle)["requests"]["cpu"], "5m", "the kernel's least quota is higher");
}

#[test]
fn a_limit_is_never_lowered_below_the_spec_by_a_lower_quota() {
    let mut facts = throttled(1.0, 2.0);
    facts.spec = Some(Spec { limit_cores: Some(4.0), ..Spec::default() });
    let reason = found(&facts, FindingKind::ThrottledByOwnQuota).no_patch.unwrap();
    assert!(reason.contains("higher than the quota in force"), "{reason}");
    facts.spec =
        Some(Spec { limit_cores: Some(4.0), pod_limit_cores: Some(1.5), ..Spec::default() });
    let reason = found(&facts, FindingKind::ThrottledByOwnQuota).no_patch.unwrap();
    assert!(reason.contains("pod-level limit"), "{reason}");
}

#[test]
fn pod_level_requests_are_not_exceeded_by_their_containers() {
    let mut facts = throttled(1.0, 2.0);
    let guaranteed = Spec { is_guaranteed: true, limit_cores: Some(1.0), ..Spec::default() };
    facts.spec = Some(guaranteed);
    assert_eq!(resources(&facts)["requests"]["cpu"], "2000m");
    facts.spec = Some(Spec { pod_requests_cpu: true, ..guaranteed });
    assert_eq!(resources(&facts), serde_json::json!({ "limits": { "cpu": "2000m" } }));
    let memory = Facts {
        memory_limit: Limit::Limited(1 << 20),
        spec: Some(Spec { pod_requests_memory: true, ..Spec::default() }),
        ..Facts::default()
    };
    assert_eq!(found(&memory, FindingKind::MemoryLimitNotRequest).patch, None);
}

#[test]
fn a_memory_request_is_set_to_the_limit_of_the_spec() {
    let memory = Facts {
        container: "app".into(),
        memory_limit: Limit::Limited(999_997_440),
        spec: Some(Spec { memory_limit: Some(1_000_000_000), ..Spec::default() }),
        ..Facts::default()
    };
    assert_eq!(resources(&memory)["requests"]["memory"], "1000000000");
}

#[test]
fn nothing_is_advised_above_the_nodes_cpus() {
    let facts = Facts { node_cpus: Some(2), ..throttled(1.0, 4.0) };
    assert_eq!(resources(&facts)["limits"]["cpu"], "2000m");
    let all = Facts { node_cpus: Some(2), ..throttled(2.0, 4.0) };
    assert_eq!(resources(&all), Value::Null);
    let used = Facts { node_cpus: Some(2), ..using(2.3, 0.5, Spec::default()) };
    assert_eq!(resources(&used)["requests"]["cpu"], "2000m");
    let pod = PodQuota {
        limit_cores: 1.0,
        throttles: true,
        is_of_the_spec: true,
        advised_cores: Some(5.0),
    };
    let pod = Facts {
        node_cpus: Some(2),
        ancestor_throttled_rate: Some(0.5),
        pod: Some(pod),
        ..Facts::default()
    };
    let pod = found(&pod, FindingKind::ThrottledByAncestor);
    assert_eq!(pod.evidence["recommendedPodLimitCores"], 2.0);
}

#[test]
fn the_template_of_a_job_gets_no_patch() {
    let mut facts = throttled(1.0, 2.0);
    facts.spec.iter_mut().for_each(|spec| spec.is_of_a_job = true);
    let finding = found(&facts, FindingKind::ThrottledByOwnQuota);
    assert_eq!(finding.evidence["recommendedLimitCores"], 2.0);
    assert!(finding.patch.is_none() && finding.no_patch.unwrap().contains("CronJob"));
    assert_eq!(resources(&facts), Value::Null);
}

#[test]
fn a_sandbox_gets_no_patch() {
    let mut facts = throttled(1.0, 2.0);
    facts.container = "POD".to_owned();
    let finding = found(&facts, FindingKind::ThrottledByOwnQuota);
    assert!(finding.patch.is_none() && finding.no_patch.unwrap().contains("sandbox"));
}

/// A Guaranteed pod of 1.5 cores in Go.
fn fraction(p95: f64) -> Facts {
    let mut facts = throttled(1.5, 0.05);
    facts.spec.iter_mut().for_each(|spec| spec.is_guaranteed = true);
    facts.throttled_share = Some(0.0);
    let exact = LimitAdvice { cores: 0.05, ..LimitAdvice::default() };
    (facts.cpu.limit, facts.cpu.request_cores, facts.cpu.most_cores) =
        (Some(exact), Some(p95), Some(p95));
    let settings = [("GOMEMLIMIT".to_owned(), "1GiB".to_owned())].into();
    let (language, parallelism) = (Language::Go, Some(2));
    facts.runtime = Some(Runtime { language, parallelism, settings, ..Runtime::default() });
    facts
}

#[test]
fn an_idle_fraction_is_lowered_and_not_rounded_up() {
    let both =
        |cpu: &str| serde_json::json!({ "limits": { "cpu": cpu }, "requests": { "cpu": cpu } });
    assert_eq!(resources(&fraction(0.01)), both("150m"));
    assert_eq!(resources(&fraction(1.2)), both("2000m"));
    let unknown = Facts { cpu: CpuAdvice::default(), ..fraction(1.2) };
    assert_eq!(resources(&unknown), Value::Null);
    let small_node = Facts { node_cpus: Some(1), ..fraction(1.2) };
    assert_eq!(resources(&small_node), Value::Null);
}

#[test]
fn on_exclusive_cpus_the_quota_is_the_cause() {
    let mut facts = Facts { cpus: Some(2), node_cpus: Some(8), ..throttled(2.0, 3.0) };
    let patched = |facts: &Facts| found(facts, FindingKind::ThrottledByOwnQuota).patch.is_some();
    assert!(patched(&facts), "a Burstable pod has no CPUs of its own");
    facts.spec.iter_mut().for_each(|spec| spec.is_guaranteed = true);
    let finding = found(&facts, FindingKind::ThrottledByOwnQuota);
    assert!(finding.patch.is_none() && !finding.evidence.contains_key("recommendedLimitCores"));
    assert!(finding.no_patch.unwrap().contains("exclusive CPUs: let the kubelet set none"));
    assert!(patched(&Facts { cpus: Some(6), ..facts.clone() }), "the shared pool");
    let claimed = Facts { claims_cpus: true, ..throttled(2.0, 3.0) };
    let finding = found(&claimed, FindingKind::ThrottledByOwnQuota);
    assert!(finding.no_patch.unwrap().contains("remove the CPU limit"));
    let pod = PodQuota {
        limit_cores: 2.0,
        throttles: true,
        is_of_the_spec: true,
        advised_cores: Some(5.0),
    };
    let pod = Facts { pod: Some(pod), ancestor_throttled_rate: Some(0.5), ..facts };
    assert_eq!(found(&pod, FindingKind::ThrottledByAncestor).patch, None);
}

#[test]
fn a_limit_is_not_in_force_only_if_nothing_else_explains_it() {
    let spec = Spec { limit_cores: Some(2.0), is_guaranteed: true, ..Spec::default() };
    let facts = Facts { has_no_quota: true, ..using(1.0, 2.0, spec) };
    let has = |facts: &Facts| {
        findings(facts).iter().any(|finding| finding.kind == FindingKind::LimitNotInForce)
    };
    assert!(has(&facts));
    assert!(!has(&Facts { has_no_quota: false, ..facts.clone() }), "not read yet");
    let resizing = Spec { is_resizing: true, ..spec };
    assert!(!has(&Facts { spec: Some(resizing), ..facts.clone() }));
    let exclusive = Facts { cpus: Some(2), node_cpus: Some(8), ..facts.clone() };
    assert!(!has(&exclusive) && !has(&Facts { claims_cpus: true, ..facts }));
}

#[test]
fn throttling_at_the_start_only_raises_no_limit() {
    let facts = Facts { is_throttled_at_start_only: true, ..throttled(1.0, 2.0) };
    let finding = found(&facts, FindingKind::ThrottledByOwnQuota);
    assert!(finding.patch.is_none() && finding.no_patch.unwrap().contains("first minute"));
}

#[test]
fn a_low_request_is_a_warning_once_it_costs_time() {
    let severity = |lost_cores| {
        let finding = found(
            &Facts { lost_cores, ..using(0.8, 0.01, Spec::default()) },
            FindingKind::RequestBelowUse,
        );
        (finding.severity, finding.evidence.get("lostCores").copied())
    };
    assert_eq!(severity(None), (Severity::Info, None));
    assert_eq!(severity(Some(0.01)), (Severity::Info, Some(0.01)));
    assert_eq!(severity(Some(0.5)), (Severity::Warning, Some(0.5)));
    assert_eq!(FindingKind::NoMemoryLimit.severity(), Severity::Info);
}

#[test]
fn a_memory_limit_is_missed_only_where_other_containers_have_one() {
    let some = Spec { has_memory_limits: true, ..Spec::default() };
    let is_missed = |spec: Spec| {
        let facts = Facts { memory_limit: Limit::Unlimited, spec: Some(spec), ..Facts::default() };
        findings(&facts).iter().any(|finding| finding.kind == FindingKind::NoMemoryLimit)
    };
    assert!(is_missed(some));
    assert!(!is_missed(Spec::default()));
    assert!(!is_missed(Spec { pod_limits_memory: true, ..some }));
}
