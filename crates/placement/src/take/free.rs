//! The free CPUs of one request, and the groups in which the passes consider them.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use kernel_text::CpuSet;

use crate::policy::{BindPolicy, ExclusivePolicy, NumaStrategy};
use crate::topology::{Cpu, Topology};

use super::{Request, Taken};

/// Free CPUs, and the necessary facts about the taken ones.
#[derive(Clone)]
pub(super) struct Free<'a> {
    pub(super) topology: &'a Topology,
    pub(super) request: &'a Request,
    cpus: CpuSet,
    /// Number of holders by CPU id, only for CPUs that have any.
    holders: BTreeMap<u32, u32>,
    /// Ids of the cores, or NUMA nodes, with a pod of the same exclusive policy as the request.
    shunned: BTreeSet<u32>,
    /// Ids of the cores, or NUMA nodes, with any exclusive pod.
    foreign: BTreeSet<u32>,
}

/// A core with free CPUs.
#[derive(Clone)]
pub(super) struct FreeCore {
    pub(super) id: u32,
    pub(super) node: u32,
    pub(super) socket: u32,
    /// Free CPUs, ascending by number of holders, then id.
    pub(super) cpus: Vec<u32>,
    pub(super) holders: u32,
    pub(super) whole: bool,
}

/// CPUs of one NUMA node or socket, in order of allocation.
pub(super) struct Group<T> {
    pub(super) members: Vec<T>,
    /// Number of free CPUs, which the strategies compare.
    pub(super) free: usize,
}

/// The level of a group: NUMA node or socket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Node,
    Socket,
}

impl<'a> Free<'a> {
    pub(super) fn new(topology: &'a Topology, taken: &Taken, request: &'a Request) -> Self {
        let allowed = request.allowed.as_ref().unwrap_or(topology.online());
        let mut free = Self {
            topology,
            request,
            cpus: topology.online().intersection(allowed),
            holders: BTreeMap::new(),
            shunned: BTreeSet::new(),
            foreign: BTreeSet::new(),
        };
        for hold in taken.holds() {
            free.foreign.extend(free.places(request.exclusive.policy, &hold.cpus));
            if hold.exclusive.policy == request.exclusive.policy {
                free.shunned.extend(free.places(request.exclusive.policy, &hold.cpus));
            }
            if hold.exclusive.required {
                free.guard(hold.exclusive.policy, &hold.cpus);
            }
            for cpu in hold.cpus.iter() {
                *free.holders.entry(cpu).or_default() += 1;
            }
        }
        let full = free.holders.iter().filter(|&(_, &holders)| holders >= request.max_holders);
        free.cpus = free.cpus.difference(&full.map(|(&cpu, _)| cpu).collect());
        free
    }

    pub(super) fn len(&self) -> usize {
        self.cpus.len()
    }

    pub(super) fn within(&self, cpus: &CpuSet) -> Self {
        Self { cpus: self.cpus.intersection(cpus), ..self.clone() }
    }

    /// Without the neighbors of any exclusive pod, if the exclusive policy is required.
    pub(super) fn without_foreign(&self) -> Self {
        if !self.request.exclusive.required {
            return self.clone();
        }
        self.keep(|free, cpu| {
            free.place(free.request.exclusive.policy, cpu)
                .is_none_or(|at| !free.foreign.contains(&at))
        })
    }

    /// Only the CPUs that fit the required shape: completely free cores, or one CPU of each core.
    pub(super) fn in_required_shape(&self) -> Self {
        if !self.request.bind.required {
            return self.clone();
        }
        let cores = self.cores(false).into_iter();
        let cpus: Vec<u32> = match self.request.bind.policy {
            BindPolicy::FullPcpus => {
                cores.filter(|core| core.whole).flat_map(|core| core.cpus).collect()
            }
            BindPolicy::SpreadByPcpus => {
                cores.filter_map(|core| core.cpus.first().copied()).collect()
            }
        };
        self.within(&cpus.into_iter().collect())
    }

    /// Without the cores or nodes that have a pod of the same exclusive policy.
    pub(super) fn unshunned(&self) -> Self {
        self.keep(|free, cpu| !free.shuns(cpu))
    }

    /// Whether the CPU's core or node has a pod of the same exclusive policy as the request.
    pub(super) fn shuns(&self, cpu: &Cpu) -> bool {
        self.place(self.request.exclusive.policy, cpu).is_some_and(|at| self.shunned.contains(&at))
    }

    /// As [`Free::shuns`], for a whole core.
    pub(super) fn shuns_core(&self, core: &FreeCore) -> bool {
        core.cpus.first().and_then(|&cpu| self.topology.cpu(cpu)).is_some_and(|cpu| self.shuns(cpu))
    }

