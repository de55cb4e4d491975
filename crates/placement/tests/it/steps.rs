//! Single transitions, step by step, as an operator would see them in the trace.

use std::collections::BTreeMap;

use kernel_text::{CgroupVersion, CpuSet};
use placement::{
    Class, CpusetCgroup, CpusetHierarchy, Holding, Placement, PodCgroups, Step, StepError,
    Transition, Uid, drain_steps, write_steps,
};

fn cpus(list: &str) -> CpuSet {
    list.parse().expect("a CPU list")
}

fn v1() -> CpusetHierarchy {
    CpusetHierarchy { version: CgroupVersion::V1, ceiling: cpus("0-7"), full: cpus("0-7") }
}

fn v2() -> CpusetHierarchy {
    CpusetHierarchy { version: CgroupVersion::V2, ceiling: cpus("0-7"), full: cpus("0-63") }
}

/// A pod directory and one container, both with this `cpuset.cpus`.
fn pod(uid: &str, configured: &str, effective: &str) -> PodCgroups {
    let cgroup = |path: String, parent| CpusetCgroup {
        path: path.into(),
        parent,
        configured: cpus(configured),
        effective: cpus(effective),
        ours: true,
    };
    PodCgroups {
        uid: uid.into(),
        cgroups: vec![cgroup(uid.to_owned(), None), cgroup(format!("{uid}/c"), Some(0))],
    }
}

fn placed(list: &[(&str, Class, &str)]) -> BTreeMap<Uid, Placement> {
    let placement = |class, list| Placement { class, cpus: cpus(list), spec: None };
    list.iter().map(|&(uid, class, list)| (uid.into(), placement(class, list))).collect()
}

fn held(list: &[(&str, Class, &str)]) -> BTreeMap<Uid, Holding> {
    list.iter()
        .map(|&(uid, class, list)| (uid.into(), Holding { class, cpus: cpus(list) }))
        .collect()
}

struct Scene {
    hierarchy: CpusetHierarchy,
    pods: Vec<PodCgroups>,
    held: BTreeMap<Uid, Holding>,
    placements: BTreeMap<Uid, Placement>,
}

impl Scene {
    fn steps(&self) -> Result<Vec<String>, StepError> {
        let Self { hierarchy, pods, held, placements } = self;
        write_steps(&Transition { hierarchy, pods, held, placements }).map(|steps| texts(&steps))
    }
}

fn texts(steps: &[Step]) -> Vec<String> {
    let tell = |step: &Step| match step {
        Step::Write { path, cpus, .. } => format!("{} := {cpus}", path.display()),
        Step::Verify { path, effective, .. } => format!("{} == {effective}?", path.display()),
        Step::Release { uid, cpus } => format!("release {cpus} of {uid}"),
        Step::Grant { uid, holding } => format!("grant {} to {uid}", holding.cpus),
    };
    steps.iter().map(tell).collect()
}

const GRANT: &[(&str, Class, &str)] =
    &[("be", Class::BestEffort, "0-7"), ("ls", Class::Share, "4-7"), ("lsr", Class::Lsr, "0-3")];

#[test]
fn on_v1_children_shrink_before_parents_and_grants_are_last() {
    let pods = vec![pod("be", "0-7", "0-7"), pod("ls", "0-7", "0-7"), pod("lsr", "0-7", "0-7")];
    let scene = Scene { hierarchy: v1(), pods, held: held(&[]), placements: placed(GRANT) };
    let expected = [
        "ls/c := 4-7",
        "ls := 4-7",
        "ls == 4-7?",
        "ls/c == 4-7?",
        "lsr/c := 0-3",
        "lsr := 0-3",
        "lsr == 0-3?",
        "lsr/c == 0-3?",
        "grant 0-3 to lsr",
    ];
    assert_eq!(scene.steps().unwrap(), expected);
}

#[test]
fn on_v2_a_container_without_a_cpuset_follows_its_pod() {
    let pods = vec![pod("be", "", "0-7"), pod("ls", "", "0-7"), pod("lsr", "", "0-7")];
    let scene = Scene { hierarchy: v2(), pods, held: held(&[]), placements: placed(GRANT) };
    let expected = ["ls := 4-7", "ls == 4-7?", "lsr := 0-3", "lsr == 0-3?", "grant 0-3 to lsr"];
    assert_eq!(scene.steps().unwrap(), expected);
}

