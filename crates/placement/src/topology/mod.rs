//! Mapping of CPUs to core, L3 cache, die, NUMA node and socket, by lookup only.
//!
//! Contains only online CPUs. Numberings differ between machines, cores may have different numbers
//! of threads, and ids may have gaps; so no code here or above derives one id from another.

mod grid;

use std::collections::BTreeMap;

use kernel_text::{CpuSet, MAX_CPUS};

pub use grid::{Grid, Numbering};

/// One online CPU and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cpu {
    /// Logical CPU number, as in `/sys/devices/system/cpu/cpuN`.
    pub id: u32,
    /// Physical core, unique on the machine. Lower ids are assigned first. See [`Topology::ranked`]
    /// for the kernel's `topology/core_id`, which is unique only within a die.
    pub core: u32,
    /// L3 cache that the CPU fills (`cache/index3/id`).
    pub l3: Option<u32>,
    /// `topology/die_id`, unique only within a socket.
    pub die: Option<u32>,
    /// NUMA node (`/sys/devices/system/node/nodeN`).
    pub node: u32,
    /// `topology/physical_package_id`.
    pub socket: u32,
    /// Kind of core on a hybrid processor; `None` if unknown.
    pub kind: Option<CoreKind>,
}

/// Kind of core on a hybrid processor (`/sys/devices/cpu_core/cpus`, `/sys/devices/cpu_atom/cpus`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CoreKind {
    /// Performance core.
    Performance,
    /// Efficiency core.
    Efficiency,
}

/// An impossible topology.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Nothing is online.
    #[error("no CPU in the topology")]
    Empty,
    /// A CPU id that exceeds the kernel's maximum.
    #[error("CPU {0} exceeds the kernel's maximum")]
    OutOfRange(u32),
    /// A CPU id that occurs twice.
    #[error("CPU {0} is listed twice")]
    Duplicate(u32),
    /// A core whose threads are on different nodes or sockets.
    #[error("core {core} spans more than one {level}")]
    CoreSpans {
        /// Id of the core.
        core: u32,
        /// `NUMA node` or `socket`.
        level: &'static str,
    },
}

/// The online CPUs of one machine and their topology.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Topology {
    /// CPUs, ascending by id.
    cpus: Vec<Cpu>,
    /// Index into `cpus` by CPU id; `u32::MAX` if there is no such CPU.
    place: Vec<u32>,
    online: CpuSet,
    cores: BTreeMap<u32, CpuSet>,
    nodes: BTreeMap<u32, CpuSet>,
    sockets: BTreeMap<u32, CpuSet>,
    distances: BTreeMap<(u32, u32), u32>,
}

impl Topology {
    /// Builds a topology from core ids that are unique on the machine and in order of preference.
    ///
    /// # Errors
    /// No CPU, a duplicate or out-of-range id, or a core that spans NUMA nodes or sockets.
    pub fn new(mut cpus: Vec<Cpu>) -> Result<Self, TopologyError> {
        cpus.sort_by_key(|cpu| cpu.id);
        check(&cpus)?;
        let online: CpuSet = cpus.iter().map(|cpu| cpu.id).collect();
        let mut place = vec![u32::MAX; cpus.last().map_or(0, |cpu| cpu.id as usize + 1)];
        for (at, cpu) in (0..).zip(&cpus) {
            place[cpu.id as usize] = at;
        }
        let cores = grouped(&cpus, |cpu| cpu.core);
        let nodes = grouped(&cpus, |cpu| cpu.node);
        let sockets = grouped(&cpus, |cpu| cpu.socket);
        Ok(Self { cpus, place, online, cores, nodes, sockets, distances: BTreeMap::new() })
    }

    /// Builds a topology from the kernel's `core_id`, which is unique only within a die. Renumbers
    /// cores by socket, NUMA node, die, L3 and lowest CPU, so that the first cores of a node are
    /// also close to each other. Siblings that a hypervisor reports across nodes become separate
    /// cores, as in the scheduler (`topology_sane` in arch/x86).
    ///
    /// # Errors
    /// As [`Topology::new`].
    pub fn ranked(mut cpus: Vec<Cpu>) -> Result<Self, TopologyError> {
        let key = |cpu: &Cpu| (cpu.socket, cpu.node, cpu.die, cpu.core);
        let mut lowest: BTreeMap<_, &Cpu> = BTreeMap::new();
        for cpu in &cpus {
            let first = lowest.entry(key(cpu)).or_insert(cpu);
            if cpu.id < first.id {
                *first = cpu;
            }
        }
        let mut cores: Vec<_> = lowest.into_values().collect();
        cores.sort_by_key(|cpu| (cpu.socket, cpu.node, cpu.die, cpu.l3, cpu.id));
        let ranks: BTreeMap<_, u32> = cores.into_iter().map(key).zip(0..).collect();
        for cpu in &mut cpus {
            cpu.core = ranks[&key(cpu)];
        }
        Self::new(cpus)
    }

    /// Adds the distance of each pair of NUMA nodes (`/sys/devices/system/node/nodeN/distance`; 10
    /// is local).
    #[must_use]
    pub fn with_distances(mut self, distances: BTreeMap<(u32, u32), u32>) -> Self {
        self.distances = distances;
        self
    }

