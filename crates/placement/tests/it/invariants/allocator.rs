//! Invariants of the allocator alone, over random machines and random allocations.

use std::collections::BTreeMap;

use kernel_text::CpuSet;
use placement::{
    Bind, BindPolicy, Cpu, ExclusivePolicy, Exclusivity, Hold, NumaStrategy, Request, TakeError,
    Taken, Topology, narrow, take,
};
use proptest::prelude::*;

use super::machine::{Machine, any_grid, any_machine, shuffled};

fn any_bind() -> impl Strategy<Value = Bind> {
    (prop::sample::select(&[BindPolicy::FullPcpus, BindPolicy::SpreadByPcpus]), any::<bool>())
        .prop_map(|(policy, required)| Bind { policy, required })
}

fn any_exclusivity() -> impl Strategy<Value = Exclusivity> {
    let levels =
        &[ExclusivePolicy::None, ExclusivePolicy::PcpuLevel, ExclusivePolicy::NumaNodeLevel];
    (prop::sample::select(levels), any::<bool>())
        .prop_map(|(policy, required)| Exclusivity { policy, required })
}

fn any_request() -> impl Strategy<Value = Request> {
    let strategies = &[
        NumaStrategy::MostAllocated,
        NumaStrategy::LeastAllocated,
        NumaStrategy::DistributeEvenly,
    ];
    (1..=12usize, any_bind(), any_exclusivity(), prop::sample::select(strategies)).prop_map(
        |(cpus, bind, exclusive, strategy)| Request {
            cpus,
            bind,
            exclusive,
            strategy,
            ..Request::default()
        },
    )
}

/// CPUs taken by earlier requests, one after the other.
fn taken_by(topology: &Topology, earlier: &[Request]) -> Taken {
    let mut taken = Taken::default();
    for request in earlier {
        if let Ok(cpus) = take(topology, &taken, request) {
            taken.add(cpus, request.exclusive);
        }
    }
    taken
}

fn renumbered(machine: &Machine, name: impl Fn(u32) -> u32) -> Topology {
    let online = machine.possible.iter().filter(|cpu| !machine.offline.contains(&cpu.id));
    Topology::new(online.map(|cpu| Cpu { id: name(cpu.id), ..*cpu }).collect())
        .expect("as regular as before")
}

/// Number of CPUs of a set per core, node and socket, independent of their ids.
fn shape(topology: &Topology, cpus: &CpuSet) -> Vec<Vec<Vec<usize>>> {
    let mut sockets: BTreeMap<u32, BTreeMap<u32, BTreeMap<u32, usize>>> = BTreeMap::new();
    for cpu in cpus.iter().filter_map(|cpu| topology.cpu(cpu)) {
        *sockets
            .entry(cpu.socket)
            .or_default()
            .entry(cpu.node)
            .or_default()
            .entry(cpu.core)
            .or_default() += 1;
    }
    let sorted = |mut counts: Vec<usize>| {
        counts.sort_unstable();
        counts
    };
    let nodes = |nodes: BTreeMap<u32, BTreeMap<u32, usize>>| {
        let mut nodes: Vec<_> =
            nodes.into_values().map(|cores| sorted(cores.into_values().collect())).collect();
        nodes.sort_unstable();
        nodes
    };
    let mut shape: Vec<_> = sockets.into_values().map(nodes).collect();
    shape.sort_unstable();
    shape
}

