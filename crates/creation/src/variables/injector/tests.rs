mod creations;
mod limits;

use analysis::HEAP_SHARE;
use api::InjectionStatus;
use kubepods::model::{self, ContainerKind, InjectionRequest, Pod};
use nri::api::{
    LinuxContainer, LinuxCpu, LinuxMemory, LinuxPodSandbox, OptionalInt64, OptionalUInt64,
};
use placement::Selector;

use super::*;

const MIB: i64 = 1 << 20;

fn resources(quota_us: i64, memory: i64) -> LinuxResources {
    LinuxResources {
        cpu: Some(LinuxCpu {
            quota: Some(OptionalInt64 { value: quota_us }),
            period: Some(OptionalUInt64 { value: 100_000 }),
            ..LinuxCpu::default()
        }),
        memory: Some(LinuxMemory {
            limit: Some(OptionalInt64 { value: memory }),
            ..LinuxMemory::default()
        }),
        ..LinuxResources::default()
    }
}

fn pod(annotations: &[(&str, &str)]) -> PodSandbox {
    let text = |text: &&str| (*text).to_owned();
    PodSandbox {
        id: "sandbox".into(),
        uid: "uid".into(),
        name: "cart".into(),
        namespace: "shop".into(),
        labels: [("tier".to_owned(), "web".to_owned())].into(),
        annotations: annotations.iter().map(|(key, value)| (text(key), text(value))).collect(),
        ..PodSandbox::default()
    }
}

fn opted_in() -> PodSandbox {
    pod(&[(VARIABLES_ANNOTATION, "true")])
}

fn container(name: &str, env: &[&str]) -> Container {
    Container {
        id: format!("id-{name}"),
        pod_sandbox_id: "sandbox".into(),
        name: name.into(),
        env: env.iter().map(|pair| (*pair).to_owned()).collect(),
        linux: Some(LinuxContainer {
            resources: Some(resources(150_000, 512 * MIB)),
            ..LinuxContainer::default()
        }),
        ..Container::default()
    }
}

fn injector(observes: bool) -> Injector {
    let selector = Selector { namespaces: vec!["bank".to_owned()], ..Selector::default() };
    let profiles = vec![(selector, Request::parse("true", None).unwrap().unwrap())];
    let listed = |uid: &str, name: &str| match (uid, name) {
        ("uid", "app") => Some(listed_as(ContainerKind::App)),
        ("uid", "setup") => Some(listed_as(ContainerKind::Init)),
        _ => None,
    };
    Injector::new(rules(observes, profiles), None, listed, |_| {})
}

fn listed_as(kind: ContainerKind) -> Listed {
    let container = model::Container { kind, ..model::Container::default() };
    Listed::of(&Pod::default(), &container, Known::default())
}

fn rules(observes: bool, profiles: Vec<(Selector, Request)>) -> InjectionRules {
    InjectionRules { observes, memory_share: HEAP_SHARE, request_factor: None, profiles }
}

/// An injector on a node with eight CPUs, and this pod in the list.
fn injector_of(pod: Pod) -> Injector {
    let rules = rules(false, Vec::new());
    let listed = move |_: &str, name: &str| {
        let container = pod.container_by_name(name)?;
        Some(Listed::of(&pod, container, Known::default()))
    };
    Injector::new(rules, Some(8), listed, |_| {})
}

/// A listed pod with this limit of its own, and the containers with theirs: CPU in millicores, and
/// memory in MiB.
fn pod_of(own: Limits, containers: &[(&str, Limits)]) -> Pod {
    let container = |&(name, limits): &(&str, Limits)| model::Container {
        name: name.into(),
        resources: limits_of(limits),
        ..model::Container::default()
    };
    let containers = containers.iter().map(container).collect();
    let injection =
        InjectionRequest { variables: Some("true".into()), ..InjectionRequest::default() };
    let (namespace, name) = ("shop".into(), "cart".into());
    Pod { namespace, name, resources: limits_of(own), injection, containers, ..Pod::default() }
}

type Limits = (Option<u64>, Option<u64>);

fn limits_of((cpu_limit_millis, memory_mib): Limits) -> model::Resources {
    let memory_limit_bytes = memory_mib.map(|mib| mib * MIB as u64);
    model::Resources { cpu_limit_millis, memory_limit_bytes, ..model::Resources::default() }
}

/// The resources that the runtime gets for these limits.
fn linux_of((cpu_millis, memory_mib): Limits) -> LinuxResources {
    let quota_us = cpu_millis.map_or(-1, |millis| millis as i64 * 100);
    resources(quota_us, memory_mib.map_or(0, |mib| mib as i64 * MIB))
}

