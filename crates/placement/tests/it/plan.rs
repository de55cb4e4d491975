//! Single plans: the CPUs of each pod on a machine of 2 sockets × 2 cores × 2 threads, cores 0-1,
//! 2-3 | 4-5, 6-7.

use kernel_text::CpuSet;
use placement::{
    Authorization, Class, Cpu, Current, Grid, Holding, Kubelet, Node, Numbering, PlacementSettings,
    Plan, PlanError, Pod, Profiles, QOS_CLASS_LABEL, Reason, Selector, Topology, plan,
};

struct Scene {
    topology: Topology,
    reserved: CpuSet,
    kubelet: Kubelet,
    settings: PlacementSettings,
    current: Current,
}

fn scene() -> Scene {
    let numbering = Numbering::Sequential;
    let grid =
        Grid { sockets: 2, nodes_per_socket: 1, cores_per_node: 2, threads_per_core: 2, numbering };
    Scene {
        topology: grid.topology(),
        reserved: CpuSet::new(),
        kubelet: Kubelet::default(),
        settings: PlacementSettings::default(),
        current: Current::default(),
    }
}

impl Scene {
    fn try_plan(&self, pods: &[Pod]) -> Result<Plan, PlanError> {
        let Self { topology, reserved, kubelet, settings, current } = self;
        let node = Node { topology, allowed: topology.online(), reserved, kubelet, settings };
        plan(&node, pods, &Profiles::default(), current)
    }

    fn plan(&self, pods: &[Pod]) -> Plan {
        self.try_plan(pods).expect("CPUs are usable")
    }

    fn holding(mut self, held: &[(&str, &str)]) -> Self {
        let holding = |list| Holding { class: Class::Lsr, cpus: cpus(list) };
        self.current.held = held.iter().map(|&(uid, list)| (uid.into(), holding(list))).collect();
        self
    }
}

fn cpus(list: &str) -> CpuSet {
    list.parse().expect("a CPU list")
}

/// A pod whose UID begins with its age.
fn pod(uid: &str, qos: &str, cpus: u64) -> Pod {
    Pod {
        uid: uid.into(),
        labels: [(QOS_CLASS_LABEL.to_owned(), qos.to_owned())].into(),
        request_millis: Some(cpus * 1000),
        limit_millis: Some(cpus * 1000),
        best_effort: qos == "BE",
        arrival: uid.bytes().next().map_or(0, u64::from),
        ..Pod::default()
    }
}

fn asking(spec: &str, pod: Pod) -> Pod {
    Pod { resource_spec: Some(spec.to_owned()), ..pod }
}

fn of(plan: &Plan, uid: &str) -> (Class, String) {
    let placement = &plan.placements[uid];
    (placement.class, placement.cpus.to_string())
}

#[test]
fn each_class_has_its_pool() {
    let pods = [
        pod("1", "LSE", 2),
        pod("2", "LSR", 2),
        pod("3", "LS", 1),
        pod("4", "BE", 1),
        Pod::default(),
    ];
    let plan = scene().plan(&pods);
    assert_eq!(of(&plan, "1"), (Class::Lse, "0-1".into()));
    assert_eq!(of(&plan, "2"), (Class::Lsr, "2-3".into()));
    assert_eq!(of(&plan, "3"), (Class::Share, "4-7".into()));
    assert_eq!(of(&plan, "4"), (Class::BestEffort, "2-7".into()));
    assert_eq!(of(&plan, ""), (Class::Share, "4-7".into()));
    assert_eq!(
        (plan.pools.exclusive.to_string(), plan.pools.share.to_string()),
        ("0-3".into(), "4-7".into())
    );
    assert!(plan.rejections.is_empty());
}

#[test]
fn reserved_and_kubelet_owned_cpus_are_in_no_pool() {
    let kubelet = Kubelet { exclusive: cpus("7"), ..Kubelet::default() };
    let plan = Scene { reserved: cpus("0"), kubelet, ..scene() }.plan(&[pod("1", "LSR", 2)]);
    assert_eq!(of(&plan, "1"), (Class::Lsr, "2-3".into()));
    assert_eq!(
        (plan.pools.share.to_string(), plan.pools.best_effort.to_string()),
        ("1,4-6".into(), "1-6".into())
    );
    assert_eq!(
        (plan.pools.reserved.to_string(), plan.pools.kubelet.to_string()),
        ("0".into(), "7".into())
    );
}

#[test]
fn a_pod_that_would_break_the_floor_is_rejected() {
    let plan = scene().plan(&[pod("1", "LSE", 4), pod("2", "LSR", 3), pod("3", "LSR", 1)]);
    assert_eq!(plan.rejections["2"], Reason::SharePoolFloor);
    assert_eq!((of(&plan, "2").0, of(&plan, "3").0), (Class::Share, Class::Lsr));
    // As many CPUs as pod 2 requests.
    assert_eq!(plan.pools.share.len(), 3);
}