proptest! {
    #![proptest_config(super::cases(256))]

    #[test]
    fn a_set_has_the_size_and_the_required_shape_or_there_is_none(
        machine in any_machine(), earlier in prop::collection::vec(any_request(), 0..6), request in any_request(),
    ) {
        let topology = machine.topology();
        let taken = taken_by(&topology, &earlier);
        let free = topology.online().difference(&taken.cpus());
        let whole = topology.cores().values().filter(|core| core.is_subset(&free));
        match take(&topology, &taken, &request) {
            Ok(cpus) => {
                prop_assert_eq!(cpus.len(), request.cpus);
                prop_assert!(cpus.is_subset(&free));
                let on_cores = topology.cores().values().map(|core| (core.intersection(&cpus).len(), core.len()));
                for (used, threads) in on_cores {
                    match request.bind {
                        Bind { required: false, .. } => {}
                        Bind { policy: BindPolicy::FullPcpus, .. } => prop_assert!(used == 0 || used == threads),
                        Bind { policy: BindPolicy::SpreadByPcpus, .. } => prop_assert!(used <= 1),
                    }
                }
            }
            Err(TakeError::NotEnough { free: count, .. }) => {
                prop_assert!(count < request.cpus);
                let guarded = earlier.iter().any(|request| request.exclusive.required);
                prop_assert!(guarded || free.len() < request.cpus);
            }
            // Rejected for its shape: impossible if all cores have the same size.
            Err(TakeError::Bind { policy: BindPolicy::FullPcpus, .. }) => {
                let guarded = request.exclusive.required || earlier.iter().any(|request| request.exclusive.required);
                let whole: usize = whole.map(CpuSet::len).sum();
                let multiple = topology.whole_core_multiple();
                prop_assert!(guarded || whole < request.cpus || request.cpus % multiple > 0 || !machine.offline.is_empty());
            }
            Err(TakeError::Bind { .. }) => prop_assert!(request.bind.required),
            Err(TakeError::Exclusive { .. }) => prop_assert!(request.exclusive.required),
        }
    }

    #[test]
    fn required_whole_cores_are_found_wherever_they_add_up(machine in any_machine(), cpus in 1..=24usize) {
        let topology = machine.topology();
        let bind = Bind { policy: BindPolicy::FullPcpus, required: true };
        let sizes: Vec<usize> = topology.cores().values().map(CpuSet::len).collect();
        let (pairs, singles) = (sizes.iter().filter(|&&size| size == 2).count(), sizes.iter().filter(|&&size| size == 1).count());
        let possible = (0..=pairs.min(cpus / 2)).any(|pairs| cpus - 2 * pairs <= singles);
        for strategy in [NumaStrategy::MostAllocated, NumaStrategy::LeastAllocated, NumaStrategy::DistributeEvenly] {
            let request = Request { cpus, bind, strategy, ..Request::default() };
            prop_assert_eq!(take(&topology, &Taken::default(), &request).is_ok(), possible, "{:?}", strategy);
        }
    }

    #[test]
    fn the_answer_depends_on_nothing_else(
        machine in any_machine(), earlier in prop::collection::vec(any_request(), 0..6), request in any_request(),
    ) {
        let (topology, mut turned) = (machine.topology(), machine.clone());
        let taken = taken_by(&topology, &earlier);
        turned.possible.reverse();
        let backwards: Vec<Hold> = taken.holds().iter().rev().cloned().collect();
        let again = take(&turned.topology(), &backwards.into_iter().collect(), &request);
        prop_assert_eq!(again, take(&topology, &taken, &request));
    }

    #[test]
    fn a_renumbering_that_keeps_the_order_renumbers_the_answer(
        machine in any_machine(), earlier in prop::collection::vec(any_request(), 0..6), request in any_request(),
    ) {
        let name = |cpu: u32| 3 * cpu + 5;
        let rename = |cpus: &CpuSet| cpus.iter().map(name).collect::<CpuSet>();
        let topology = machine.topology();
        let taken = taken_by(&topology, &earlier);
        let other: Taken =
            taken.holds().iter().map(|hold| Hold { cpus: rename(&hold.cpus), exclusive: hold.exclusive }).collect();
        let answer = take(&topology, &taken, &request).map(|cpus| rename(&cpus));
        prop_assert_eq!(take(&renumbered(&machine, name), &other, &request), answer);
    }

    #[test]
    fn any_renumbering_of_a_regular_machine_gives_an_isomorphic_answer(
        grid in any_grid(), seed in 0..997usize, request in any_request(),
    ) {
        let cpus = grid.cpus();
        let ids = shuffled(cpus.iter().map(|cpu| cpu.id).collect(), Some(seed));
        let shuffled = cpus.iter().zip(ids).map(|(cpu, id)| Cpu { id, ..*cpu }).collect();
        let (regular, shuffled) = (grid.topology(), Topology::new(shuffled).expect("as regular as before"));
        let of = |topology| take(topology, &Taken::default(), &request).map(|cpus| shape(topology, &cpus));
        prop_assert_eq!(of(&shuffled), of(&regular));
    }

    #[test]
    fn taking_and_giving_back_leaves_what_was(
        machine in any_machine(), earlier in prop::collection::vec(any_request(), 0..6), request in any_request(), next in any_request(),
    ) {
        let topology = machine.topology();
        let taken = taken_by(&topology, &earlier);
        let before = take(&topology, &taken, &next);
        if let Ok(cpus) = take(&topology, &taken, &request) {
            let mut with = taken.clone();
            with.add(cpus.clone(), request.exclusive);
            let back: Taken = with.holds().iter().filter(|hold| hold.cpus != cpus).cloned().collect();
            prop_assert_eq!(take(&topology, &back, &next), before);
        }
    }

    #[test]
    fn a_narrowed_pool_is_a_part_of_the_pool(machine in any_machine(), cpus in 0..40usize, pool in 1..=3u32) {
        let topology = machine.topology();
        let pool: CpuSet = topology.online().iter().filter(|cpu| cpu % pool == 0).collect();
        let narrowed = narrow(&topology, &pool, cpus);
        prop_assert!(narrowed.is_subset(&pool));
        prop_assert_eq!(narrowed.len(), cpus.min(pool.len()));
    }
}