/// A container with these limits at the runtime.
fn with_limits(name: &str, limits: Limits) -> Container {
    let linux = LinuxContainer { resources: Some(linux_of(limits)), ..LinuxContainer::default() };
    Container { linux: Some(linux), ..container(name, &[]) }
}

/// An opted-in pod with this sum of limits, as the kubelet passes it to the runtime.
fn with_sum(limits: Limits) -> PodSandbox {
    let pod_resources = Some(linux_of(limits));
    let linux = Some(LinuxPodSandbox { pod_resources, ..LinuxPodSandbox::default() });
    PodSandbox { linux, ..opted_in() }
}

/// The status of all variables.
fn rows_of(injector: &Injector) -> Vec<String> {
    let containers = injector.containers();
    containers.values().flat_map(|one| one.rows()).map(|row| row.join(" ")).collect()
}

fn env(creation: &Creation) -> Vec<String> {
    let adjustment = creation.adjustment.iter();
    let env = adjustment.flat_map(|adjustment| &adjustment.env);
    env.map(|pair| format!("{}={}", pair.key, pair.value)).collect()
}

#[test]
fn an_annotated_pods_container_gets_the_variables_that_it_lacks() {
    let mut injector = injector(false);
    let creation = injector.create_container(opted_in(), container("app", &["PATH=/bin"]));
    assert_eq!(env(&creation), ["GOMAXPROCS=1", "GOMEMLIMIT=358MiB"]);
    let record = &creation.adjustment.unwrap().annotations[RECORD_ANNOTATION];
    assert_eq!(record, "GOMAXPROCS=1 GOMEMLIMIT=358MiB cpuMillis=1500 memoryBytes=536870912");
    let rows = ["shop cart app GOMAXPROCS 1 injected", "shop cart app GOMEMLIMIT 358MiB injected"];
    assert_eq!(rows_of(&injector), rows);
    let has_both = container("app", &["GOMAXPROCS=8", "GOMEMLIMIT="]);
    assert_eq!(injector.create_container(opted_in(), has_both), Creation::default());
}

#[test]
fn only_pods_that_ask_and_their_app_containers_are_touched() {
    let mut injector = injector(false);
    let others = [
        (pod(&[]), container("app", &[])),
        (pod(&[(VARIABLES_ANNOTATION, "false")]), container("app", &[])),
        (pod(&[(VARIABLES_ANNOTATION, "PATH")]), container("app", &[])),
        (opted_in(), container("setup", &[])),
        // Not in the kubelet's list yet: it may be an init container.
        (opted_in(), container("unlisted", &[])),
    ];
    for (pod, container) in others {
        let name = container.name.clone();
        assert_eq!(injector.create_container(pod, container), Creation::default(), "{name}");
    }
    assert!(rows_of(&injector).is_empty());
    let named = [(VARIABLES_ANNOTATION, "GOMAXPROCS"), (CONTAINERS_ANNOTATION, "setup,unlisted")];
    for name in ["setup", "unlisted"] {
        let creation = injector.create_container(pod(&named), container(name, &[]));
        assert_eq!(env(&creation), ["GOMAXPROCS=1"], "{name}");
    }
}

#[test]
fn a_container_that_starts_before_its_pod_is_listed_is_counted() {
    let missed_by = |observes| {
        let (send, missed) = std::sync::mpsc::channel();
        let mut injector = injector(observes);
        injector.missed = Box::new(move |_| send.send(()).unwrap());
        let named = [(VARIABLES_ANNOTATION, "true"), (CONTAINERS_ANNOTATION, "unlisted")];
        injector.create_container(pod(&named), container("unlisted", &[]));
        injector.create_container(pod(&[]), container("unlisted", &[]));
        injector.create_container(opted_in(), container("setup", &[]));
        let before = missed.try_iter().count();
        injector.create_container(opted_in(), container("unlisted", &[]));
        (before, missed.try_iter().count())
    };
    assert_eq!(missed_by(false), (0, 1));
    assert_eq!(missed_by(true), (0, 0), "nothing is injected at all");
}

#[test]
fn a_profile_selects_pods_and_an_annotation_overrides_it() {
    let mut injector = injector(false);
    let bank = |annotations| PodSandbox { namespace: "bank".into(), ..pod(annotations) };
    let mut of =
        |annotations| env(&injector.create_container(bank(annotations), container("app", &[])));
    assert_eq!(of(&[]), ["GOMAXPROCS=1", "GOMEMLIMIT=358MiB"]);
    assert_eq!(of(&[(VARIABLES_ANNOTATION, "RAYON_NUM_THREADS")]), ["RAYON_NUM_THREADS=1"]);
    assert!(of(&[(VARIABLES_ANNOTATION, "false")]).is_empty());
}

