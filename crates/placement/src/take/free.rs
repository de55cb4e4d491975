//! The free CPUs of one request, and the groups in which the passes look at them.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use kernel_text::CpuSet;

use crate::policy::{BindPolicy, ExclusivePolicy, NumaStrategy};
use crate::topology::{Cpu, Topology};

use super::{Request, Taken};

/// Free CPUs, and what the passes need to know of the taken ones.
#[derive(Clone)]
pub(super) struct Free<'a> {
    pub(super) topology: &'a Topology,
    pub(super) request: &'a Request,
    cpus: CpuSet,
    /// Holders by CPU id, where there are any; only CPUs that may have several.
    holders: BTreeMap<u32, u32>,
    /// Cores, or NUMA nodes, that hold a pod of the request's own exclusive policy.
    shunned: BTreeSet<u32>,
    /// Cores, or NUMA nodes, with any exclusive pod.
    foreign: BTreeSet<u32>,
}

/// A core with free CPUs.
#[derive(Clone)]
pub(super) struct FreeCore {
    pub(super) id: u32,
    pub(super) node: u32,
    pub(super) socket: u32,
    /// Ascending by holders, then id.
    pub(super) cpus: Vec<u32>,
    pub(super) holders: u32,
    pub(super) whole: bool,
}

/// CPUs of one NUMA node or socket, in the order in which they would be given.
pub(super) struct Group<T> {
    pub(super) members: Vec<T>,
    /// Free CPUs, the measure of the strategies.
    pub(super) free: usize,
}

/// NUMA node or socket.
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

    /// Without the neighbours of any exclusive pod, where the exclusive policy is required.
    pub(super) fn without_foreign(&self) -> Self {
        if !self.request.exclusive.required {
            return self.clone();
        }
        self.keep(|free, cpu| {
            free.place(free.request.exclusive.policy, cpu).is_none_or(|at| !free.foreign.contains(&at))
        })
    }

    /// Only the CPUs that can be part of the required shape: wholly free cores, or one CPU of each.
    pub(super) fn in_required_shape(&self) -> Self {
        if !self.request.bind.required {
            return self.clone();
        }
        let cores = self.cores(false).into_iter();
        let cpus: Vec<u32> = match self.request.bind.policy {
            BindPolicy::FullPcpus => cores.filter(|core| core.whole).flat_map(|core| core.cpus).collect(),
            BindPolicy::SpreadByPcpus => cores.filter_map(|core| core.cpus.first().copied()).collect(),
        };
        self.within(&cpus.into_iter().collect())
    }

    /// Without the cores or nodes that hold a pod of the same exclusive policy.
    pub(super) fn unshunned(&self) -> Self {
        self.keep(|free, cpu| !free.shuns(cpu))
    }

    /// Does the CPU's core or node hold a pod of the request's own exclusive policy?
    pub(super) fn shuns(&self, cpu: &Cpu) -> bool {
        self.place(self.request.exclusive.policy, cpu).is_some_and(|at| self.shunned.contains(&at))
    }

    /// As [`Free::shuns`], for a whole core.
    pub(super) fn shuns_core(&self, core: &FreeCore) -> bool {
        core.cpus.first().and_then(|&cpu| self.topology.cpu(cpu)).is_some_and(|cpu| self.shuns(cpu))
    }

    /// Free CPUs that the filter lets through, ascending by holders, NUMA node and id: a numbering that interleaves the
    /// nodes of a socket changes no answer.
    pub(super) fn free_cpus(&self, filtered: bool) -> Vec<&'a Cpu> {
        let cpus = self.cpus.iter().filter_map(|cpu| self.topology.cpu(cpu));
        let mut cpus: Vec<_> = cpus.filter(|cpu| !(filtered && self.shuns(cpu))).collect();
        cpus.sort_by_key(|cpu| (self.holders_of(cpu.id), cpu.node));
        cpus
    }

    /// Cores with free CPUs that the filter lets through, by id.
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

    /// Less or more free CPUs first, as the strategy says.
    pub(super) fn by_strategy(&self, a: usize, b: usize) -> Ordering {
        match self.request.strategy {
            NumaStrategy::MostAllocated => a.cmp(&b),
            NumaStrategy::LeastAllocated | NumaStrategy::DistributeEvenly => b.cmp(&a),
        }
    }

    /// Groups by node or socket in the order of the strategy: free CPUs of the group, then (`socket_free`) of the
    /// sockets that it is on, then its id.
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
        let cpus = self.cpus.iter().filter(|&cpu| self.topology.cpu(cpu).is_some_and(|cpu| keep(self, cpu)));
        Self { cpus: cpus.collect(), ..self.clone() }
    }

    /// Takes the whole cores or nodes of a hold whose exclusivity is required out of the free CPUs.
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
        cpus.iter().filter_map(|cpu| self.topology.cpu(cpu)).filter_map(|cpu| self.place(policy, cpu)).collect()
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
    /// The order in which cores of one node or socket are given: most free CPUs, fewest holders, lowest id.
    pub(super) fn rank(&self) -> (Reverse<usize>, u32, u32) {
        (Reverse(self.cpus.len()), self.holders, self.id)
    }
}

/// One of each core in turn, then the second of each, and so on; the order is kept otherwise.
pub(super) fn round_robin(topology: &Topology, cpus: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    let mut turns: Vec<(usize, u32)> = Vec::new();
    for id in cpus {
        if let Some(cpu) = topology.cpu(id) {
            let turn = seen.entry(cpu.core).or_default();
            turns.push((*turn, id));
            *turn += 1;
        }
    }
    turns.sort_by_key(|&(turn, _)| turn);
    turns.into_iter().map(|(_, id)| id).collect()
}
