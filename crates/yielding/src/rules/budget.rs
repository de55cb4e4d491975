//! koordlet's CPU budget of best-effort pods (`cpusuppress`), in cores: what remains of a share of
//! the node's capacity after everything else that runs. It follows utilization, not waits, and is
//! the fallback where waits are not traced.

/// Use of the node's CPUs over one interval, cores.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NodeUsage {
    /// CPUs of the node.
    pub capacity: f64,
    /// Everything that ran on the node.
    pub node: f64,
    /// All pods.
    pub pods: f64,
    /// Best-effort pods, part of `pods`.
    pub best_effort: f64,
    /// CPUs reserved for the host and the kubelet: the least that the system counts for.
    pub reserved: f64,
}

impl NodeUsage {
    /// Use of everything outside the pods, at least the reserved CPUs.
    fn system(&self) -> f64 {
        (self.node - self.pods).max(self.reserved).max(0.0)
    }

    fn other_pods(&self) -> f64 {
        (self.pods - self.best_effort).max(0.0)
    }
}

/// Budget of all best-effort pods, cores: `threshold` (a share of the capacity) less what other
/// pods and the system use, at least `least_share` of the capacity, never negative.
#[must_use]
pub fn budget_cores(usage: &NodeUsage, threshold: f64, least_share: f64) -> f64 {
    let capacity = finite(usage.capacity);
    let left = capacity * threshold - usage.other_pods() - usage.system();
    finite(left).max(capacity * least_share).max(0.0)
}

/// NaN and infinities become 0, so that no arithmetic on readings can give CPUs away.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// Largest growth in one tick, as a share of the node's capacity.
pub(crate) const GROWTH: f64 = 0.1;

/// Number of CPUs for a budget: rounded up, at least `floor` and at most `node_cpus`. It shrinks at
/// once; it grows by at most a tenth of the node's CPUs, rounded up, over `current`.
#[must_use]
pub fn grown_cpus(budget: f64, current: usize, node_cpus: usize, floor: usize) -> usize {
    let wanted = finite(budget).max(0.0).ceil() as usize;
    let wanted = wanted.max(floor).min(node_cpus);
    let step = ((node_cpus as f64) * GROWTH).ceil() as usize;
    wanted.min(current.saturating_add(step)).max(floor.min(node_cpus))
}

/// Smallest quota that koordlet writes, microseconds per period.
const MIN_QUOTA_USEC: u64 = 2_000;

/// Smallest change of a quota that is written, as a share of the capacity.
const MIN_CHANGE: f64 = 0.01;

/// Quota for a budget, microseconds per period of `period_usec`; `None` if the change is too small
/// to write. Growth over `current` is limited to a tenth of the capacity; `current` is `None` if
/// there is no quota yet.
#[must_use]
pub fn grown_quota_usec(
    budget: f64,
    current: Option<u64>,
    capacity: f64,
    period_usec: u64,
) -> Option<u64> {
    let usec = |cores: f64| (finite(cores).max(0.0) * period_usec as f64).round() as u64;
    let wanted = usec(budget).max(MIN_QUOTA_USEC);
    let Some(current) = current else { return Some(wanted) };
    if wanted.abs_diff(current) < usec(capacity * MIN_CHANGE) {
        return None;
    }
    Some(wanted.min(current.saturating_add(usec(capacity * GROWTH))).max(MIN_QUOTA_USEC))
}
