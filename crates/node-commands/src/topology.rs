//! `cpuwarden topology`: the node's CPUs, their relations and their owners.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use api::{CpuWithOwner, NodeTopology, Pin};
use console::{Failure, output, table};
use kernel_text::CpuSet;
use pinning::{CpuManagerState, Machine};
use placement::{CoreKind, Cpu};
use state_dir::PinningCheckpoint;
use watchdog::errors::chain;

use crate::drain::failure;

/// Places from which the topology and the owners of CPUs are read.
#[derive(Debug)]
pub struct TopologySources<'a> {
    /// The node's `/sys`.
    pub sys_root: &'a Path,
    /// The node's `/proc`.
    pub proc_root: &'a Path,
    /// Directory of pinning's state.
    pub state_dir: &'a Path,
    /// State file of the kubelet's CPU manager.
    pub cpu_manager_state: &'a Path,
    /// CPUs that are never assigned as exclusive CPUs.
    pub reserved: &'a CpuSet,
}

/// Reads the node's CPUs and their owners.
///
/// # Errors
/// A node whose CPUs cannot be read.
pub fn topology(sources: &TopologySources<'_>) -> Result<NodeTopology, Failure> {
    let no_cpus =
        |error| Failure::node(format!("--sys-root: {}; mount the host's /sys", chain(&error)));
    let machine = Machine::read(sources.sys_root).map_err(no_cpus)?;
    Ok(node_topology(&machine, &owners(sources, &machine)?))
}

/// Prints a topology.
///
/// # Errors
/// None that this program causes.
pub fn show_topology(topology: &NodeTopology, json: bool) -> Result<(), Failure> {
    let text = match json {
        true => serde_json::to_string_pretty(topology).context("cannot print the topology")? + "\n",
        false => text(topology),
    };
    output::show(&text);
    Ok(())
}

/// Owners of exclusive or reserved CPUs.
fn owners(
    sources: &TopologySources<'_>,
    machine: &Machine,
) -> Result<Vec<(String, CpuSet)>, Failure> {
    let checkpoint = PinningCheckpoint::of_this_boot(sources.state_dir, sources.proc_root)
        .map_err(|error| failure(&error.into()))?;
    let pins = checkpoint.into_iter().flat_map(|checkpoint| checkpoint.pins.into_values());
    let pin = |pin: Pin| {
        Some((format!("{}/{} ({})", pin.namespace, pin.pod, pin.cpu_qos), pin.cpus.parse().ok()?))
    };
    let mut owners: Vec<(String, CpuSet)> = pins.filter_map(pin).collect();
    // Without this file no kubelet grants exclusive CPUs.
    let kubelet =
        CpuManagerState::read(sources.cpu_manager_state).and_then(|state| state.kubelet());
    owners.extend(kubelet.ok().map(|kubelet| ("kubelet".to_owned(), kubelet.exclusive)));
    owners.push(("reserved".to_owned(), sources.reserved.union(&machine.isolated)));
    Ok(owners)
}

fn node_topology(machine: &Machine, owners: &[(String, CpuSet)]) -> NodeTopology {
    let topology = &machine.topology;
    let nodes = topology.nodes();
    let row = |from: u32| {
        nodes.keys().filter_map(|&to| Some((to, topology.distance(from, to)?))).collect()
    };
    let distances: BTreeMap<u32, BTreeMap<u32, u32>> =
        nodes.keys().map(|&from| (from, row(from))).collect();
    NodeTopology {
        online: topology.online().to_string(),
        offline: machine.offline().to_string(),
        isolated: machine.isolated.to_string(),
        nohz_full: machine.nohz_full.to_string(),
        numa_nodes: nodes.iter().map(|(&node, cpus)| (node, cpus.to_string())).collect(),
        distances: distances.into_iter().filter(|(_, row)| !row.is_empty()).collect(),
        cpus: topology.cpus().iter().map(|cpu| cpu_with_owner(cpu, owners)).collect(),
    }
}

