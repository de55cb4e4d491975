//! Topology of a CPU, as sysfs describes it.

/// Position of one CPU in the topology. The ids are those of sysfs; `None` if sysfs has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuPlace {
    /// CPU number.
    pub cpu: u32,
    /// Lowest CPU of `topology/thread_siblings_list`: unique on the node, unlike `core_id`.
    pub core: Option<u32>,
    /// `cache/index3/id`, else the lowest CPU of its `shared_cpu_list`.
    pub llc: Option<u32>,
    /// The `nodeN` link of the CPU's directory.
    pub numa_node: Option<u32>,
    /// `topology/physical_package_id`.
    pub socket: Option<u32>,
    /// `topology/die_id`, unique within a socket.
    pub die: Option<u32>,
    /// Lowest CPU of `topology/cluster_cpus_list`: cores that share an L2 or the tags of their L3
    /// (Linux 5.16).
    pub cluster: Option<u32>,
}
