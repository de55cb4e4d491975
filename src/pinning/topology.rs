//! `cpuwarden topology`: the node's CPUs, their relations and their owners.

use std::collections::BTreeMap;

use anyhow::Context;
use kernel_text::CpuSet;
use kubelet::chain;
use pinning::{Checkpoint, CpuManagerState, Machine};
use placement::{CoreKind, Cpu};
use serde::Serialize;
use serde_json::Value;

use super::failure;
use crate::check::check_machine;
use crate::cli::JsonArgs;
use crate::config::Config;
use crate::exit::Failure;
use crate::{output, table};

/// The node's topology, as printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    online: String,
    offline: String,
    isolated: String,
    nohz_full: String,
    /// NUMA nodes with their CPUs.
    numa_nodes: BTreeMap<u32, String>,
    /// Distances of each NUMA node to all nodes; 10 is local. Empty if the kernel does not report
    /// them.
    distances: BTreeMap<u32, BTreeMap<u32, u32>>,
    cpus: Vec<ShownCpu>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownCpu {
    cpu: u32,
    core: u32,
    l3: Option<u32>,
    die: Option<u32>,
    numa_node: u32,
    socket: u32,
    kind: Option<&'static str>,
    /// `share`, `reserved`, `kubelet`, or the pod that has this CPU exclusively.
    owner: String,
}

/// Prints the topology of this node.
///
/// # Errors
/// A node whose CPUs cannot be read.
pub(crate) fn topology(args: JsonArgs) -> Result<(), Failure> {
    let shown = args.run.within(read)?;
    if args.json {
        output::show(
            &(serde_json::to_string_pretty(&shown).context("cannot print the topology")? + "\n"),
        );
    } else {
        output::show(&text(&shown));
    }
    Ok(())
}

/// The JSON form of [`topology`].
///
/// # Errors
/// As [`topology`].
pub(crate) fn topology_json(config: &Config) -> Result<Value, Failure> {
    Ok(serde_json::to_value(read(config)?).context("cannot print the topology")?)
}

fn read(config: &Config) -> Result<Shown, Failure> {
    check_machine(config)?;
    let no_cpus =
        |error| Failure::node(format!("--sys-root: {}; mount the host's /sys", chain(&error)));
    let machine = Machine::read(&config.options.sys_root).map_err(no_cpus)?;
    Ok(shown(&machine, &owners(config, &machine)?))
}

/// Owners of exclusive or reserved CPUs.
fn owners(config: &Config, machine: &Machine) -> Result<Vec<(String, CpuSet)>, Failure> {
    let checkpoint = Checkpoint::of_this_boot(&config.options.state_dir, &config.options.proc_root)
        .map_err(|error| failure(&error))?;
    let pins = checkpoint.into_iter().flat_map(|checkpoint| checkpoint.pins.into_values());
    let pin = |pin: pinning::Pin| {
        Some((format!("{}/{} ({})", pin.namespace, pin.pod, pin.cpu_qos), pin.cpus.parse().ok()?))
    };
    let mut owners: Vec<(String, CpuSet)> = pins.filter_map(pin).collect();
    // Without this file no kubelet grants exclusive CPUs.
    let kubelet =
        CpuManagerState::read(&config.options.cpu_manager_state).and_then(|state| state.kubelet());
    owners.extend(kubelet.ok().map(|kubelet| ("kubelet".to_owned(), kubelet.exclusive)));
    owners.push(("reserved".to_owned(), config.pinning.reserved.union(&machine.isolated)));
    Ok(owners)
}

fn shown(machine: &Machine, owners: &[(String, CpuSet)]) -> Shown {
    let topology = &machine.topology;
    let nodes = topology.nodes();
    let row = |from: u32| {
        nodes.keys().filter_map(|&to| Some((to, topology.distance(from, to)?))).collect()
    };
    let distances: BTreeMap<u32, BTreeMap<u32, u32>> =
        nodes.keys().map(|&from| (from, row(from))).collect();
    Shown {
        online: topology.online().to_string(),
        offline: machine.offline().to_string(),
        isolated: machine.isolated.to_string(),
        nohz_full: machine.nohz_full.to_string(),
        numa_nodes: nodes.iter().map(|(&node, cpus)| (node, cpus.to_string())).collect(),
        distances: distances.into_iter().filter(|(_, row)| !row.is_empty()).collect(),
        cpus: topology.cpus().iter().map(|cpu| shown_cpu(cpu, owners)).collect(),
    }
}

fn shown_cpu(cpu: &Cpu, owners: &[(String, CpuSet)]) -> ShownCpu {
    let &Cpu { id, core, l3, die, node, socket, kind } = cpu;
    let owner = owners.iter().find(|(_, cpus)| cpus.contains(id)).map_or("share", |(name, _)| name);
    let kind = kind.map(|kind| match kind {
        CoreKind::Performance => "performance",
        CoreKind::Efficiency => "efficiency",
    });
    ShownCpu { cpu: id, core, l3, die, numa_node: node, socket, kind, owner: owner.to_owned() }
}

/// Renders one block per socket and node, with one line per core.
fn text(shown: &Shown) -> String {
    let mut text = format!("online {}", shown.online);
    for (name, cpus) in [
        ("offline", &shown.offline),
        ("isolated", &shown.isolated),
        ("nohz_full", &shown.nohz_full),
    ] {
        if !cpus.is_empty() {
            text.push_str(&format!(", {name} {cpus}"));
        }
    }
    text.push('\n');
    for (from, row) in &shown.distances {
        let row: Vec<String> =
            row.iter().map(|(to, distance)| format!("{distance} to {to}")).collect();
        text.push_str(&format!("node {from}: distance {}\n", row.join(", ")));
    }
    let mut places: BTreeMap<(u32, u32), BTreeMap<u32, Vec<&ShownCpu>>> = BTreeMap::new();
    for cpu in &shown.cpus {
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

fn core_row(core: u32, cpus: &[&ShownCpu]) -> Vec<String> {
    let mut row = vec![format!("  core {core}")];
    if let Some(l3) = cpus.first().and_then(|cpu| cpu.l3) {
        row.push(format!("L3 {l3}"));
    }
    row.extend(cpus.first().and_then(|cpu| cpu.kind).map(str::to_owned));
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
        assert_eq!(text(&shown(&machine, &owners)), expected);
    }
}