#[test]
fn a_release_widens_parents_first_and_never_writes_an_empty_set() {
    let pods = vec![pod("ls", "4-7", "4-7"), pod("lsr", "0-3", "0-3")];
    let placements = placed(&[("ls", Class::Share, "0-7"), ("lsr", Class::Share, "0-7")]);
    let scene =
        Scene { hierarchy: v2(), pods, held: held(&[("lsr", Class::Lsr, "0-3")]), placements };
    let expected =
        ["release 0-3 of lsr", "ls := 0-63", "ls/c := 0-63", "lsr := 0-63", "lsr/c := 0-63"];
    assert_eq!(scene.steps().unwrap(), expected);
    let on_v1 = Scene { hierarchy: v1(), ..scene };
    assert_eq!(on_v1.steps().unwrap()[1..3], ["ls := 0-7", "ls/c := 0-7"]);
}

#[test]
fn cpusets_with_the_intended_cpus_are_not_written() {
    let pods = vec![pod("ls", "0-63", "0-7"), pod("lsr", "0-3", "0-3")];
    let placements = placed(&[("ls", Class::Share, "0-7"), ("lsr", Class::Share, "0-3")]);
    let scene = Scene { hierarchy: v2(), pods, held: held(&[]), placements };
    assert!(scene.steps().unwrap().is_empty());
}

#[test]
fn a_new_shared_container_is_confined_without_other_writes() {
    let mut late = pod("ls", "4-7", "4-7");
    late.cgroups[0].effective = cpus("0-7");
    late.cgroups[0].configured = cpus("0-7");
    let mut new = late.cgroups[1].clone();
    (new.path, new.configured, new.effective) = ("ls/new".into(), cpus("0-7"), cpus("0-7"));
    late.cgroups.push(new);
    let pods = vec![late, pod("lse", "0-3", "0-3")];
    let placements = placed(&[("ls", Class::Share, "4-7"), ("lse", Class::Lse, "0-3")]);
    let scene =
        Scene { hierarchy: v1(), pods, held: held(&[("lse", Class::Lse, "0-3")]), placements };
    assert_eq!(scene.steps().unwrap(), ["ls/new := 4-7", "ls := 4-7"]);
}

#[test]
fn best_effort_pods_leave_when_a_reserved_pod_becomes_exclusive() {
    let pods = vec![pod("be", "0-7", "0-7"), pod("own", "0-3", "0-3")];
    let placements = placed(&[("be", Class::BestEffort, "4-7"), ("own", Class::Lse, "0-3")]);
    let scene =
        Scene { hierarchy: v2(), pods, held: held(&[("own", Class::Lsr, "0-3")]), placements };
    let expected = ["be := 4-7", "be/c := 4-7", "be == 4-7?", "be/c == 4-7?", "grant 0-3 to own"];
    let steps = scene.steps().unwrap();
    // The container follows its pod directory: 0-7 within 4-7 is 4-7.
    assert_eq!(steps, [expected[0], expected[2], expected[4]]);
}

#[test]
fn pods_swap_cpus_without_overlap() {
    let pods = vec![pod("ls", "2-7", "2-7"), pod("own", "0-1", "0-1")];
    let placements = placed(&[("ls", Class::Share, "0-1,4-7"), ("own", Class::Lse, "2-3")]);
    let scene =
        Scene { hierarchy: v1(), pods, held: held(&[("own", Class::Lse, "0-1")]), placements };
    let expected = [
        "ls/c := 4-7",
        "ls := 4-7",
        "ls == 4-7?",
        "ls/c == 4-7?",
        "own := 0-3",
        "own/c := 0-3",
        "own/c := 2-3",
        "own := 2-3",
        "own == 2-3?",
        "own/c == 2-3?",
        "release 0-1 of own",
        "grant 2-3 to own",
        "ls := 0-1,4-7",
        "ls/c := 0-1,4-7",
    ];
    assert_eq!(scene.steps().unwrap(), expected);
}