#[test]
fn rejections_name_what_is_missing() {
    let full = r#"{"requiredCPUBindPolicy":"FullPCPUs"}"#;
    let spread = r#"{"requiredCPUBindPolicy":"SpreadByPCPUs"}"#;
    let refusal = |scene: Scene, pod: Pod| scene.plan(&[pod]).rejections["1"];
    assert_eq!(refusal(scene(), asking(full, pod("1", "LSR", 3))), Reason::NotWholeCores);
    assert_eq!(refusal(scene(), asking(spread, pod("1", "LSR", 5))), Reason::BindPolicyUnsatisfied);
    assert_eq!(refusal(scene(), pod("1", "LSR", 9)), Reason::InsufficientCpus);
    let apart = r#"{"requiredCPUExclusivePolicy":"PCPULevel"}"#;
    let kubelet = Kubelet { exclusive: cpus("0,2,4"), ..Kubelet::default() };
    let authorization =
        Authorization { required_exclusive: vec![Selector::default()], ..Authorization::default() };
    let beside = Scene {
        kubelet,
        settings: PlacementSettings { authorization, ..PlacementSettings::default() },
        ..scene()
    };
    assert_eq!(
        refusal(beside, asking(apart, pod("1", "LSR", 3))),
        Reason::ExclusivePolicyUnsatisfied
    );
}

#[test]
fn caps_hold_for_a_namespace_and_for_the_node() {
    let of = |namespace: &str, pod: Pod| Pod { namespace: namespace.into(), ..pod };
    let pods = [
        of("a", pod("1", "LSE", 2)),
        of("a", pod("2", "LSR", 1)),
        of("b", pod("3", "LSR", 1)),
        of("b", pod("4", "LSR", 1)),
        of("c", pod("5", "LSR", 1)),
    ];
    let authorization = Authorization {
        max_exclusive_cpus: Some(4),
        max_exclusive_cpus_per_namespace: Some(2),
        max_exclusive_cpus_by_namespace: [("b".to_owned(), 1)].into(),
        ..Authorization::default()
    };
    let capped = Scene {
        settings: PlacementSettings {
            authorization: authorization.clone(),
            ..PlacementSettings::default()
        },
        ..scene()
    };
    let plan = capped.plan(&pods);
    let refused = [("2".into(), Reason::NamespaceCap), ("4".into(), Reason::NamespaceCap)];
    assert_eq!(plan.rejections.clone().into_iter().collect::<Vec<_>>(), refused);
    assert_eq!(plan.pools.exclusive.len(), 4);
    // A lower cap: the newest pods lose their CPUs, and planning again changes nothing.
    let fewer = Authorization { max_exclusive_cpus: Some(3), ..authorization };
    let settings = PlacementSettings { authorization: fewer, ..PlacementSettings::default() };
    let lower = Scene { settings, current: plan.outcome(), ..scene() };
    let plan = lower.plan(&pods);
    assert_eq!(plan.rejections["5"], Reason::NodeCap);
    assert_eq!(plan.outcome().held.keys().map(|uid| &**uid).collect::<Vec<_>>(), ["1", "3"]);
    let again = Scene { current: plan.outcome(), ..lower }.plan(&pods);
    assert_eq!(again, plan);
}

#[test]
fn under_the_static_policy_nothing_is_touched() {
    let kubelet = Kubelet { static_policy: true, exclusive: cpus("2-3"), ..Kubelet::default() };
    let plan = Scene { kubelet, ..scene() }.plan(&[pod("1", "LSE", 2), pod("2", "BE", 1)]);
    assert!(plan.placements.is_empty());
    assert_eq!(
        plan.rejections.into_iter().collect::<Vec<_>>(),
        [("1".into(), Reason::KubeletStatic)]
    );
    assert_eq!(plan.pools.kubelet.to_string(), "2-3");
}

#[test]
fn pods_with_cpus_from_the_kubelet_are_not_touched() {
    let kubelet =
        Kubelet { exclusive: cpus("0-1"), pods: ["1".into()].into(), ..Kubelet::default() };
    let scene = Scene { kubelet, ..scene() }.holding(&[("1", "2-3")]);
    let plan = scene.plan(&[pod("1", "LSE", 2), pod("2", "LS", 1)]);
    assert_eq!(plan.placements.keys().map(|uid| &**uid).collect::<Vec<_>>(), ["2"]);
    assert_eq!((of(&plan, "2").1, plan.rejections["1"]), ("2-7".into(), Reason::KubeletStatic));
}

#[test]
fn pods_that_another_program_places_are_not_touched() {
    let kubelet = Kubelet { others: ["1".into(), "3".into()].into(), ..Kubelet::default() };
    let scene = Scene { kubelet, ..scene() };
    let plan = scene.plan(&[pod("1", "LSE", 2), pod("2", "LSE", 2), pod("3", "LS", 1)]);
    assert_eq!(plan.placements.keys().map(|uid| &**uid).collect::<Vec<_>>(), ["2"]);
    assert_eq!(plan.rejections.into_iter().collect::<Vec<_>>(), [("1".into(), Reason::OtherOwner)]);
}

