use analysis::injection::Status;
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
    let place = |uid: &str, name: &str| match (uid, name) {
        ("uid", "app") => Some((Place::Containers, Known::default())),
        ("uid", "setup") => Some((Place::InitContainers, Known::default())),
        _ => None,
    };
    Injector::new(InjectionRules { observes, profiles }, place)
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
fn the_lowest_limit_over_container_and_pod_counts() {
    let mut injector = injector(false);
    let pod_resources = Some(resources(100_000, 256 * MIB));
    let linux = Some(LinuxPodSandbox { pod_resources, ..LinuxPodSandbox::default() });
    let pod = PodSandbox { linux, ..opted_in() };
    let mut unlimited = container("app", &[]);
    unlimited.linux.as_mut().unwrap().resources = Some(resources(-1, 0));
    for container in [container("app", &[]), unlimited] {
        let creation = injector.create_container(pod.clone(), container);
        assert_eq!(env(&creation), ["GOMAXPROCS=1", "GOMEMLIMIT=179MiB"]);
    }
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
    assert_eq!(status_after(300_000), (Status::Stale, Some("3".to_owned())));
    assert_eq!(status_after(-1), (Status::Stale, None));
    assert_eq!(status_after(190_000), (Status::Injected, None));
    injector.update_pod(opted_in(), LinuxResources::default(), resources(400_000, 64 * MIB));
    let rows = ["shop cart app GOMAXPROCS 1 injected", "shop cart app GOMEMLIMIT 358MiB stale"];
    assert_eq!(rows_of(&injector), rows);
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
    assert_eq!(status("id-app"), Some(Status::Injected));
    assert_eq!(status("resized"), Some(Status::Stale));
    assert_eq!(status("stopped"), None);
    assert_eq!(status("before"), Some(Status::Observed));
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

    injector.spec_of = Box::new(|_, name| {
        let place = if name == "setup" { Place::InitContainers } else { Place::Containers };
        Some((place, Known::default()))
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
