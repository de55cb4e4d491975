//! Use of the node's CPUs, and the budget of best-effort pods: koordlet's utilization rule, for when
//! waits are not traced.

use std::path::Path;
use std::time::Instant;

use cgroupfs::{Hierarchy, control};
use colocation::{NodeUsage, budget_cores};
use kernel_text::CgroupVersion;
use snapshot::NodeSnapshot;

/// Share of the node that everything together may use, as in koordlet.
const THRESHOLD: f64 = 0.65;

/// Counters at one moment, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    node: u64,
    pods: u64,
    best_effort: u64,
}

/// Budget of best-effort pods, cores.
pub(crate) fn budget(usage: &NodeUsage) -> f64 {
    budget_cores(usage, THRESHOLD, 0.0)
}

/// Turns counters into the use per tick.
#[derive(Debug, Default)]
pub(crate) struct UsageMeter {
    last: Option<(Instant, Counters)>,
}

impl UsageMeter {
    /// Use since the last reading; `None` for the first reading and if a counter is missing.
    pub(crate) fn read(
        &mut self,
        hierarchy: &Hierarchy,
        snapshot: &NodeSnapshot,
        capacity: usize,
        reserved: f64,
        is_best_effort: impl Fn(&str, &str) -> bool,
    ) -> Option<NodeUsage> {
        let now = snapshot.read_at?;
        let mut counters = Counters { node: node_ns(hierarchy)?, ..Counters::default() };
        for row in &snapshot.containers {
            let used = row.usage_ns.unwrap_or_default();
            counters.pods += used;
            if is_best_effort(&row.identity.namespace, &row.identity.pod) {
                counters.best_effort += used;
            }
        }
        let (then, last) = self.last.replace((now, counters))?;
        let elapsed = now.checked_duration_since(then).filter(|time| !time.is_zero())?;
        let cores =
            |now: u64, then: u64| now.saturating_sub(then) as f64 / elapsed.as_nanos() as f64;
        Some(NodeUsage {
            capacity: capacity as f64,
            node: cores(counters.node, last.node),
            pods: cores(counters.pods, last.pods),
            best_effort: cores(counters.best_effort, last.best_effort),
            reserved,
        })
    }
}

/// CPU time of everything on the node, nanoseconds, from the root cgroup.
fn node_ns(hierarchy: &Hierarchy) -> Option<u64> {
    let number = |path: &Path| control::read(path).ok()??.parse().ok();
    match hierarchy.version {
        CgroupVersion::V1 => number(&hierarchy.cpuacct.as_ref()?.join("cpuacct.usage")),
        CgroupVersion::V2 => {
            let text = control::read(&hierarchy.cpu.join("cpu.stat")).ok()??;
            let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
            usage.trim().parse::<u64>().ok().map(|usec| usec * 1000)
        }
    }
}