#[test]
fn resized_pods_keep_as_many_of_their_cpus_as_possible() {
    let grown = scene().holding(&[("1", "4-5")]).plan(&[pod("1", "LSR", 4)]);
    assert_eq!(of(&grown, "1"), (Class::Lsr, "4-7".into()));
    let across = scene()
        .holding(&[("1", "4-5"), ("2", "6-7")])
        .plan(&[pod("1", "LSR", 4), pod("2", "LSR", 2)]);
    assert_eq!((of(&across, "1").1, of(&across, "2").1), ("0-1,4-5".into(), "6-7".into()));
    let most = scene().holding(&[("1", "2-5")]).plan(&[pod("1", "LSR", 6)]);
    assert_eq!(of(&most, "1").1, "0-5");
    let shrunk = scene().holding(&[("1", "4-7")]).plan(&[pod("1", "LSR", 2)]);
    assert_eq!(of(&shrunk, "1").1, "4-5");
}

#[test]
fn cpus_that_go_offline_are_replaced_and_the_rest_stays() {
    let online =
        scene().topology.cpus().iter().filter(|cpu| cpu.id != 5).copied().collect::<Vec<Cpu>>();
    let topology = Topology::new(online).expect("seven CPUs are online");
    let plan = Scene { topology, ..scene() }.holding(&[("1", "4-5")]).plan(&[pod("1", "LSR", 2)]);
    assert_eq!(of(&plan, "1"), (Class::Lsr, "4,6".into()));
}

#[test]
fn the_newest_pods_lose_cpus_to_the_floor_if_they_do_not_fit() {
    let online =
        scene().topology.cpus().iter().filter(|cpu| cpu.id < 6).copied().collect::<Vec<Cpu>>();
    let topology = Topology::new(online).expect("six CPUs are online");
    let scene = Scene { topology, ..scene() }.holding(&[("1", "0-1"), ("2", "2-4"), ("3", "5")]);
    let plan = scene.plan(&[pod("1", "LSR", 2), pod("2", "LSR", 3), pod("3", "LSR", 1)]);
    assert_eq!((of(&plan, "1").1, of(&plan, "3").1), ("0-1".into(), "5".into()));
    assert_eq!((of(&plan, "2").1, plan.rejections["2"]), ("2-4".into(), Reason::SharePoolFloor));
}

#[test]
fn a_running_pod_is_not_judged_by_the_rules_for_new_ones() {
    let full = asking(r#"{"requiredCPUBindPolicy":"FullPCPUs"}"#, pod("1", "LSR", 3));
    let plan = scene().holding(&[("1", "0-2")]).plan(&[full]);
    assert_eq!(of(&plan, "1"), (Class::Lsr, "0-2".into()));
}

#[test]
fn the_loser_of_a_conflict_stays_shared() {
    let mut scene = scene().holding(&[("1", "0-1"), ("2", "1-2")]);
    let pods = [pod("2", "LSR", 2), pod("1", "LSR", 2)];
    let first = scene.plan(&pods);
    assert_eq!((of(&first, "1").1, of(&first, "2").0), ("0-1".into(), Class::Share));
    assert_eq!(first.rejections["2"], Reason::ExclusiveConflict);
    scene.current = first.outcome();
    assert_eq!(scene.plan(&pods), first);
    scene.current = scene.plan(&pods[1..]).outcome();
    assert_eq!(of(&scene.plan(&pods), "2").0, Class::Lsr);
}

#[test]
fn a_trusted_status_is_checked_like_any_other_request() {
    let decided = |uid: &str, cpuset: &str| Pod {
        resource_status: Some(format!(r#"{{"cpuset":"{cpuset}"}}"#)),
        ..pod(uid, "LSR", 2)
    };
    let settings =
        PlacementSettings { trust_resource_status: true, ..PlacementSettings::default() };
    let trusting = Scene { settings, reserved: cpus("0"), ..scene() };
    let plan = trusting.plan(&[
        decided("1", "6-7"),
        decided("2", "5-6"),
        decided("3", "0-1"),
        decided("4", "1-3"),
        decided("5", "40-41"),
    ]);
    assert_eq!(of(&plan, "1"), (Class::Lsr, "6-7".into()));
    assert_eq!(plan.rejections["2"], Reason::ResourceStatusConflict);
    for uid in ["3", "4", "5"] {
        assert_eq!(plan.rejections[uid], Reason::ResourceStatusInvalid, "{uid}");
    }
    assert_eq!(of(&scene().plan(&[decided("1", "6-7")]), "1").1, "0-1");
}

#[test]
fn the_best_effort_pool_can_be_narrowed() {
    let settings = PlacementSettings { best_effort_cpus: Some(3), ..PlacementSettings::default() };
    let plan = Scene { settings, ..scene() }.plan(&[pod("1", "BE", 1), pod("2", "LSE", 2)]);
    assert_eq!(of(&plan, "1"), (Class::BestEffort, "2,4-5".into()));
}

#[test]
fn no_usable_cpu_is_an_error_and_not_an_empty_pool() {
    assert_eq!(
        Scene { reserved: cpus("0-7"), ..scene() }.try_plan(&[]),
        Err(PlanError::NothingUsable)
    );
}
