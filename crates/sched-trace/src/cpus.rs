//! The CPUs that have entries in the tables, and which of them share a core.

use std::path::Path;

use cgroupfs::node::{cpu_list, cpu_places};

use crate::error::StartError;

/// The machine's CPUs, from `/sys/devices/system/cpu`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cpus {
    /// Highest possible CPU number of this machine, plus one.
    pub(crate) count: u32,
    /// Number of online CPUs.
    pub(crate) online: u32,
    /// Pairs (CPU, sibling) for each online CPU of a core with exactly two threads.
    pub(crate) siblings: Vec<(u32, u32)>,
}

impl Cpus {
    pub(crate) fn read(sys_root: &Path) -> Result<Self, StartError> {
        let possible = cpu_list(sys_root, "possible").map_err(StartError::Cpus)?;
        let online = cpu_list(sys_root, "online").map_err(StartError::Cpus)?;
        let cores: Vec<_> =
            cpu_places(sys_root, &online).iter().map(|place| (place.cpu, place.core)).collect();
        Ok(Self {
            count: possible.iter().last().map_or(1, |last| last + 1),
            online: online.len() as u32,
            siblings: siblings(&cores),
        })
    }
}

/// Pairs of CPUs on the same core. Excludes cores of more than two threads, which have no unique
/// sibling.
fn siblings(cores: &[(u32, Option<u32>)]) -> Vec<(u32, u32)> {
    let others = |cpu: u32, core: u32| {
        let of_core =
            cores.iter().filter(move |(_, other)| *other == Some(core)).map(|(cpu, _)| *cpu);
        of_core.filter(move |other| *other != cpu)
    };
    let mut pairs = Vec::new();
    for &(cpu, core) in cores {
        let Some(core) = core else { continue };
        let mut others = others(cpu, core);
        if let (Some(other), None) = (others.next(), others.next()) {
            pairs.push((cpu, other));
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cores_of_two_threads_have_siblings() {
        let cores = [
            (0, Some(0)),
            (1, Some(1)),
            (2, Some(0)),
            (3, None),
            (4, Some(4)),
            (5, Some(4)),
            (6, Some(4)),
        ];
        assert_eq!(siblings(&cores), [(0, 2), (2, 0)]);
        assert_eq!(siblings(&[]), []);
    }
}
