use std::cell::Cell;
use std::sync::Arc;

use kubepods::model::ContainerState;
use kubepods::path::{Driver, QosClass};

use super::*;

const NEW: &str = "7c380dd8f4c91ff4b6b8d2a8f0a5f1b64b3e8c2d7a90f1e2d3c4b5a697887766";

fn key() -> ContainerKey {
    ContainerKey {
        uid: "u".into(),
        id: NEW.into(),
        qos: QosClass::Burstable,
        driver: Driver::Cgroupfs,
    }
}

#[test]
fn spec_row_has_container_kind_and_pod_level_resources() {
    let sidecar = Container { kind: ContainerKind::Sidecar, ..Container::default() };
    let spec = |resources| {
        let found = known(&Pod { resources, ..Pod::default() }, &sidecar, &key()).spec;
        SpecRow { pod: Resources::default(), ..found }
    };
    let none = SpecRow { kind: ContainerKind::Sidecar, ..SpecRow::default() };
    assert_eq!(spec(Resources::default()), none);
    let cpu = Resources { cpu_request_millis: Some(500), ..Resources::default() };
    assert_eq!(spec(cpu), SpecRow { pod_requests_cpu: true, ..none });
    let memory = Resources { memory_limit_bytes: Some(1 << 30), ..Resources::default() };
    assert_eq!(spec(memory), SpecRow { pod_limits_memory: true, ..none });
}

#[test]
fn spec_row_counts_the_containers_of_the_pod_and_sees_a_resize() {
    let equal = Resources {
        cpu_limit_millis: Some(500),
        cpu_request_millis: Some(500),
        memory_limit_bytes: Some(1 << 20),
        memory_request_bytes: None,
    };
    let of = |kind, resources| Container { kind, resources, ..Container::default() };
    let app = of(ContainerKind::App, equal);
    let others = [
        of(ContainerKind::Init, Resources { cpu_request_millis: Some(100), ..equal }),
        of(ContainerKind::Ephemeral, Resources::default()),
    ];
    let containers = [vec![app.clone()], others.to_vec()].concat();
    let pod = Pod { containers, ..Pod::default() };
    let found = spec(&pod, &app);
    assert_eq!((found.containers, found.guaranteed, found.memory_limits), (2, 1, 2));
    assert!(found.resources == equal && !found.is_resizing);
    let smaller = Resources { cpu_limit_millis: Some(200), ..equal };
    let resizing = Container { actual_resources: Some(smaller), ..app };
    assert!(spec(&pod, &resizing).is_resizing);
}

/// A pod whose only container is listed as running under the id `old`.
#[derive(Default)]
struct InPod {
    pause: bool,
    empty: bool,
    old_lives: bool,
    sandbox: bool,
    looks: Cell<u32>,
}

impl Surroundings for InPod {
    fn runs_pause(&self) -> bool {
        self.looks.set(self.looks.get() + 1);
        self.pause
    }

    fn is_populated(&self) -> bool {
        !self.empty
    }

    fn lives(&self, container_id: &str) -> bool {
        self.old_lives && container_id == "old"
    }

    fn has_sandbox(&self) -> bool {
        self.sandbox
    }
}

fn index(id: &str, state: ContainerState) -> PodIndex {
    let is_final = state == ContainerState::Running;
    let app = Container {
        name: "app".into(),
        id: Some(id.into()),
        state,
        is_final,
        ..Container::default()
    };
    let pod = Pod { uid: "u".into(), name: "web".into(), containers: vec![app], ..Pod::default() };
    PodIndex::build(&PodIndex::default(), vec![Arc::new(pod)], [])
}

/// Name of the cgroup `new`, `age` seconds old, with a list `age_at_list` seconds after it
/// appeared.
fn named(index: &PodIndex, age: u64, age_at_list: u64, surroundings: &InPod) -> &'static str {
    let circumstances = Circumstances {
        age: Duration::from_secs(age),
        age_at_list: Some(Duration::from_secs(age_at_list)),
        may_answer: true,
        ..Circumstances::default()
    };
    match name(index, &key(), circumstances, surroundings, &Timing::default()) {
        Name::Known(_) => "named",
        Name::Pending => "pending",
        Name::Unmapped(identity) if identity.pod == "web" => "unmapped",
        Name::Unmapped(_) => "unmapped, pod unknown",
        Name::Sandbox => "sandbox",
    }
}

