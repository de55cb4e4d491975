//! A subset of the best-effort pool, for a configured maximum number of its CPUs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kernel_text::CpuSet;

use crate::topology::{Cpu, Topology};

/// At most `cpus` CPUs of the pool, chosen as Koordinator does. The NUMA nodes take turns, the
/// largest first: each gives a pair of siblings while at least two CPUs are missing, then single
/// CPUs. Returns the whole pool if it is no larger.
#[must_use]
pub fn narrow(topology: &Topology, pool: &CpuSet, cpus: usize) -> CpuSet {
    let mut nodes = nodes(topology, pool);
    let (mut chosen, mut at_node) = (Vec::new(), 0);
    let mut idle = 0;
    while cpus >= chosen.len() + 2 && idle < nodes.len() {
        match pair(&nodes[at_node]) {
            Some(at) => {
                chosen.extend(nodes[at_node].drain(at..at + 2).map(|cpu| cpu.id));
                idle = 0;
            }
            None => idle += 1,
        }
        at_node = (at_node + 1) % nodes.len();
    }
    while chosen.len() < cpus && nodes.iter().any(|node| !node.is_empty()) {
        if !nodes[at_node].is_empty() {
            chosen.push(nodes[at_node].remove(0).id);
        }
        at_node = (at_node + 1) % nodes.len();
    }
    chosen.into_iter().collect()
}

/// The pool's CPUs by (node, socket), the largest group first, sorted by core within a group.
fn nodes<'a>(topology: &'a Topology, pool: &CpuSet) -> Vec<Vec<&'a Cpu>> {
    let mut nodes: BTreeMap<(u32, u32), Vec<&Cpu>> = BTreeMap::new();
    for cpu in pool.iter().filter_map(|cpu| topology.cpu(cpu)) {
        nodes.entry((cpu.node, cpu.socket)).or_default().push(cpu);
    }
    let mut nodes: Vec<_> = nodes.into_values().collect();
    for node in &mut nodes {
        node.sort_by_key(|cpu| (cpu.core, cpu.id));
    }
    nodes.sort_by_key(|node| (Reverse(node.len()), node.iter().map(|cpu| cpu.id).min()));
    nodes
}

fn pair(node: &[&Cpu]) -> Option<usize> {
    node.windows(2).position(|pair| pair[0].core == pair[1].core)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Grid, Numbering};

    #[test]
    fn nodes_take_turns_with_pairs_then_single_cpus() {
        let grid = Grid {
            sockets: 2,
            nodes_per_socket: 1,
            cores_per_node: 2,
            threads_per_core: 2,
            numbering: Numbering::Sequential,
        };
        let topology = grid.topology();
        let narrowed =
            |pool: &str, cpus| narrow(&topology, &pool.parse().unwrap(), cpus).to_string();
        assert_eq!(narrowed("0-7", 5), "0-2,4-5");
        assert_eq!(narrowed("0-7", 6), "0-5");
        assert_eq!(narrowed("1,3,4-7", 3), "1,4-5");
        assert_eq!(narrowed("1,3", 9), "1,3");
        assert_eq!(narrowed("", 2), "");
        assert_eq!(narrowed("0-7", 0), "");
    }
}