    /// Free CPUs that pass the filter, ascending by holders, NUMA node and id, so that a numbering
    /// that interleaves the nodes of a socket makes no difference.
    pub(super) fn free_cpus(&self, filtered: bool) -> Vec<&'a Cpu> {
        let cpus = self.cpus.iter().filter_map(|cpu| self.topology.cpu(cpu));
        let mut cpus: Vec<_> = cpus.filter(|cpu| !(filtered && self.shuns(cpu))).collect();
        cpus.sort_by_key(|cpu| (self.holders_of(cpu.id), cpu.node));
        cpus
    }

    /// Cores with free CPUs that pass the filter, by id.
    pub(super) fn cores(&self, filtered: bool) -> Vec<FreeCore> {
        let mut cores: BTreeMap<u32, FreeCore> = BTreeMap::new();
        for cpu in self.free_cpus(filtered) {
            let core = cores.entry(cpu.core).or_insert_with(|| FreeCore {
                id: cpu.core,
                node: cpu.node,
                socket: cpu.socket,
                cpus: Vec::new(),
                holders: 0,
                whole: false,
            });
            core.cpus.push(cpu.id);
            core.holders += self.holders_of(cpu.id);
        }
        for core in cores.values_mut() {
            core.whole = self.topology.cores()[&core.id].len() == core.cpus.len();
        }
        cores.into_values().collect()
    }

    /// Orders by number of free CPUs, ascending or descending depending on the strategy.
    pub(super) fn by_strategy(&self, a: usize, b: usize) -> Ordering {
        match self.request.strategy {
            NumaStrategy::MostAllocated => a.cmp(&b),
            NumaStrategy::LeastAllocated | NumaStrategy::DistributeEvenly => b.cmp(&a),
        }
    }

    /// Groups by node or socket in the order of the strategy: by free CPUs of the group, then by
    /// free CPUs of its sockets (`socket_free`), then by id.
    pub(super) fn ordered<T>(
        &self,
        groups: BTreeMap<u32, Group<T>>,
        socket_free: &BTreeMap<u32, usize>,
    ) -> Vec<Group<T>> {
        let mut groups: Vec<_> = groups.into_iter().collect();
        let free_around = |id: &u32| socket_free.get(id).copied().unwrap_or(0);
        groups.sort_by(|(a_id, a), (b_id, b)| {
            self.by_strategy(a.free, b.free)
                .then_with(|| self.by_strategy(free_around(a_id), free_around(b_id)))
                .then(a_id.cmp(b_id))
        });
        groups.into_iter().map(|(_, group)| group).collect()
    }

    fn holders_of(&self, cpu: u32) -> u32 {
        self.holders.get(&cpu).copied().unwrap_or(0)
    }

    fn keep(&self, keep: impl Fn(&Self, &Cpu) -> bool) -> Self {
        let cpus = self
            .cpus
            .iter()
            .filter(|&cpu| self.topology.cpu(cpu).is_some_and(|cpu| keep(self, cpu)));
        Self { cpus: cpus.collect(), ..self.clone() }
    }

    /// Removes the whole cores or nodes of a hold with required exclusivity from the free CPUs.
    fn guard(&mut self, policy: ExclusivePolicy, cpus: &CpuSet) {
        let groups = match policy {
            ExclusivePolicy::None => return,
            ExclusivePolicy::PcpuLevel => self.topology.cores(),
            ExclusivePolicy::NumaNodeLevel => self.topology.nodes(),
        };
        for place in self.places(policy, cpus) {
            self.cpus = self.cpus.difference(&groups[&place]);
        }
    }

    fn places(&self, policy: ExclusivePolicy, cpus: &CpuSet) -> BTreeSet<u32> {
        cpus.iter()
            .filter_map(|cpu| self.topology.cpu(cpu))
            .filter_map(|cpu| self.place(policy, cpu))
            .collect()
    }

    fn place(&self, policy: ExclusivePolicy, cpu: &Cpu) -> Option<u32> {
        match policy {
            ExclusivePolicy::None => None,
            ExclusivePolicy::PcpuLevel => Some(cpu.core),
            ExclusivePolicy::NumaNodeLevel => Some(cpu.node),
        }
    }
}

impl FreeCore {
    /// Order of the cores of one node or socket: most free CPUs, fewest holders, lowest id.
    pub(super) fn rank(&self) -> (Reverse<usize>, u32, u32) {
        (Reverse(self.cpus.len()), self.holders, self.id)
    }
}

/// One CPU of each core in turn, then the second of each, and so on; otherwise keeps the order.
pub(super) fn round_robin(topology: &Topology, cpus: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    let mut rounds: Vec<(usize, u32)> = Vec::new();
    for id in cpus {
        if let Some(cpu) = topology.cpu(id) {
            let round = seen.entry(cpu.core).or_default();
            rounds.push((*round, id));
            *round += 1;
        }
    }
    rounds.sort_by_key(|&(round, _)| round);
    rounds.into_iter().map(|(_, id)| id).collect()
}
