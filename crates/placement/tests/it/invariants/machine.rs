//! Random machines: 1–4 sockets, 1–4 NUMA nodes, 1–16 cores per node, 1–2 threads, irregular
//! numberings, gaps.

use std::collections::BTreeSet;
use std::fmt;

use placement::{Cpu, Grid, Numbering, Topology};
use proptest::prelude::*;

/// All possible CPUs of the machine, and the offline ones.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) possible: Vec<Cpu>,
    pub(crate) offline: BTreeSet<u32>,
}

/// One `cpu=core node socket` entry per CPU, `!` if offline, so that a failure is readable.
impl fmt::Debug for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cpu in &self.possible {
            let gone = if self.offline.contains(&cpu.id) { "!" } else { "" };
            write!(out, "{gone}{}=c{}n{}s{} ", cpu.id, cpu.core, cpu.node, cpu.socket)?;
        }
        Ok(())
    }
}

impl Machine {
    pub(crate) fn topology(&self) -> Topology {
        let online = self.possible.iter().filter(|cpu| !self.offline.contains(&cpu.id)).copied();
        Topology::new(online.collect()).expect("a CPU is online")
    }

    /// Takes the n-th online CPU offline, unless it is the last one.
    pub(crate) fn unplug(&mut self, n: usize) -> Option<u32> {
        let online: Vec<u32> = self
            .possible
            .iter()
            .map(|cpu| cpu.id)
            .filter(|id| !self.offline.contains(id))
            .collect();
        let id = online[n % online.len()];
        (online.len() > 1 && self.offline.insert(id)).then_some(id)
    }

    /// Brings the n-th offline CPU back online.
    pub(crate) fn plug(&mut self, n: usize) -> Option<u32> {
        let id = *self.offline.iter().nth(n % self.offline.len().max(1))?;
        self.offline.remove(&id).then_some(id)
    }
}

pub(crate) fn any_grid() -> impl Strategy<Value = Grid> {
    let numbering = prop_oneof![
        Just(Numbering::Sequential),
        Just(Numbering::ThreadMajor),
        Just(Numbering::SocketInterleaved)
    ];
    let cores = prop_oneof![4 => 1..=4u32, 1 => 5..=16u32];
    let places = prop_oneof![(Just(1), 1..=4u32), (2..=4u32, Just(1)), (Just(2), Just(2))];
    (places, cores, 1..=2u32, numbering).prop_map(
        |((sockets, nodes_per_socket), cores_per_node, threads, numbering)| Grid {
            sockets,
            nodes_per_socket,
            cores_per_node,
            threads_per_core: threads,
            numbering,
        },
    )
}

/// A grid whose CPU ids have gaps, shuffled if `shuffle` is set.
pub(crate) fn any_machine() -> impl Strategy<Value = Machine> {
    (
        any_grid(),
        1..=3u32,
        any::<bool>(),
        any::<prop::sample::Index>(),
        prop::collection::vec(any::<usize>(), 0..4),
    )
        .prop_map(|(grid, gap, shuffle, seed, holes)| {
            let mut possible = grid.cpus();
            let ids = shuffled(
                possible.iter().map(|cpu| cpu.id * gap).collect(),
                shuffle.then(|| seed.index(997)),
            );
            for (cpu, id) in possible.iter_mut().zip(ids) {
                cpu.id = id;
            }
            let mut machine = Machine { possible, offline: BTreeSet::new() };
            for hole in holes {
                machine.unplug(hole);
            }
            machine
        })
}

/// A fixed permutation for each seed; the unchanged order without a seed.
pub(crate) fn shuffled(mut ids: Vec<u32>, seed: Option<usize>) -> Vec<u32> {
    let Some(mut state) = seed else { return ids };
    for at in (1..ids.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ids.swap(at, (state >> 33) % (at + 1));
    }
    ids
}
