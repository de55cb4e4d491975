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

/// Split of `cpus` CPUs over the pools of LSR and LS pods, in proportion to the pools' sizes. Both
/// parts are 0 if both pools are empty, and neither exceeds its pool.
#[must_use]
pub fn split_pools(cpus: usize, lsr: usize, ls: usize) -> (usize, usize) {
    let Some(all) = lsr.checked_add(ls).filter(|&all| all > 0) else { return (0, 0) };
    let cpus = cpus.min(all);
    let from_lsr = cpus * lsr / all;
    let from_ls = (cpus - from_lsr).min(ls);
    (cpus - from_ls, from_ls)
}
