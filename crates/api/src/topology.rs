//! Answer of `/api/v1/topology`: the CPUs of a node with their owners.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The CPUs of a node, their relations and their owners. Sets of CPUs are in list format (`0-1,4`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTopology {
    /// Online CPUs.
    pub online: String,
    /// Offline CPUs.
    pub offline: String,
    /// CPUs that the kernel isolates (`isolcpus`).
    pub isolated: String,
    /// CPUs without a periodic tick (`nohz_full`).
    pub nohz_full: String,
    /// NUMA nodes with their CPUs.
    pub numa_nodes: BTreeMap<u32, String>,
    /// Distances of each NUMA node to all nodes; 10 is local. Empty if the kernel does not report
    /// them.
    pub distances: BTreeMap<u32, BTreeMap<u32, u32>>,
    /// The online CPUs.
    pub cpus: Vec<CpuWithOwner>,
}

/// A CPU with its place and its owner.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuWithOwner {
    /// CPU number.
    pub cpu: u32,
    /// Lowest CPU of the core: the same for both threads of a core.
    pub core: u32,
    /// Last-level cache.
    pub l3: Option<u32>,
    /// Die.
    pub die: Option<u32>,
    /// NUMA node.
    pub numa_node: u32,
    /// Socket.
    pub socket: u32,
    /// `performance` or `efficiency`; `None` if all cores are alike.
    pub kind: Option<String>,
    /// `share`, `reserved`, `kubelet`, the pod that has this CPU exclusively, or `unknown`.
    pub owner: String,
    /// Share of the time in which the CPU was not idle, 0 to 1. Absent if it is not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<f64>,
}
