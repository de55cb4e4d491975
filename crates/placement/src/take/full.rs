//! FullPCPUs: whole cores of one NUMA node, else of one socket, else of as few sockets as possible.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::policy::ExclusivePolicy;

use super::free::{Free, FreeCore, Group, Level};

impl Free<'_> {
    /// Whole cores, and a part of one if the request needs it. Returns fewer CPUs than wanted only
    /// if the rest must come from partly used cores, as single threads.
    pub(super) fn full(&self, wanted: usize) -> Vec<u32> {
        let fit = |groups: Vec<Group<FreeCore>>| {
            groups.iter().find_map(|group| self.first_of(group, wanted))
        };
        // The socket pass has no filter: staying on one socket is more important than a preferred
        // exclusive policy.
        fit(self.whole_cores(Level::Node, true))
            .or_else(|| fit(self.whole_cores(Level::Node, false)))
            .or_else(|| fit(self.whole_cores(Level::Socket, false)))
            .unwrap_or_else(|| self.spill(wanted))
    }

    /// Completely free cores by node or socket; the groups are in the order of the strategy.
    fn whole_cores(&self, level: Level, filtered: bool) -> Vec<Group<FreeCore>> {
        // A filtered node does not count for its socket. A filtered core, which is not completely
        // free anyway, does.
        let cores =
            self.cores(filtered && self.request.exclusive.policy == ExclusivePolicy::NumaNodeLevel);
        let mut per_socket: BTreeMap<u32, usize> = BTreeMap::new();
        for core in &cores {
            *per_socket.entry(core.socket).or_default() += core.cpus.len();
        }
        let mut groups: BTreeMap<u32, Group<FreeCore>> = BTreeMap::new();
        let mut around: BTreeMap<u32, usize> = BTreeMap::new();
        for core in
            cores.into_iter().filter(|core| core.whole && !(filtered && self.shuns_core(core)))
        {
            let id = match level {
                Level::Node => core.node,
                Level::Socket => core.socket,
            };
            if level == Level::Node {
                around.entry(id).or_insert(per_socket[&core.socket]);
            }
            let group = groups.entry(id).or_insert_with(|| Group { members: Vec::new(), free: 0 });
            group.free += core.cpus.len();
            group.members.push(core);
        }
        for group in groups.values_mut() {
            group.members.sort_by_key(FreeCore::rank);
        }
        self.ordered(groups, &around)
    }

    /// The first CPUs of a group that has enough; whole cores only, if that is required.
    fn first_of(&self, group: &Group<FreeCore>, wanted: usize) -> Option<Vec<u32>> {
        if group.free < wanted {
            return None;
        }
        let (mut cpus, rest) = whole_first(group.members.clone(), wanted);
        if cpus.len() < wanted && self.request.bind.required {
            return exactly(&group.members, wanted);
        }
        let missing = wanted - cpus.len();
        cpus.extend(rest.into_iter().flat_map(|core| core.cpus).take(missing));
        Some(cpus)
    }

    /// Whole sockets, the largest first; then cores of the smallest remaining socket.
    fn spill(&self, wanted: usize) -> Vec<u32> {
        let mut sockets = self.whole_cores(Level::Socket, false);
        sockets.sort_by_key(|socket| Reverse(socket.free));
        let all: Vec<FreeCore> =
            sockets.iter().flat_map(|socket| socket.members.iter().cloned()).collect();
        let (mut cpus, mut remaining) = (Vec::new(), Vec::new());
        for socket in sockets {
            if cpus.len() + socket.free <= wanted {
                cpus.extend(socket.members.into_iter().flat_map(|core| core.cpus));
            } else {
                remaining.push(socket);
            }
        }
        remaining.sort_by_key(|socket| socket.free);
        for socket in remaining {
            cpus.extend(whole_first(socket.members, wanted - cpus.len()).0);
        }
        if cpus.len() < wanted && self.request.bind.required {
            return exactly(&all, wanted).unwrap_or_default();
        }
        cpus
    }

    /// The largest number of CPUs up to `wanted` that whole free cores add up to.
    pub(super) fn whole_up_to(&self, wanted: usize) -> usize {
        let cores: Vec<FreeCore> =
            self.cores(false).into_iter().filter(|core| core.whole).collect();
        (0..=wanted).rev().find(|&cpus| exactly(&cores, cpus).is_some()).unwrap_or(0)
    }
}

/// The first cores that fit, and the cores that are left over.
fn whole_first(cores: Vec<FreeCore>, wanted: usize) -> (Vec<u32>, Vec<FreeCore>) {
    let (mut cpus, mut rest) = (Vec::new(), Vec::new());
    for core in cores {
        if cpus.len() + core.cpus.len() <= wanted {
            cpus.extend(core.cpus);
        } else {
            rest.push(core);
        }
    }
    (cpus, rest)
}

/// Whole cores with exactly `wanted` CPUs. With cores of different sizes this is a subset-sum
/// problem, small enough to solve; earlier cores are preferred.
fn exactly(cores: &[FreeCore], wanted: usize) -> Option<Vec<u32>> {
    // Index: number of CPUs. Value: last core of one way to reach it.
    let mut reached: Vec<Option<usize>> = vec![None; wanted + 1];
    for (at, core) in cores.iter().enumerate() {
        for sum in (core.cpus.len()..=wanted).rev() {
            let below = sum - core.cpus.len();
            if reached[sum].is_none()
                && (below == 0 || reached[below].is_some_and(|last| last < at))
            {
                reached[sum] = Some(at);
            }
        }
    }
    let (mut cpus, mut left) = (Vec::new(), wanted);
    while left > 0 {
        let core = &cores[reached[left]?];
        cpus.extend(&core.cpus);
        left -= core.cpus.len();
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(sizes: &[usize]) -> Vec<FreeCore> {
        let core = |(id, &size): (u32, &usize)| FreeCore {
            id,
            node: 0,
            socket: 0,
            cpus: (0..size as u32).map(|thread| id * 10 + thread).collect(),
            holders: 0,
            whole: true,
        };
        (0..).zip(sizes).map(core).collect()
    }

    #[test]
    fn cores_of_different_sizes_add_up_where_they_can() {
        let sum = |sizes: &[usize], wanted| exactly(&cores(sizes), wanted).map(|cpus| cpus.len());
        assert_eq!(sum(&[4, 3, 3], 6), Some(6));
        assert_eq!(sum(&[2, 2, 1], 3), Some(3));
        assert_eq!(sum(&[2, 2, 2], 3), None);
        assert_eq!(sum(&[2, 2], 6), None);
        assert_eq!(sum(&[], 0), Some(0));
    }

    #[test]
    fn no_core_is_counted_twice() {
        let cpus = exactly(&cores(&[3, 2, 2]), 7).unwrap();
        let mut unique = cpus.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!((cpus.len(), unique.len()), (7, 7));
    }
}