#[test]
fn a_sandbox_needs_evidence() {
    let running = index("old", ContainerState::Running);
    let waiting = index("old", ContainerState::Waiting);
    let lives = || InPod { old_lives: true, ..InPod::default() };
    let pause = || InPod { pause: true, ..InPod::default() };
    let cases = [
        ("its id is listed", &index(NEW, ContainerState::Running), 0, 0, pause(), "named"),
        ("a pause", &running, 0, 0, pause(), "sandbox"),
        ("a second pause", &running, 9, 9, InPod { sandbox: true, ..pause() }, "unmapped"),
        ("a late list, all there", &running, 9, 5, lives(), "sandbox"),
        ("an early list, all there", &running, 2, 2, lives(), "pending"),
        ("an early list, old cgroup", &running, 9, 4, lives(), "unmapped"),
        ("a late list, its container is gone", &running, 600, 599, InPod::default(), "unmapped"),
        ("a late list between two runs", &waiting, 600, 599, InPod::default(), "unmapped"),
        ("nothing in it", &running, 600, 599, InPod { empty: true, ..InPod::default() }, "pending"),
        ("a second sandbox", &running, 9, 9, InPod { sandbox: true, ..lives() }, "unmapped"),
        ("an unknown pod", &PodIndex::default(), 9, 9, lives(), "pending"),
        ("an unknown pod for long", &PodIndex::default(), 10, 9, lives(), "unmapped, pod unknown"),
        ("an unknown pod's pause", &PodIndex::default(), 0, 0, pause(), "sandbox"),
    ];
    for (case, index, age, age_at_list, surroundings, expected) in cases {
        assert_eq!(named(index, age, age_at_list, &surroundings), expected, "{case}");
    }
}

#[test]
fn a_virtual_machine_is_the_sandbox_of_containers_without_cgroups() {
    let pod = |class: &str| {
        let mut pod = (**index("old", ContainerState::Running).pod("u").unwrap()).clone();
        pod.runtime_class = Some(class.into());
        PodIndex::build(&PodIndex::default(), vec![Arc::new(pod)], [])
    };
    let of_class = |class| named(&pod(class), 9, 5, &InPod::default());
    assert_eq!((of_class("kata-qemu"), of_class("nvidia")), ("sandbox", "unmapped"));
}

#[test]
fn a_cgroup_without_a_container_id_is_part_of_the_sandbox() {
    let key = ContainerKey { id: "vcpu".into(), ..key() };
    let name = |index: &PodIndex| {
        name(index, &key, Circumstances::default(), &InPod::default(), &Timing::default())
    };
    assert_eq!(name(&index("old", ContainerState::Running)), Name::Sandbox);
    assert!(matches!(name(&PodIndex::default()), Name::Unmapped(_)), "its pod is unknown");
}

#[test]
fn a_busy_sandbox_is_named_as_cadvisor_names_it() {
    let found = sandbox(&index("old", ContainerState::Running), &key()).unwrap();
    assert_eq!((&*found.pod, &*found.container), ("web", "POD"));
    assert_eq!(sandbox(&PodIndex::default(), &key()), None);
}

#[test]
fn a_listed_container_costs_no_read_of_its_processes() {
    let surroundings = InPod::default();
    named(&index(NEW, ContainerState::Running), 0, 0, &surroundings);
    assert_eq!(surroundings.looks.get(), 0);
}

#[test]
fn lookups_become_rare() {
    let begin = Instant::now();
    let (mut schedule, mut now, mut lookups) = (LookupSchedule::new(begin), begin, 0);
    while now < begin + Duration::from_secs(3600) {
        now = schedule.due();
        assert!(schedule.is_due(now));
        schedule.record(now, &Timing::default());
        lookups += 1;
    }
    assert!((115..140).contains(&lookups), "{lookups} in an hour");
}
