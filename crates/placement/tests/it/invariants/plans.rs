//! Invariants of every plan, after every event of a random sequence.

use std::collections::BTreeSet;

use kernel_text::CpuSet;
use placement::{Class, Current, Holding, Plan, PlanError, Pod, Reason, ResourceSpec, Topology};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::machine::any_machine;
use super::world::{Event, World, any_asks, any_event, any_world};

type Checked = Result<(), TestCaseError>;

/// Plays the events; `check` sees the world before each commit, and the plan to be committed.
fn play(mut world: World, events: &[Event], check: impl Fn(&World, &Plan) -> Checked) -> Checked {
    for event in events {
        world.happen(event);
        // No CPU is usable if all online ones are reserved or the kubelet's.
        if let Ok(plan) = world.plan() {
            check(&world, &plan)?;
            world.current = plan.outcome();
        }
    }
    Ok(())
}

fn sets(plan: &Plan, which: impl Fn(Class) -> bool) -> Vec<&CpuSet> {
    plan.placements
        .values()
        .filter(|placement| which(placement.class))
        .map(|placement| &placement.cpus)
        .collect()
}

fn usable(world: &World) -> CpuSet {
    world.topology().online().difference(&world.reserved).difference(&world.kubelet.exclusive)
}

fn disjoint(sets: &[&CpuSet]) -> bool {
    let all = sets.iter().fold(CpuSet::new(), |all, set| all.union(set));
    all.len() == sets.iter().map(|set| set.len()).sum::<usize>()
}

/// Ids of the cores, or NUMA nodes, that a set touches.
fn places(topology: &Topology, cpus: &CpuSet, level: &str) -> BTreeSet<u32> {
    let groups = if level == "PCPULevel" { topology.cores() } else { topology.nodes() };
    groups.iter().filter(|(_, members)| !members.is_disjoint(cpus)).map(|(&id, _)| id).collect()
}

fn shape_is_kept(topology: &Topology, spec: &ResourceSpec, cpus: &CpuSet) -> bool {
    topology.cores().values().all(|core| {
        let on_core = core.intersection(cpus).len();
        match (spec.bind.required, spec.bind.policy.as_str()) {
            (false, _) => true,
            (true, "FullPCPUs") => on_core == 0 || on_core == core.len(),
            (true, _) => on_core <= 1,
        }
    })
}

/// Checks for equal placements and pools, and the same rejected pods. The reasons may differ,
/// because free CPUs may have been taken since.
fn same(again: Result<Plan, PlanError>, plan: &Plan) -> Checked {
    let again = again.expect("the node is as it was");
    prop_assert_eq!(&again.placements, &plan.placements);
    prop_assert_eq!(&again.pools, &plan.pools);
    prop_assert_eq!(&again.demoted, &plan.demoted);
    prop_assert!(again.rejections.keys().eq(plan.rejections.keys()));
    Ok(())
}

fn is_new(world: &World, uid: &placement::Uid, cpus: &CpuSet) -> bool {
    world.current.held.get(uid).is_none_or(|held| held.cpus != *cpus)
}

fn is_claimant(pod: &Pod) -> bool {
    matches!(pod.labels.values().next().map(String::as_str), Some("LSE" | "LSR"))
}

/// Whether the remaining CPUs of the exclusive pods leave less than the floor.
fn is_squeezed(world: &World, usable: &CpuSet) -> bool {
    let held = world
        .pods
        .iter()
        .filter(|pod| is_claimant(pod))
        .filter_map(|pod| world.current.held.get(&pod.uid));
    let held: usize = held.map(|held| held.cpus.intersection(usable).len()).sum();
    held + world.settings.share_floor.max(1).min(usable.len()) > usable.len()
}

