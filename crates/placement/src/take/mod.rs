//! The allocator: (topology, what is taken, request) → CPUs, or why not.
//!
//! Pure and deterministic: ties break by id. What a *required* policy forbids is taken out of the free CPUs first, so
//! the passes below only order and prefer.

mod evenly;
mod free;
mod full;
mod single;
mod spread;
mod taken;

use kernel_text::CpuSet;

use crate::policy::{Bind, BindPolicy, ExclusivePolicy, Exclusivity, NumaStrategy};
use crate::topology::Topology;

use free::Free;
pub use taken::{Hold, Taken};

/// What is asked of the allocator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How many CPUs.
    pub cpus: usize,
    /// How they lie on cores.
    pub bind: Bind,
    /// What they are kept apart from.
    pub exclusive: Exclusivity,
    /// Which NUMA nodes are filled first.
    pub strategy: NumaStrategy,
    /// Only these; `None` is every online CPU.
    pub allowed: Option<CpuSet>,
    /// Holders that one CPU may have, this one included: Koordinator's maximum reference count. 1 is exclusive.
    pub max_holders: u32,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            cpus: 0,
            bind: Bind::default(),
            exclusive: Exclusivity::default(),
            strategy: NumaStrategy::default(),
            allowed: None,
            max_holders: 1,
        }
    }
}

/// Why a request cannot be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// Too few CPUs are free.
    #[error("{wanted} CPUs wanted, {free} free")]
    NotEnough {
        /// CPUs wanted.
        wanted: usize,
        /// CPUs free and allowed.
        free: usize,
    },
    /// Enough are free, but too few in the shape that the required bind policy asks for.
    #[error("{wanted} CPUs wanted as required {policy}, {free} free in that shape")]
    Bind {
        /// CPUs wanted.
        wanted: usize,
        /// CPUs free in the required shape.
        free: usize,
        /// The policy.
        policy: BindPolicy,
    },
    /// Enough are free, but too few away from other exclusive pods, as the required exclusive policy asks for.
    #[error("{wanted} CPUs wanted with required {policy}, {free} free of foreign neighbours")]
    Exclusive {
        /// CPUs wanted.
        wanted: usize,
        /// CPUs free and without a foreign sibling or node.
        free: usize,
        /// The policy.
        policy: ExclusivePolicy,
    },
}

/// Takes `request.cpus` CPUs; exactly as many, or none and the reason.
///
/// # Errors
/// Too few CPUs are free, or too few in the shape that a required policy asks for.
pub fn take(topology: &Topology, taken: &Taken, request: &Request) -> Result<CpuSet, TakeError> {
    let wanted = request.cpus;
    if wanted == 0 {
        return Ok(CpuSet::new());
    }
    let open = Free::new(topology, taken, request);
    if open.len() < wanted {
        return Err(TakeError::NotEnough { wanted, free: open.len() });
    }
    let apart = open.without_foreign();
    if apart.len() < wanted {
        return Err(TakeError::Exclusive { wanted, free: apart.len(), policy: request.exclusive.policy });
    }
    let shaped = apart.in_required_shape();
    let no_shape = TakeError::Bind { wanted, free: shaped.len(), policy: request.bind.policy };
    if shaped.len() < wanted {
        return Err(no_shape);
    }
    let cpus = match request.strategy {
        NumaStrategy::DistributeEvenly => shaped.evenly(),
        NumaStrategy::MostAllocated | NumaStrategy::LeastAllocated => shaped.packed(wanted),
    };
    cpus.map(|cpus| cpus.into_iter().collect()).filter(|cpus| fits(topology, request, cpus)).ok_or(no_shape)
}

/// Does a set have the size and, where it is required, the shape on cores that the request asks for?
#[must_use]
pub fn fits(topology: &Topology, request: &Request, cpus: &CpuSet) -> bool {
    let on_core = |threads: &CpuSet| threads.intersection(cpus).len();
    let shape = match request.bind {
        Bind { required: false, .. } => true,
        Bind { policy: BindPolicy::FullPcpus, .. } => {
            topology.cores().values().all(|threads| on_core(threads) == 0 || threads.is_subset(cpus))
        }
        Bind { policy: BindPolicy::SpreadByPcpus, .. } => topology.cores().values().all(|core| on_core(core) <= 1),
    };
    shape && cpus.len() == request.cpus && cpus.is_subset(topology.online())
}

impl Free<'_> {
    /// The CPUs by the strategies that fill one node, then one socket, then spill; `None` when a required shape fails.
    fn packed(&self, wanted: usize) -> Option<Vec<u32>> {
        let full = self.request.bind.policy == BindPolicy::FullPcpus;
        let mut cpus = Vec::new();
        if full || self.topology.single_threaded() {
            cpus = self.full(wanted);
        }
        if !full && cpus.is_empty() {
            cpus = self.spread(wanted);
        }
        self.singles(&mut cpus, wanted);
        (cpus.len() == wanted).then_some(cpus)
    }
}
