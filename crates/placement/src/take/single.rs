//! Requests that do not fit any single node or socket: single threads, close to the CPUs already
//! taken.
//!
//! The filter avoids CPUs next to those of *other* pods. Koordinator's filter also avoids the nodes
//! of the request itself, which would move the rest of a split NUMANodeLevel request to another
//! node. The global order here begins with the sockets in use.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use kernel_text::CpuSet;

use super::free::{Free, FreeCore, round_robin};

/// Scores that the global order compares, by node and by socket.
struct Scores {
    node_free: BTreeMap<u32, usize>,
    socket_free: BTreeMap<u32, usize>,
    socket_taken: BTreeMap<u32, usize>,
}

impl Free<'_> {
    /// Fills `cpus` up to `wanted` in the global order; without the filter if it leaves too few.
    pub(super) fn singles(&self, cpus: &mut Vec<u32>, wanted: usize) {
        for filtered in [true, false] {
            if cpus.len() < wanted {
                let taken: CpuSet = cpus.iter().copied().collect();
                let rest = self.within(&self.topology.online().difference(&taken));
                cpus.extend(
                    rest.global_order(filtered, &taken).into_iter().take(wanted - cpus.len()),
                );
            }
        }
    }

    fn global_order(&self, filtered: bool, taken: &CpuSet) -> Vec<u32> {
        let mut cores = self.cores(filtered);
        let mut scores = Scores {
            node_free: BTreeMap::new(),
            socket_free: BTreeMap::new(),
            socket_taken: BTreeMap::new(),
        };
        for core in &cores {
            *scores.node_free.entry(core.node).or_default() += core.cpus.len();
            *scores.socket_free.entry(core.socket).or_default() += core.cpus.len();
        }
        for cpu in taken.iter().filter_map(|cpu| self.topology.cpu(cpu)) {
            *scores.socket_taken.entry(cpu.socket).or_default() += 1;
        }
        cores.sort_by(|a, b| self.global_rank(&scores, a, b));
        round_robin(self.topology, cores.into_iter().flat_map(|core| core.cpus))
    }

    /// Compares CPUs already taken on the socket; free CPUs of the socket, then of the node, by
    /// strategy; fewest free CPUs in the core; then socket, holders and core.
    fn global_rank(&self, scores: &Scores, a: &FreeCore, b: &FreeCore) -> Ordering {
        let used =
            |core: &FreeCore| Reverse(scores.socket_taken.get(&core.socket).copied().unwrap_or(0));
        used(a)
            .cmp(&used(b))
            .then_with(|| {
                self.by_strategy(scores.socket_free[&a.socket], scores.socket_free[&b.socket])
            })
            .then_with(|| self.by_strategy(scores.node_free[&a.node], scores.node_free[&b.node]))
            .then_with(|| a.cpus.len().cmp(&b.cpus.len()))
            .then_with(|| (a.socket, a.holders, a.id).cmp(&(b.socket, b.holders, b.id)))
    }
}