#[test]
fn a_displaced_pod_moves_to_free_cpus() {
    let pods = vec![pod("ls", "2-3", "2-3"), pod("own", "0-1", "0-1")];
    let placements = placed(&[("ls", Class::Share, "0-1,4-7"), ("own", Class::Lse, "2-3")]);
    let scene =
        Scene { hierarchy: v2(), pods, held: held(&[("own", Class::Lse, "0-1")]), placements };
    // The container's 2-3 does not intersect 4-7, so it follows its pod.
    assert_eq!(scene.steps().unwrap()[..2], ["ls := 4-7", "ls == 4-7?"]);
}

#[test]
fn a_pod_that_becomes_lsr_keeps_its_cpus() {
    let pods = vec![pod("be", "4", "4"), pod("own", "0-1", "0-1")];
    let placements = placed(&[("be", Class::BestEffort, "0"), ("own", Class::Lsr, "0-1")]);
    let scene =
        Scene { hierarchy: v2(), pods, held: held(&[("own", Class::Lse, "0-1")]), placements };
    assert_eq!(scene.steps().unwrap(), ["grant 0-1 to own", "be := 0"]);
}

#[test]
fn in_a_cycle_the_owner_loses_its_claim_first() {
    let pods = vec![pod("ls", "4-7", "4-7"), pod("own", "0-3", "0-3")];
    let placements = placed(&[("ls", Class::Share, "0-3"), ("own", Class::Lse, "4-7")]);
    let scene =
        Scene { hierarchy: v2(), pods, held: held(&[("own", Class::Lse, "0-3")]), placements };
    assert_eq!(scene.steps().unwrap()[..2], ["release 0-3 of own", "ls := 0-3"]);
}

#[test]
fn nested_cpusets_are_kept_within_the_pods_cpus() {
    let nested = |configured, effective| {
        let mut pod = pod("ls", "0-7", "0-7");
        let own = CpusetCgroup {
            path: "ls/c/own".into(),
            parent: Some(1),
            configured,
            effective,
            ours: false,
        };
        pod.cgroups.push(own);
        pod
    };
    let to = |pod, list| {
        let placements = placed(&[("ls", Class::Share, list)]);
        Scene { hierarchy: v1(), pods: vec![pod], held: held(&[]), placements }.steps().unwrap()
    };
    assert_eq!(to(nested(cpus("4-5"), cpus("4-5")), "4-7"), ["ls/c := 4-7", "ls := 4-7"]);
    assert_eq!(
        to(nested(cpus("3-4"), cpus("3-4")), "4-7"),
        ["ls/c/own := 4", "ls/c := 4-7", "ls := 4-7"]
    );
    assert_eq!(to(nested(cpus("0-1"), cpus("0-1")), "4-7")[0], "ls/c/own := 0-1,4-7");
    assert_eq!(
        to(nested(cpus("0-7"), cpus("0-7")), "4-7"),
        ["ls/c/own := 4-7", "ls/c := 4-7", "ls := 4-7"]
    );
}

#[test]
fn pods_without_a_placement_only_release_cpus() {
    let pods = vec![pod("kubelets", "0-1", "0-1")];
    let scene = Scene {
        hierarchy: v1(),
        pods,
        held: held(&[("kubelets", Class::Lse, "0-1")]),
        placements: placed(&[]),
    };
    assert_eq!(scene.steps().unwrap(), ["release 0-1 of kubelets"]);
}

#[test]
fn an_impossible_plan_fails_before_the_first_write() {
    let scene = |list| {
        let placements = placed(&[("ls", Class::Share, list)]);
        Scene { hierarchy: v1(), pods: vec![pod("ls", "0-7", "0-7")], held: held(&[]), placements }
    };
    assert_eq!(scene("").steps(), Err(StepError::Empty("ls".into())));
    let beyond = StepError::BeyondCeiling { uid: "ls".into(), cpus: cpus("8") };
    assert_eq!(scene("6-8").steps(), Err(beyond));
    let mut disordered = scene("4-7");
    disordered.pods[0].cgroups[0].parent = Some(1);
    assert_eq!(disordered.steps(), Err(StepError::Order("ls".into())));
}

#[test]
fn draining_widens_parents_first() {
    let pods = vec![pod("ls", "4-7", "4-7"), pod("own", "0-3", "0-3")];
    let steps = drain_steps(&v1(), &pods, &held(&[("own", Class::Lse, "0-3")])).unwrap();
    assert_eq!(
        texts(&steps),
        ["release 0-3 of own", "ls := 0-7", "ls/c := 0-7", "own := 0-7", "own/c := 0-7"]
    );
}