#[test]
fn the_preview_of_a_listed_pod_has_the_values_of_its_start() {
    let none = (None, None);
    let cases = [
        (none, vec![("app", none), ("sidecar", (Some(500), Some(128)))]),
        (none, vec![("app", (Some(2500), Some(512)))]),
        ((Some(3000), Some(256)), vec![("app", none), ("worker", (Some(1500), Some(128)))]),
        ((Some(3000), None), vec![("app", (Some(8000), Some(64)))]),
        (none, vec![("app", (Some(16_000), None))]),
    ];
    for (own, containers) in cases {
        let mut pod = pod_of(own, &containers);
        // The pod's limit was raised, and the kubelet has not applied it yet.
        pod.actual_resources = (own.0).map(|_| pod.resources);
        pod.resources.cpu_limit_millis = own.0.map(|millis| 2 * millis);
        let rules = rules(false, Vec::new());
        let preview = crate::variables::of_pod(&rules, Some(8), &pod);
        let mut injector = injector_of(pod);
        // The sum of the limits that containers have, as the kubelet adds them up.
        let sum = (Some(500), Some(64));
        let started = containers.iter().filter_map(|&(name, limits)| {
            let creation = injector.create_container(with_sum(sum), with_limits(name, limits));
            let env = env(&creation).join(" ");
            (!env.is_empty()).then(|| format!("shop/cart/{name} {env}"))
        });
        assert_eq!(started.collect::<Vec<_>>(), preview, "{own:?} {containers:?}");
    }
}

#[test]
fn the_share_of_the_memory_limit_is_that_of_the_options() {
    let of = (None, Some(100));
    let pod = pod_of((None, None), &[("app", of)]);
    let mut injector = injector_of(pod.clone());
    injector.rules.memory_share = 0.5;
    let creation = injector.create_container(opted_in(), with_limits("app", of));
    assert_eq!(env(&creation), ["GOMEMLIMIT=50MiB"]);
    let preview = crate::variables::of_pod(&injector.rules, None, &pod);
    assert_eq!(preview, ["shop/cart/app GOMEMLIMIT=50MiB"]);
    let twice = linux_of((None, Some(200)));
    injector.update_container(opted_in(), with_limits("app", of), twice);
    let current = injector.containers["id-app"].statuses()[0].current.clone();
    assert_eq!(current.as_deref(), Some("100MiB"));
}

#[test]
fn observing_changes_no_container_and_follows_its_limits() {
    let mut injector = injector(true);
    let creation = injector.create_container(opted_in(), container("app", &[]));
    assert_eq!(creation, Creation::default());
    assert_eq!(rows_of(&injector)[0], "shop cart app GOMAXPROCS 1 observed");
    let more = resources(400_000, 512 * MIB);
    assert!(injector.update_container(opted_in(), container("app", &[]), more).is_empty());
    assert_eq!(rows_of(&injector)[0], "shop cart app GOMAXPROCS 4 observed");
}

#[test]
fn a_resize_makes_a_value_stale_and_the_way_back_makes_it_right() {
    let mut injector = injector(false);
    injector.create_container(opted_in(), container("app", &[]));
    let mut status_after = |quota_us| {
        let changed = resources(quota_us, 512 * MIB);
        injector.update_container(opted_in(), container("app", &[]), changed);
        let current = injector.containers["id-app"].statuses()[0].clone();
        (current.status, current.current)
    };
    assert_eq!(status_after(300_000), (InjectionStatus::Stale, Some("3".to_owned())));
    assert_eq!(status_after(-1), (InjectionStatus::Stale, None));
    assert_eq!(status_after(190_000), (InjectionStatus::Injected, None));
}

#[test]
fn an_agent_that_starts_again_knows_what_was_injected() {
    let mut injector = injector(false);
    let creation = injector.create_container(opted_in(), container("app", &[]));
    let mut injected = container("app", &["GOMAXPROCS=1", "GOMEMLIMIT=358MiB"]);
    injected.annotations = creation.adjustment.unwrap().annotations;
    let mut resized = Container { id: "resized".into(), ..injected.clone() };
    resized.linux.as_mut().unwrap().resources = Some(resources(300_000, 512 * MIB));
    let stopped = Container {
        id: "stopped".into(),
        state: ContainerState::ContainerStopped.into(),
        ..injected.clone()
    };
    injector.disconnected();
    assert!(rows_of(&injector).is_empty());
    let before = container("app", &[]);
    let before = Container { id: "before".into(), ..before };
    injector.synchronize(vec![opted_in()], vec![injected, resized, stopped, before]);
    let status = |id: &str| {
        let statuses = injector.containers.get(id).map(|one| one.statuses());
        statuses.map(|all| all[0].status)
    };
    assert_eq!(status("id-app"), Some(InjectionStatus::Injected));
    assert_eq!(status("resized"), Some(InjectionStatus::Stale));
    assert_eq!(status("stopped"), None);
    assert_eq!(status("before"), Some(InjectionStatus::Observed));
}

