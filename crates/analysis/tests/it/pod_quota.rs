//! A quota above the container's own: the owner of the lowest limit, and the place of the change.

use analysis::{Facts, Member, PodQuota, findings};
use api::{CpuAdvice, Finding, FindingKind, Language, LimitAdvice, Runtime, merged};
use serde_json::{Value, json};
use snapshot::Limit;

fn member(own_limit_cores: Option<f64>, advised_cores: Option<f64>) -> Member {
    Member { own_limit_cores, advised_cores }
}

/// A container that an ancestor's quota throttles for 0.2 seconds per second, under its pod's
/// quota.
fn throttled_by_pod(own_limit_cores: Option<f64>, lowest: f64, pod: Option<PodQuota>) -> Facts {
    let limit = Some(LimitAdvice { cores: 3.0, is_lower_bound: true, ..LimitAdvice::default() });
    Facts {
        container: "app".into(),
        limit_cores: Some(lowest),
        own_limit_cores,
        pod,
        request_cores: Some(1.0),
        ancestor_throttled_rate: Some(0.2),
        memory_limit: Limit::Limited(1 << 30),
        memory_request: Some(1 << 30),
        cpu: CpuAdvice { windows: 3600, limit, request_cores: Some(0.9), ..CpuAdvice::default() },
        ..Facts::default()
    }
}

fn only(facts: &Facts) -> Finding {
    let mut found = findings(facts);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn jvm(parallelism: u32) -> Option<Runtime> {
    let settings = [("Xmx".to_owned(), "1g".to_owned())].into();
    Some(Runtime {
        language: Language::Jvm,
        parallelism: Some(parallelism),
        settings,
        ..Runtime::default()
    })
}

#[test]
fn a_pods_quota_is_of_its_spec_unless_it_is_the_sum_of_limits() {
    let is_of_the_spec =
        |limit, members: &[Member]| PodQuota::of(limit, true, members).is_of_the_spec;
    let (one, half, none) = (member(Some(1.0), None), member(Some(0.5), None), member(None, None));
    assert!(!is_of_the_spec(1.5, &[one, half]));
    assert!(!is_of_the_spec(1.499, &[one, half]), "a rounded sum");
    assert!(!is_of_the_spec(2.0, &[one, half]), "an init container with more");
    assert!(is_of_the_spec(1.2, &[one, half]));
    assert!(is_of_the_spec(1.5, &[one, none]), "the kubelet adds up only where all have a limit");
}

#[test]
fn pod_advice_is_the_sum_of_its_containers_if_all_are_known() {
    let advised = |members: &[Member]| PodQuota::of(1.0, true, members).advised_cores;
    assert_eq!(advised(&[member(None, Some(1.5)), member(None, Some(0.25))]), Some(1.75));
    assert_eq!(advised(&[member(None, Some(1.5)), member(None, None)]), None);
}

#[test]
fn a_container_throttled_by_its_pods_limit_gets_a_pod_patch() {
    let pod = PodQuota::of(1.0, true, &[member(None, Some(3.0)), member(None, Some(0.5))]);
    let found = only(&throttled_by_pod(None, 1.0, Some(pod)));
    assert_eq!(found.kind, FindingKind::ThrottledByAncestor);
    assert_eq!(
        (found.evidence["podLimitCores"], found.evidence["recommendedPodLimitCores"]),
        (1.0, 3.5)
    );
    let spec = json!({ "resources": { "limits": { "cpu": "3500m" } } });
    assert_eq!(found.patch, Some(json!({ "spec": { "template": { "spec": spec } } })));
}

#[test]
fn a_limit_that_does_not_bind_is_not_the_one_to_raise() {
    let pod = PodQuota::of(1.0, true, &[member(Some(4.0), Some(3.0))]);
    let found = only(&throttled_by_pod(Some(4.0), 1.0, Some(pod)));
    assert_eq!(
        found.patch.unwrap()["spec"]["template"]["spec"],
        json!({ "resources": { "limits": { "cpu": "3000m" } } })
    );
}

#[test]
fn no_patch_without_a_pod_level_limit_in_the_spec() {
    let sum = PodQuota::of(1.0, true, &[member(Some(1.0), Some(3.0))]);
    let idle = PodQuota::of(2.0, false, &[member(None, Some(3.0))]);
    let unknown = PodQuota::of(1.0, true, &[member(None, None)]);
    for (pod, reason) in [
        (Some(sum), "sum of its containers' limits"),
        (Some(idle), "above the pod"),
        (None, "above the pod"),
        (Some(unknown), "no higher pod limit"),
    ] {
        let found = only(&throttled_by_pod(None, 1.0, pod));
        assert_eq!(found.patch, None, "{pod:?}");
        assert!(found.no_patch.as_deref().unwrap().contains(reason), "{pod:?}: {found:?}");
    }
}

#[test]
fn a_pods_quota_is_no_limit_of_the_container() {
    let pod = PodQuota::of(1.5, false, &[member(None, None)]);
    let mut facts = Facts {
        ancestor_throttled_rate: None,
        runtime: jvm(1),
        ..throttled_by_pod(None, 1.5, Some(pod))
    };
    assert_eq!(
        findings(&facts),
        [],
        "a fraction of the pod's is not its own, nor are more cores wasted by it alone"
    );
    facts.limit_cores = Some(4.0);
    assert_eq!(findings(&facts), []);
    // Its threads are throttled together all the same.
    facts.runtime = jvm(8);
    assert_eq!(only(&facts).kind, FindingKind::ParallelismAboveLimit);
}

#[test]
fn the_own_limit_is_reported_below_a_lower_ancestor_limit() {
    let mut facts = Facts {
        ancestor_throttled_rate: None,
        throttled_share: Some(0.5),
        ..throttled_by_pod(Some(4.0), 2.0, None)
    };
    let found = only(&facts);
    assert_eq!((found.evidence["limitCores"], found.patch), (4.0, None), "3 cores would lower it");
    facts.runtime = jvm(2);
    facts.own_limit_cores = Some(4.5);
    assert_eq!(
        only(&facts).kind,
        FindingKind::ThrottledByOwnQuota,
        "a fraction of what does not bind is nothing"
    );
}

#[test]
fn no_limit_is_advised_that_kubernetes_would_reject() {
    let pod = PodQuota::of(2.0, true, &[member(Some(1.0), Some(3.0)), member(None, None)]);
    let mut facts = Facts {
        ancestor_throttled_rate: None,
        throttled_share: Some(0.5),
        ..throttled_by_pod(Some(1.0), 1.0, Some(pod))
    };
    assert!(only(&facts).no_patch.unwrap().contains("the pod-level limit is lower"));
    facts.pod = Some(PodQuota { limit_cores: 3.0, ..pod });
    assert!(only(&facts).patch.is_some());
}

#[test]
fn one_patch_holds_both_the_pods_and_the_containers_part() {
    let pod = json!({ "spec": { "template": { "spec": { "resources": { "limits": { "cpu": "2000m" } } } } } });
    let spec = json!({ "containers": [{ "name": "app", "env": [{ "name": "GOMAXPROCS", "value": "2" }] }] });
    let container = json!({ "spec": { "template": { "spec": spec } } });
    let whole: Value = merged([&pod, &container].into_iter()).unwrap();
    let whole = &whole["spec"]["template"]["spec"];
    assert_eq!(
        (&whole["resources"]["limits"]["cpu"], &whole["containers"]),
        (&json!("2000m"), &spec["containers"])
    );
    assert_eq!(merged(std::iter::once(&pod)), Some(pod.clone()));
}
