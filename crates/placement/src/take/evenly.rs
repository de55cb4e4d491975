//! DistributeEvenly: an even split over the NUMA nodes. Koordinator declares the strategy, but its accumulator treats
//! it as LeastAllocated; this does what the name says.

use crate::policy::{Bind, BindPolicy};

use super::free::Free;

impl Free<'_> {
    /// An even split, first over the nodes and cores that the exclusive policy prefers. Cores of different sizes may
    /// add up to what is required in another way only.
    pub(super) fn evenly(&self) -> Option<Vec<u32>> {
        self.unshunned().split().or_else(|| self.split()).or_else(|| self.packed(self.request.cpus))
    }

    /// The nodes with the fewest free CPUs first, so that what they lack falls to the others; ties by id.
    fn split(&self) -> Option<Vec<u32>> {
        let mut nodes: Vec<Self> = self.topology.nodes().values().map(|cpus| self.within(cpus)).collect();
        nodes.sort_by_key(Self::len);
        let mut cpus = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let share = node.share((self.request.cpus - cpus.len()) / (nodes.len() - at));
            if share > 0 {
                cpus.extend(node.packed(share)?);
            }
        }
        (cpus.len() == self.request.cpus).then_some(cpus)
    }

    /// What this node can give of `wanted`: whole cores only, where that is required.
    fn share(&self, wanted: usize) -> usize {
        let wanted = wanted.min(self.len());
        match self.request.bind {
            Bind { policy: BindPolicy::FullPcpus, required: true } => self.whole_up_to(wanted),
            Bind { .. } => wanted,
        }
    }
}