proptest! {
    #![proptest_config(super::cases(96))]

    #[test]
    fn exclusive_sets_are_disjoint_and_the_pools_keep_off_them(
        world in any_world(), events in prop::collection::vec(any_event(), 1..24),
    ) {
        play(world, &events, |_, plan| {
            let exclusive = sets(plan, Class::is_exclusive);
            prop_assert!(disjoint(&exclusive), "{:?}", exclusive);
            for own in exclusive {
                prop_assert!(own.is_subset(&plan.pools.exclusive));
                prop_assert!(sets(plan, |class| class == Class::Share).iter().all(|set| set.is_disjoint(own)));
            }
            for own in sets(plan, |class| class == Class::Lse) {
                prop_assert!(sets(plan, |class| class == Class::BestEffort).iter().all(|set| set.is_disjoint(own)));
                prop_assert!(plan.pools.best_effort.is_disjoint(own));
            }
            prop_assert!(plan.pools.share.is_disjoint(&plan.pools.exclusive));
            Ok(())
        })?;
    }

    #[test]
    fn only_usable_cpus_are_given(world in any_world(), events in prop::collection::vec(any_event(), 1..24)) {
        play(world, &events, |world, plan| {
            let usable = usable(world);
            prop_assert_eq!(plan.placements.len(), world.pods.len());
            for placement in plan.placements.values() {
                prop_assert!(placement.cpus.is_subset(&usable), "{:?} of {:?}", placement, usable);
            }
            Ok(())
        })?;
    }

    #[test]
    fn an_allocation_is_what_was_asked_for(world in any_world(), events in prop::collection::vec(any_event(), 1..24)) {
        play(world, &events, |world, plan| {
            let topology = world.topology();
            for pod in &world.pods {
                let placement = &plan.placements[&pod.uid];
                let Some(spec) = &placement.spec else { continue };
                prop_assert_eq!(Some(placement.cpus.len() as u64 * 1000), pod.request_millis);
                if is_new(world, &pod.uid, &placement.cpus) {
                    prop_assert!(shape_is_kept(&topology, spec, &placement.cpus), "{:?}", placement);
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn required_exclusivity_has_no_foreign_neighbor(
        world in any_world(), events in prop::collection::vec(any_event(), 1..24),
    ) {
        play(world, &events, |world, plan| {
            let topology = world.topology();
            for (uid, own) in &plan.placements {
                let Some(exclusive) = own.spec.map(|spec| spec.exclusive) else { continue };
                let level = exclusive.policy.as_str();
                for (other, foreign) in &plan.placements {
                    // Two pods that already ran side by side stay as they are: running pods keep
                    // their CPUs.
                    let new = is_new(world, uid, &own.cpus) || is_new(world, other, &foreign.cpus);
                    if exclusive.required && level != "None" && other != uid && foreign.class.is_exclusive() && new {
                        let (own, foreign) =
                            (places(&topology, &own.cpus, level), places(&topology, &foreign.cpus, level));
                        prop_assert!(own.is_disjoint(&foreign), "{} and {} at {:?}", uid, other, level);
                    }
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn the_share_pool_keeps_its_floor_and_no_set_is_empty(
        world in any_world(), events in prop::collection::vec(any_event(), 1..24),
    ) {
        play(world, &events, |world, plan| {
            let floor = world.settings.share_floor.max(1).min(usable(world).len());
            prop_assert!(plan.pools.share.len() >= floor, "{:?} below {}", plan.pools.share, floor);
            let is_new = |(uid, own): (&placement::Uid, &placement::Placement)| {
                own.class.is_exclusive() && !world.current.held.contains_key(uid)
            };
            if plan.placements.iter().any(is_new) {
                let sharers = world.pods.iter().filter(|pod| plan.placements[&pod.uid].class == Class::Share);
                let unclaimed = sharers.filter(|pod| !is_claimant(pod));
                let millis: u64 = unclaimed.filter_map(|pod| pod.request_millis).sum();
                prop_assert!(plan.pools.share.len() as u64 * 1000 >= millis, "{:?} for {}m", plan.pools.share, millis);
            }
            prop_assert!(plan.placements.values().all(|placement| !placement.cpus.is_empty()));
            prop_assert!(!plan.pools.best_effort.is_empty());
            Ok(())
        })?;
    }

    #[test]
    fn a_running_exclusive_pod_keeps_its_cpus(world in any_world(), events in prop::collection::vec(any_event(), 1..24)) {
        play(world, &events, |world, plan| {
            let usable = usable(world);
            for pod in &world.pods {
                let Some(held) = world.current.held.get(&pod.uid) else { continue };
                let wanted = pod.request_millis.map(|millis| millis / 1000);
                let untouched = held.cpus.is_subset(&usable) && Some(held.cpus.len() as u64) == wanted;
                match &plan.placements[&pod.uid] {
                    own if own.class.is_exclusive() && untouched => prop_assert_eq!(&own.cpus, &held.cpus),
                    own if own.class.is_exclusive() => {}
                    // Relabeled, or the floor was lost with an offline CPU. Another pod may hold
                    // its former CPUs by now.
                    _ => prop_assert!(!is_claimant(pod) || !untouched || is_squeezed(world, &usable)),
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn the_order_of_the_pods_does_not_change_the_plan(
        world in any_world(), events in prop::collection::vec(any_event(), 1..24),
    ) {
        play(world, &events, |world, plan| {
            let mut turned = world.clone();
            turned.pods.reverse();
            let again = turned.plan();
            prop_assert_eq!(again, Ok(plan.clone()));
            Ok(())
        })?;
    }

    #[test]
    fn planning_from_the_own_outcome_changes_nothing(
        world in any_world(), events in prop::collection::vec(any_event(), 1..24),
    ) {
        play(world, &events, |world, plan| {
            let mut settled = world.clone();
            settled.current = plan.outcome();
            same(settled.plan(), plan)?;
            Ok(())
        })?;
    }

    #[test]
    fn allocate_then_release_is_the_identity(
        world in any_world(), events in prop::collection::vec(any_event(), 1..16), asks in any_asks(),
    ) {
        play(world, &events, |world, plan| {
            let mut guest = world.clone();
            guest.current = plan.outcome();
            guest.happen(&Event::Arrive(asks.clone()));
            let with = guest.plan().expect("a pod more leaves the node as it is");
            for (uid, placement) in plan.placements.iter().filter(|(_, placement)| placement.class.is_exclusive()) {
                prop_assert_eq!(&with.placements[uid], placement);
            }
            guest.current = with.outcome();
            guest.pods.pop();
            same(guest.plan(), plan)?;
            Ok(())
        })?;
    }

    #[test]
    fn a_conflict_demotes_the_newest_and_only_it(machine in any_machine(), floor in 0..2usize) {
        let topology = machine.topology();
        let cpus: CpuSet = topology.online().iter().take(2).collect();
        prop_assume!(topology.online().len() >= 2 + floor.max(1) && cpus.len() == 2);
        let pod = |uid: &str, arrival| Pod {
            uid: uid.into(),
            labels: [(placement::QOS_CLASS_LABEL.to_owned(), "LSR".to_owned())].into(),
            request_millis: Some(2000),
            limit_millis: Some(2000),
            arrival,
            ..Pod::default()
        };
        let holding = Holding { class: Class::Lsr, cpus: cpus.clone() };
        let held = [("older", &holding), ("newer", &holding)].map(|(uid, held)| (uid.into(), held.clone())).into();
        let mut world = World::of(machine, vec![pod("newer", 8), pod("older", 7)]);
        world.settings.share_floor = floor;
        world.current = Current { held, ..Current::default() };
        let plan = world.plan().expect("CPUs are online");
        prop_assert_eq!(&plan.placements["older"].cpus, &cpus);
        prop_assert_eq!(plan.placements["newer"].class, Class::Share);
        prop_assert_eq!(plan.rejections.get("newer"), Some(&Reason::ExclusiveConflict));
        prop_assert_eq!(plan.rejections.len(), 1);
    }

    #[test]
    fn under_the_static_policy_nothing_is_placed(
        world in any_world(), events in prop::collection::vec(any_event(), 1..16),
    ) {
        let mut world = world;
        world.kubelet.static_policy = true;
        play(world, &events, |_, plan| {
            prop_assert!(plan.placements.is_empty() && plan.pools.exclusive.is_empty());
            Ok(())
        })?;
    }
}