#[test]
fn running_containers_are_shown_when_their_pod_is_listed() {
    let mut injector = injector(false);
    let unlisted = || PodSandbox { uid: "unlisted".into(), ..opted_in() };
    let running = ["app", "setup", "gone"].map(|name| container(name, &[]));
    injector.synchronize(vec![unlisted()], running.to_vec());
    injector.create_container(unlisted(), container("late", &["GOMAXPROCS=1"]));
    injector.stop_container(unlisted(), container("gone", &[]));
    injector.update_container(unlisted(), container("app", &[]), resources(400_000, 512 * MIB));
    injector.pods_listed();
    assert!(rows_of(&injector).is_empty(), "they may be init containers");

    injector.listed = Box::new(|_, name| {
        let is_init = name == "setup";
        Some(listed_as(if is_init { ContainerKind::Init } else { ContainerKind::App }))
    });
    injector.pods_listed();
    let rows = [
        "shop cart app GOMAXPROCS 4 observed",
        "shop cart app GOMEMLIMIT 358MiB observed",
        "shop cart late GOMEMLIMIT 358MiB observed",
    ];
    assert_eq!(rows_of(&injector), rows);
    assert!(injector.unlisted.is_empty());
}

#[test]
fn variables_go_with_their_container_and_pod() {
    let mut injector = injector(false);
    let count = |injector: &Injector| rows_of(injector).len();
    let create = |injector: &mut Injector| {
        injector.create_container(opted_in(), container("app", &[]));
        assert_eq!(count(injector), 2);
    };
    create(&mut injector);
    injector.stop_container(opted_in(), container("app", &[]));
    assert_eq!(count(&injector), 0);
    create(&mut injector);
    injector.notify(Event::RemoveContainer, opted_in(), Some(container("app", &[])));
    assert_eq!(count(&injector), 0);
    create(&mut injector);
    injector.notify(Event::RemovePodSandbox, opted_in(), None);
    assert_eq!(count(&injector), 0);
}

#[tokio::test]
async fn a_change_wakes_the_task_that_publishes() {
    let mut injector = injector(false);
    let changes = injector.changes();
    let is_notified = || {
        let mut notified = std::pin::pin!(changes.notified());
        notified.as_mut().enable()
    };
    injector.create_container(pod(&[]), container("app", &[]));
    assert!(!is_notified(), "a container without variables");
    injector.create_container(opted_in(), container("app", &[]));
    assert!(is_notified());
    injector.update_container(opted_in(), container("app", &[]), resources(300_000, 512 * MIB));
    assert!(is_notified());
    injector.disconnected();
    assert!(is_notified());
}

#[test]
fn only_a_container_of_an_unlisted_pod_with_a_request_awaits_the_list() {
    let awaits = |pod: &PodSandbox, name: &str, observes| {
        injector(observes).awaits_list(pod, &container(name, &[]))
    };
    assert!(awaits(&opted_in(), "late", false));
    assert!(!awaits(&opted_in(), "app", false), "listed");
    assert!(!awaits(&opted_in(), "late", true), "only observed");
    assert!(!awaits(&pod(&[]), "late", false), "no request");
    let named = pod(&[(VARIABLES_ANNOTATION, "true"), (CONTAINERS_ANNOTATION, "late")]);
    assert!(!awaits(&named, "late", false), "named");
}

#[test]
fn a_container_that_cannot_be_created_with_variables_is_created_without() {
    let missed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let counted = Arc::clone(&missed);
    let listed = |_: &str, _: &str| Some(listed_as(ContainerKind::App));
    let count = move |reason| counted.lock().unwrap().push(reason);
    let mut injector = Injector::new(rules(false, Vec::new()), None, listed, count);
    let mut create = |name: &str| {
        let creation = injector.create_container(opted_in(), container(name, &[]));
        creation.adjustment.is_some()
    };
    // Another plugin sets the same variable, so that the runtime completes none of them.
    assert!((0..3).all(|_| create("app")));
    assert!(!create("app") && create("other"));
    let created = |injector: &mut Injector| {
        injector.notify(Event::PostCreateContainer, opted_in(), Some(container("app", &[])));
    };
    created(&mut injector);
    let again = injector.create_container(opted_in(), container("app", &[]));
    assert_eq!(again.adjustment, None, "the next run");
    assert_eq!(*missed.lock().unwrap(), [Missed::CreationsFailed; 2]);
    for _ in 0..5 {
        let creation = injector.create_container(opted_in(), container("good", &[]));
        assert!(creation.adjustment.is_some());
        let good = container("good", &[]);
        injector.notify(Event::PostCreateContainer, opted_in(), Some(good));
    }
}
