//! Limits that the variables follow.

use super::*;

#[test]
fn the_lowest_limit_over_container_and_pod_counts() {
    let own = (Some(1000), Some(256));
    for of_container in [(Some(1500), Some(512)), (None, None)] {
        let mut injector = injector_of(pod_of(own, &[("app", of_container)]));
        let creation = injector.create_container(with_sum(own), with_limits("app", of_container));
        assert_eq!(env(&creation), ["GOMAXPROCS=1", "GOMEMLIMIT=179MiB"]);
    }
}

#[test]
fn a_pods_limit_of_zero_is_no_limit() {
    let list = r#"{"kind":"PodList","items":[{"spec":{
        "resources":{"limits":{"cpu":"0","memory":"0"}},
        "containers":[{"name":"app","resources":{"limits":{"cpu":"4","memory":"512Mi"}}}]}}]}"#;
    let listed = kubepods::read_pod_list(list.as_bytes()).unwrap().remove(0);
    let mut injector = injector_of((*listed).clone());
    let limits = (Some(4000), Some(512));
    let creation = injector.create_container(opted_in(), with_limits("app", limits));
    assert_eq!(env(&creation), ["GOMAXPROCS=4", "GOMEMLIMIT=358MiB"]);
}

/// The kubelet passes the sum of the limits that exist, even if other containers have none. The
/// pod's cgroup then has no limit.
#[test]
fn a_sidecars_limit_does_not_limit_the_other_containers() {
    let (unlimited, sidecar) = ((None, None), (Some(500), Some(128)));
    let mut injector =
        injector_of(pod_of((None, None), &[("app", unlimited), ("sidecar", sidecar)]));
    let mut of = |name: &str, limits: Limits| {
        env(&injector.create_container(with_sum(sidecar), with_limits(name, limits)))
    };
    assert!(of("app", unlimited).is_empty());
    assert_eq!(of("sidecar", sidecar), ["GOMAXPROCS=1", "GOMEMLIMIT=89MiB"]);
    // A container with another limit, of which the sum has only one part.
    assert_eq!(of("app", (Some(4000), None)), ["GOMAXPROCS=4"]);

    let named = [(VARIABLES_ANNOTATION, "true"), (CONTAINERS_ANNOTATION, "unlisted")];
    let unlisted = PodSandbox { linux: with_sum(sidecar).linux, ..pod(&named) };
    let creation = injector.create_container(unlisted, with_limits("unlisted", unlimited));
    assert_eq!(creation, Creation::default());
}

#[test]
fn a_container_gets_no_more_threads_than_it_has_cpus() {
    let of = (Some(16_000), None);
    let mut injector = injector_of(pod_of((None, None), &[("app", of)]));
    let mut in_cpus = |cpus: &str| {
        let mut container = with_limits("app", of);
        let resources = container.linux.as_mut().unwrap().resources.as_mut().unwrap();
        cpus.clone_into(&mut resources.cpu.as_mut().unwrap().cpus);
        let creation = injector.create_container(opted_in(), container.clone());
        injector.notify(Event::PostCreateContainer, opted_in(), Some(container));
        env(&creation).concat()
    };
    assert_eq!(in_cpus(""), "GOMAXPROCS=8");
    assert_eq!(in_cpus("0-2,6"), "GOMAXPROCS=4");
    assert_eq!(in_cpus("0-15"), "GOMAXPROCS=8", "some are offline");
    assert_eq!(in_cpus("unreadable"), "GOMAXPROCS=8");
}

/// The runtime reports the sum at the pod's creation.
#[test]
fn a_container_that_restarts_after_a_resize_gets_the_new_limits() {
    let (old, new) = ((Some(1000), Some(256)), (Some(4000), Some(1024)));
    for own in [(None, None), new] {
        let mut injector = injector_of(pod_of(own, &[("app", new)]));
        let creation = injector.create_container(with_sum(old), with_limits("app", new));
        assert_eq!(env(&creation), ["GOMAXPROCS=4", "GOMEMLIMIT=716MiB"], "{own:?}");
    }
}

