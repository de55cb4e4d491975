//! Choice of the CPUs that best-effort pods keep.

use kernel_text::CpuSet;
use placement::{Topology, narrow};

/// The `cpus` CPUs of `pool` that best-effort pods keep. CPUs reserved for the host are given up
/// first, then siblings of exclusive CPUs; the rest is chosen as Koordinator does ([`narrow`]).
#[must_use]
pub fn keep_cpus(
    topology: &Topology,
    pool: &CpuSet,
    exclusive: &CpuSet,
    reserved: &CpuSet,
    cpus: usize,
) -> CpuSet {
    let cores: Vec<u32> =
        exclusive.iter().filter_map(|cpu| topology.cpu(cpu)).map(|cpu| cpu.core).collect();
    let is_sibling = |cpu: &u32| topology.cpu(*cpu).is_some_and(|cpu| cores.contains(&cpu.core));
    let (siblings, others): (Vec<u32>, Vec<u32>) =
        pool.difference(reserved).iter().partition(is_sibling);
    let set = |cpus: Vec<u32>| cpus.into_iter().collect::<CpuSet>();
    let mut kept = CpuSet::default();
    for best in [set(others), set(siblings), pool.intersection(reserved)] {
        kept = kept.union(&narrow(topology, &best, cpus.saturating_sub(kept.len())));
    }
    kept
}