    /// All online CPUs.
    #[must_use]
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// All CPUs, ascending by id.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// One CPU; `None` while it is offline.
    #[must_use]
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.place.get(id as usize).and_then(|&at| self.cpus.get(at as usize))
    }

    /// Online threads of each core.
    #[must_use]
    pub fn cores(&self) -> &BTreeMap<u32, CpuSet> {
        &self.cores
    }

    /// Online CPUs of each NUMA node.
    #[must_use]
    pub fn nodes(&self) -> &BTreeMap<u32, CpuSet> {
        &self.nodes
    }

    /// Online CPUs of each socket.
    #[must_use]
    pub fn sockets(&self) -> &BTreeMap<u32, CpuSet> {
        &self.sockets
    }

    /// Distance between two NUMA nodes; 10 is local. `None` if unknown.
    #[must_use]
    pub fn distance(&self, from: u32, to: u32) -> Option<u32> {
        self.distances.get(&(from, to)).copied()
    }

    /// A divisor of every number of CPUs in whole cores: the threads per core if all cores have the
    /// same number of online threads, else the greatest common divisor.
    #[must_use]
    pub fn whole_core_multiple(&self) -> usize {
        self.cores.values().map(CpuSet::len).fold(0, gcd)
    }

    /// Whether no core has a second online thread.
    #[must_use]
    pub fn single_threaded(&self) -> bool {
        self.cores.len() == self.cpus.len()
    }
}

fn check(cpus: &[Cpu]) -> Result<(), TopologyError> {
    let Some(last) = cpus.last() else { return Err(TopologyError::Empty) };
    if last.id >= MAX_CPUS {
        return Err(TopologyError::OutOfRange(last.id));
    }
    if let Some(pair) = cpus.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(TopologyError::Duplicate(pair[0].id));
    }
    let mut first: BTreeMap<u32, &Cpu> = BTreeMap::new();
    for cpu in cpus {
        let sibling = first.entry(cpu.core).or_insert(cpu);
        if sibling.node != cpu.node {
            return Err(TopologyError::CoreSpans { core: cpu.core, level: "NUMA node" });
        }
        if sibling.socket != cpu.socket {
            return Err(TopologyError::CoreSpans { core: cpu.core, level: "socket" });
        }
    }
    Ok(())
}

fn grouped(cpus: &[Cpu], key: impl Fn(&Cpu) -> u32) -> BTreeMap<u32, CpuSet> {
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in cpus {
        groups.entry(key(cpu)).or_default().push(cpu.id);
    }
    groups.into_iter().map(|(id, cpus)| (id, cpus.into_iter().collect())).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(id: u32, core: u32, node: u32, socket: u32) -> Cpu {
        Cpu { id, core, l3: None, die: None, node, socket, kind: None }
    }

    #[test]
    fn holes_and_asymmetric_cores_are_kept_as_they_are() {
        let topology =
            Topology::new(vec![cpu(9, 1, 0, 0), cpu(2, 0, 0, 0), cpu(4, 0, 0, 0)]).unwrap();
        assert_eq!(topology.online().to_string(), "2,4,9");
        assert_eq!(topology.cores()[&0].to_string(), "2,4");
        assert!(topology.cpu(3).is_none() && topology.cpu(500).is_none());
        assert_eq!(topology.whole_core_multiple(), 1);
        assert!(!topology.single_threaded());
    }

    #[test]
    fn relations_that_no_machine_has_are_errors() {
        assert_eq!(Topology::new(Vec::new()), Err(TopologyError::Empty));
        assert_eq!(
            Topology::new(vec![cpu(1, 0, 0, 0), cpu(1, 1, 0, 0)]),
            Err(TopologyError::Duplicate(1))
        );
        assert_eq!(
            Topology::new(vec![cpu(MAX_CPUS, 0, 0, 0)]),
            Err(TopologyError::OutOfRange(MAX_CPUS))
        );
        let spans = |level| Err(TopologyError::CoreSpans { core: 0, level });
        assert_eq!(Topology::new(vec![cpu(0, 0, 0, 0), cpu(1, 0, 1, 0)]), spans("NUMA node"));
        assert_eq!(Topology::new(vec![cpu(0, 0, 0, 0), cpu(1, 0, 0, 1)]), spans("socket"));
    }

    #[test]
    fn repeated_core_ids_of_sockets_are_distinguished() {
        let cpus = vec![
            cpu(0, 0, 0, 0),
            cpu(1, 0, 1, 1),
            cpu(2, 4, 0, 0),
            cpu(3, 4, 1, 1),
            cpu(4, 0, 0, 0),
        ];
        let topology = Topology::ranked(cpus).unwrap();
        let cores: Vec<_> =
            topology.cores().iter().map(|(core, cpus)| format!("{core}:{cpus}")).collect();
        assert_eq!(cores, ["0:0,4", "1:2", "2:1", "3:3"]);
    }

    #[test]
    fn siblings_on_two_numa_nodes_are_two_cores() {
        let topology =
            Topology::ranked(vec![cpu(0, 0, 0, 0), cpu(1, 0, 1, 0), cpu(2, 0, 0, 0)]).unwrap();
        let cores: Vec<_> = topology.cores().values().map(ToString::to_string).collect();
        assert_eq!(cores, ["0,2", "1"]);
    }

    #[test]
    fn only_known_distances_are_reported() {
        let topology =
            Topology::new(vec![cpu(0, 0, 0, 0)]).unwrap().with_distances([((0, 1), 21)].into());
        assert_eq!((topology.distance(0, 1), topology.distance(1, 0)), (Some(21), None));
    }
}
