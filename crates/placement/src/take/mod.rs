//! The allocator: (topology, taken CPUs, request) → CPUs, or the reason for a failure.
//!
//! Pure and deterministic: ties break by id. CPUs that a *required* policy excludes are removed
//! first, so the passes below only order and prefer.

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

/// A request to the allocator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Number of CPUs.
    pub cpus: usize,
    /// Placement on cores.
    pub bind: Bind,
    /// Separation from other pods.
    pub exclusive: Exclusivity,
    /// Order in which NUMA nodes are filled.
    pub strategy: NumaStrategy,
    /// Restricts the result to these CPUs; `None` allows every online CPU.
    pub allowed: Option<CpuSet>,
    /// Maximum number of holders per CPU, this one included: Koordinator's maximum reference count.
    /// 1 means exclusive.
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

/// Reason why a request cannot be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// Too few CPUs are free.
    #[error("{wanted} CPUs requested, {free} free")]
    NotEnough {
        /// Number of requested CPUs.
        wanted: usize,
        /// Number of free and allowed CPUs.
        free: usize,
    },
    /// Enough CPUs are free, but too few in the shape of the required bind policy.
    #[error("{wanted} CPUs requested with required {policy}, {free} free for that policy")]
    Bind {
        /// Number of requested CPUs.
        wanted: usize,
        /// Number of free CPUs in the required shape.
        free: usize,
        /// The required policy.
        policy: BindPolicy,
    },
    /// Enough CPUs are free, but too few apart from other exclusive pods, as the required exclusive
    /// policy demands.
    #[error(
        "{wanted} CPUs requested with required {policy}, {free} free on cores without other pods"
    )]
    Exclusive {
        /// Number of requested CPUs.
        wanted: usize,
        /// Number of free CPUs without another exclusive pod on the core or node.
        free: usize,
        /// The required policy.
        policy: ExclusivePolicy,
    },
}

/// Takes exactly `request.cpus` CPUs.
///
/// # Errors
/// Too few CPUs are free, or too few in the shape of a required policy.
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
        return Err(TakeError::Exclusive {
            wanted,
            free: apart.len(),
            policy: request.exclusive.policy,
        });
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
    cpus.map(|cpus| cpus.into_iter().collect())
        .filter(|cpus| fits(topology, request, cpus))
        .ok_or(no_shape)
}

/// Whether a set has the requested size and, if required, the requested shape on cores.
#[must_use]
pub fn fits(topology: &Topology, request: &Request, cpus: &CpuSet) -> bool {
    let on_core = |threads: &CpuSet| threads.intersection(cpus).len();
    let shape = match request.bind {
        Bind { required: false, .. } => true,
        Bind { policy: BindPolicy::FullPcpus, .. } => topology
            .cores()
            .values()
            .all(|threads| on_core(threads) == 0 || threads.is_subset(cpus)),
        Bind { policy: BindPolicy::SpreadByPcpus, .. } => {
            topology.cores().values().all(|core| on_core(core) <= 1)
        }
    };
    shape && cpus.len() == request.cpus && cpus.is_subset(topology.online())
}

impl Free<'_> {
    /// The CPUs from the strategies that fill one node, then one socket, then spill over; `None` if
    /// a required shape fails.
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
