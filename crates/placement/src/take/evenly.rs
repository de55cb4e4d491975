//! DistributeEvenly: an even split over the NUMA nodes. Koordinator declares the strategy but
//! treats it as LeastAllocated; this implements the name.

use crate::policy::{Bind, BindPolicy};

use super::free::Free;

impl Free<'_> {
    /// An even split, first over the nodes and cores that the exclusive policy prefers. If cores of
    /// different sizes allow no even split, falls back to another placement.
    pub(super) fn evenly(&self) -> Option<Vec<u32>> {
        self.unshunned().split().or_else(|| self.split()).or_else(|| self.packed(self.request.cpus))
    }

    /// Splits over the nodes, those with the fewest free CPUs first, so that the others make up for
    /// them; ties by id.
    fn split(&self) -> Option<Vec<u32>> {
        let mut nodes: Vec<Self> =
            self.topology.nodes().values().map(|cpus| self.within(cpus)).collect();
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

    /// The part of `wanted` that this node can give: whole cores only, if that is required.
    fn share(&self, wanted: usize) -> usize {
        let wanted = wanted.min(self.len());
        match self.request.bind {
            Bind { policy: BindPolicy::FullPcpus, required: true } => self.whole_up_to(wanted),
            Bind { .. } => wanted,
        }
    }
}