fn cpu_with_owner(cpu: &Cpu, owners: &[(String, CpuSet)]) -> CpuWithOwner {
    let &Cpu { id, core, l3, die, node, socket, kind } = cpu;
    let owner = owners.iter().find(|(_, cpus)| cpus.contains(id)).map_or("share", |(name, _)| name);
    let kind = kind.map(|kind| match kind {
        CoreKind::Performance => "performance".to_owned(),
        CoreKind::Efficiency => "efficiency".to_owned(),
    });
    let owner = owner.to_owned();
    CpuWithOwner { cpu: id, core, l3, die, numa_node: node, socket, kind, owner, busy: None }
}

/// Renders one block per socket and node, with one line per core.
fn text(node: &NodeTopology) -> String {
    let mut text = format!("online {}", node.online);
    for (name, cpus) in
        [("offline", &node.offline), ("isolated", &node.isolated), ("nohz_full", &node.nohz_full)]
    {
        if !cpus.is_empty() {
            text.push_str(&format!(", {name} {cpus}"));
        }
    }
    text.push('\n');
    for (from, row) in &node.distances {
        let row: Vec<String> =
            row.iter().map(|(to, distance)| format!("{distance} to {to}")).collect();
        text.push_str(&format!("node {from}: distance {}\n", row.join(", ")));
    }
    let mut places: BTreeMap<(u32, u32), BTreeMap<u32, Vec<&CpuWithOwner>>> = BTreeMap::new();
    for cpu in &node.cpus {
        places
            .entry((cpu.socket, cpu.numa_node))
            .or_default()
            .entry(cpu.core)
            .or_default()
            .push(cpu);
    }
    for ((socket, node), cores) in places {
        text.push_str(&format!("\nsocket {socket}, NUMA node {node}\n"));
        let rows: Vec<Vec<String>> =
            cores.iter().map(|(core, cpus)| core_row(*core, cpus)).collect();
        text.push_str(&table::render(&rows));
    }
    text
}

fn core_row(core: u32, cpus: &[&CpuWithOwner]) -> Vec<String> {
    let mut row = vec![format!("  core {core}")];
    if let Some(l3) = cpus.first().and_then(|cpu| cpu.l3) {
        row.push(format!("L3 {l3}"));
    }
    row.extend(cpus.first().and_then(|cpu| cpu.kind.clone()));
    row.extend(cpus.iter().map(|cpu| format!("CPU {} {}", cpu.cpu, cpu.owner)));
    row
}

#[cfg(test)]
mod tests {
    use placement::{Grid, Numbering};

    use super::*;

    #[test]
    fn every_core_is_a_line_and_every_cpu_has_an_owner() {
        let grid = Grid {
            sockets: 2,
            nodes_per_socket: 1,
            cores_per_node: 2,
            threads_per_core: 2,
            numbering: Numbering::Sequential,
        };
        let topology = grid.topology().with_distances([((0, 0), 10), ((0, 1), 21)].into());
        let possible = "0-9".parse().unwrap();
        let machine = Machine {
            topology,
            possible,
            isolated: "6".parse().unwrap(),
            nohz_full: CpuSet::new(),
        };
        let owners = [
            ("shop/web (LSR)".to_owned(), "2-3".parse().unwrap()),
            ("reserved".to_owned(), "0".parse().unwrap()),
        ];
        let expected = "\
online 0-7, offline 8-9, isolated 6
node 0: distance 10 to 0, 21 to 1

socket 0, NUMA node 0
  core 0  L3 0  CPU 0 reserved        CPU 1 share
  core 1  L3 0  CPU 2 shop/web (LSR)  CPU 3 shop/web (LSR)

socket 1, NUMA node 1
  core 2  L3 1  CPU 4 share  CPU 5 share
  core 3  L3 1  CPU 6 share  CPU 7 share
";
        assert_eq!(text(&node_topology(&machine, &owners)), expected);
    }
}