#[test]
fn a_resize_upwards_makes_a_value_stale_beside_an_old_sum() {
    let (old, new) = ((Some(1000), Some(256)), (Some(4000), Some(1024)));
    let mut injector = injector_of(pod_of((None, None), &[("app", old)]));
    injector.create_container(with_sum(old), with_limits("app", old));
    injector.update_container(with_sum(old), with_limits("app", old), linux_of(new));
    let rows = ["shop cart app GOMAXPROCS 1 stale", "shop cart app GOMEMLIMIT 179MiB stale"];
    assert_eq!(rows_of(&injector), rows);
}

/// After a sidecar's resize, the runtime gets the new sum.
#[test]
fn a_resize_of_the_pod_counts_only_for_its_own_limit() {
    let of = (Some(8000), Some(512));
    let mut injector = injector_of(pod_of((Some(4000), None), &[("app", of)]));
    injector.create_container(opted_in(), with_limits("app", of));
    let sum = linux_of((Some(2000), Some(128)));
    injector.update_pod(opted_in(), LinuxResources::default(), sum);
    let rows = ["shop cart app GOMAXPROCS 4 stale", "shop cart app GOMEMLIMIT 358MiB injected"];
    assert_eq!(rows_of(&injector), rows);
}

#[test]
fn a_pods_own_limit_counts_as_soon_as_it_is_listed() {
    let of = (Some(8000), Some(512));
    let named = [(VARIABLES_ANNOTATION, "GOMAXPROCS"), (CONTAINERS_ANNOTATION, "app")];
    let mut injector = injector(false);
    injector.listed = Box::new(|_, _| None);
    let creation = injector.create_container(pod(&named), with_limits("app", of));
    assert_eq!(env(&creation), ["GOMAXPROCS=8"]);
    let mut listed = |cpu_millis| {
        let pod = pod_of((cpu_millis, None), &[("app", of)]);
        injector.listed = injector_of(pod).listed;
        injector.pods_listed();
        rows_of(&injector).concat()
    };
    assert_eq!(listed(Some(9000)), "shop cart app GOMAXPROCS 8 injected");
    assert_eq!(listed(Some(2000)), "shop cart app GOMAXPROCS 8 stale");
    assert_eq!(listed(None), "shop cart app GOMAXPROCS 8 injected");
}

#[test]
fn without_a_cpu_limit_the_request_times_the_factor_counts() {
    let with_shares = |shares: u64, limits| {
        let mut app = with_limits("app", limits);
        let resources = app.linux.as_mut().unwrap().resources.as_mut().unwrap();
        resources.cpu.as_mut().unwrap().shares = Some(OptionalUInt64 { value: shares });
        app
    };
    let created = |request_factor, app: Container| {
        let rules = InjectionRules { request_factor, ..rules(false, Vec::new()) };
        let listed = |_: &str, _: &str| Some(listed_as(ContainerKind::App));
        let mut injector = Injector::new(rules, Some(8), listed, |_| {});
        env(&injector.create_container(opted_in(), app))
    };
    // 750m are 768 shares.
    let without_limit = || with_shares(768, (None, None));
    assert_eq!(created(None, without_limit()), [""; 0]);
    assert_eq!(created(Some(1.0), without_limit()), ["GOMAXPROCS=1"]);
    assert_eq!(created(Some(3.0), without_limit()), ["GOMAXPROCS=3"]);
    assert_eq!(
        created(Some(100.0), without_limit()),
        ["GOMAXPROCS=8"],
        "as many as there are CPUs"
    );
    assert_eq!(created(Some(3.0), with_shares(768, (Some(1000), None))), ["GOMAXPROCS=1"]);
    // The kubelet's shares of a container without a request.
    assert_eq!(created(Some(3.0), with_shares(2, (None, None))), [""; 0]);
}

#[test]
fn a_listed_container_without_a_cpu_limit_would_get_the_same() {
    let mut pod = pod_of((None, None), &[("app", (None, None))]);
    pod.containers[0].resources.cpu_request_millis = Some(750);
    let of = |request_factor| {
        let rules = InjectionRules { request_factor, ..rules(false, Vec::new()) };
        super::super::super::of_pod(&rules, Some(8), &pod)
    };
    assert_eq!(of(None), [""; 0]);
    assert_eq!(of(Some(3.0)), ["shop/cart/app GOMAXPROCS=3"]);
}
