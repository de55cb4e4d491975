//! Choice of the CPUs that best-effort pods keep.

use kernel_text::CpuSet;
use placement::{Topology, narrow};

/// The `cpus` CPUs of `pool` that best-effort pods keep. Siblings of exclusive CPUs are given up
/// first; the rest is chosen as Koordinator does ([`narrow`]).
#[must_use]
pub fn keep_cpus(topology: &Topology, pool: &CpuSet, exclusive: &CpuSet, cpus: usize) -> CpuSet {
    let cores: Vec<u32> =
        exclusive.iter().filter_map(|cpu| topology.cpu(cpu)).map(|cpu| cpu.core).collect();
    let is_sibling = |cpu: &u32| topology.cpu(*cpu).is_some_and(|cpu| cores.contains(&cpu.core));
    let (siblings, others): (Vec<u32>, Vec<u32>) = pool.iter().partition(is_sibling);
    let set = |cpus: &[u32]| cpus.iter().copied().collect::<CpuSet>();
    let kept = narrow(topology, &set(&others), cpus);
    let missing = cpus.saturating_sub(others.len());
    kept.iter().chain(narrow(topology, &set(&siblings), missing).iter()).collect()
}
