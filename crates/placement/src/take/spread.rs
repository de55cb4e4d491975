//! SpreadByPCPUs: CPUs of one NUMA node, else of one socket, one core after another.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::ExclusivePolicy;
use crate::topology::Cpu;

use super::free::{Free, Group, Level, round_robin};

impl Free<'_> {
    /// CPUs of one node or one socket; empty if none has enough.
    pub(super) fn spread(&self, wanted: usize) -> Vec<u32> {
        [Level::Node, Level::Socket]
            .into_iter()
            .flat_map(|level| [(level, true), (level, false)])
            .flat_map(|(level, filtered)| self.free_by(level, filtered))
            .find(|group| group.members.len() >= wanted)
            .map(|group| {
                let mut cpus = round_robin(self.topology, group.members);
                cpus.truncate(wanted);
                cpus
            })
            .unwrap_or_default()
    }

    /// Free CPUs by node or socket, one per core in the filtered pass; the groups are in the order
    /// of the strategy.
    fn free_by(&self, level: Level, filtered: bool) -> Vec<Group<u32>> {
        // Staying on one socket is more important than a preferred NUMANodeLevel.
        let numa_only = self.request.exclusive.policy == ExclusivePolicy::NumaNodeLevel;
        let cpus = self.free_cpus(filtered && !(level == Level::Socket && numa_only));
        let mut per_socket: BTreeMap<u32, usize> = BTreeMap::new();
        let mut by_place: BTreeMap<u32, Vec<&Cpu>> = BTreeMap::new();
        for &cpu in &cpus {
            *per_socket.entry(cpu.socket).or_default() += 1;
            let id = match level {
                Level::Node => cpu.node,
                Level::Socket => cpu.socket,
            };
            by_place.entry(id).or_default().push(cpu);
        }
        let around = |cpus: &[&Cpu]| cpus.first().map_or(0, |cpu| per_socket[&cpu.socket]);
        let socket_free = match level {
            Level::Node => by_place.iter().map(|(&id, cpus)| (id, around(cpus))).collect(),
            Level::Socket => BTreeMap::new(),
        };
        let groups =
            by_place.into_iter().map(|(id, cpus)| (id, group(level, filtered, &cpus))).collect();
        self.ordered(groups, &socket_free)
    }
}

fn group(level: Level, filtered: bool, cpus: &[&Cpu]) -> Group<u32> {
    let mut cores = BTreeSet::new();
    let members: Vec<u32> =
        cpus.iter().filter(|cpu| !filtered || cores.insert(cpu.core)).map(|cpu| cpu.id).collect();
    // The size of a node is its number of free CPUs; the size of a socket, the number of CPUs it
    // could give.
    let free = if level == Level::Node { cpus.len() } else { members.len() };
    Group { members, free }
}
