//! Use of the node's CPUs, and the budget of best-effort pods: koordlet's utilization rule, for
//! when waits are not traced.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::rules::{ContainerUsage, NodeUsage, budget_cores};
use cgroupfs::{Hierarchy, control};
use kernel_text::CgroupVersion;
use snapshot::{ContainerRow, NodeSnapshot};

/// Share of the node that everything together may use, as in koordlet.
const THRESHOLD: f64 = 0.65;

/// Budget of best-effort pods, cores.
pub(crate) fn budget(usage: &NodeUsage) -> f64 {
    budget_cores(usage, THRESHOLD, 0.0)
}

/// Use since the last reading.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// Use of the node; `None` if it was not measured.
    pub(crate) node: Option<NodeUsage>,
    /// Use of each best-effort pod by its cgroup, cores; empty if it was not measured.
    pub(crate) best_effort: HashMap<PathBuf, f64>,
}

/// Numbers of the node's CPUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) cpus: f64,
    /// CPUs reserved for the host.
    pub(crate) reserved: f64,
}

/// Turns counters into the use per tick.
#[derive(Debug, Default)]
pub(crate) struct UsageMeter {
    containers: ContainerUsage,
    /// Time and CPU time of the node at the last reading, nanoseconds.
    last: Option<(Instant, Option<u64>)>,
}

impl UsageMeter {
    /// Use since the last snapshot; unknown for the first one and for a repeated one. The sampler
    /// may have a longer interval than the passes.
    pub(crate) fn read(
        &mut self,
        hierarchy: &Hierarchy,
        snapshot: &NodeSnapshot,
        node: Node,
        is_best_effort: impl Fn(&ContainerRow) -> bool,
    ) -> Usage {
        let mut usage = Usage::default();
        let Some(now) = snapshot.read_at else { return usage };
        if self.last.is_some_and(|(then, _)| then == now) {
            return usage;
        }
        let node_ns = node_ns(hierarchy);
        let containers = self.containers.read(&snapshot.containers);
        let before = self.last.replace((now, node_ns));
        let elapsed = before.and_then(|(then, _)| now.checked_duration_since(then));
        let Some(elapsed) = elapsed.filter(|time| !time.is_zero()) else { return usage };
        let cores = |used_ns: u64| used_ns as f64 / elapsed.as_nanos() as f64;
        let (mut pods, mut best_effort) = (0, 0);
        for (row, used_ns) in containers {
            pods += used_ns;
            if !is_best_effort(row) {
                continue;
            }
            best_effort += used_ns;
            if let Some(pod) = pod_cgroup(row) {
                *usage.best_effort.entry(pod).or_default() += cores(used_ns);
            }
        }
        let used = node_ns.zip(before.and_then(|(_, before)| before));
        usage.node = used.map(|(now, before)| {
            let used = cores(now.saturating_sub(before));
            NodeUsage {
                capacity: node.cpus,
                node: used,
                // A container that was found late brings CPU time from before this interval along.
                pods: cores(pods).min(used),
                best_effort: cores(best_effort).min(used),
                reserved: node.reserved,
            }
        });
        usage
    }
}

/// The cgroup of a container's pod.
fn pod_cgroup(row: &ContainerRow) -> Option<PathBuf> {
    Some(Path::new(row.cgroup.as_deref()?).parent()?.to_owned())
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::time::Duration;

    use snapshot::ContainerIdentity;

    use super::*;
    use crate::testing::hierarchy;

    fn row(pod: &str, usage_ms: u64) -> ContainerRow {
        let identity = ContainerIdentity {
            labels: pod.into(),
            pod: pod.to_owned(),
            ..ContainerIdentity::default()
        };
        ContainerRow {
            identity: Arc::new(identity),
            usage_ns: Some(usage_ms * 1_000_000),
            ..ContainerRow::default()
        }
    }

    /// The use of a node of 10 CPUs at each second, from the CPU time of the node and its rows.
    fn uses(seconds: Vec<(u64, Vec<ContainerRow>)>) -> Vec<Option<NodeUsage>> {
        let seconds = seconds.into_iter().enumerate();
        uses_at(seconds.map(|(second, (node, rows))| (second as u64, node, rows)).collect())
    }

    /// As [`uses`], with the second of the snapshot of each pass.
    fn uses_at(passes: Vec<(u64, u64, Vec<ContainerRow>)>) -> Vec<Option<NodeUsage>> {
        let dir = tempfile::tempdir().unwrap();
        let hierarchy = hierarchy(CgroupVersion::V2, dir.path());
        let (mut meter, start) = (UsageMeter::default(), Instant::now());
        let read = |(second, node_ms, containers): (u64, u64, Vec<ContainerRow>)| {
            let stat = format!("usage_usec {}\n", node_ms * 1000);
            fs::write(dir.path().join("cpu.stat"), stat).unwrap();
            let read_at = Some(start + Duration::from_secs(second));
            let snapshot = NodeSnapshot { read_at, containers, ..NodeSnapshot::default() };
            let node = Node { cpus: 10.0, reserved: 0.0 };
            let is_best_effort = |row: &ContainerRow| row.identity.pod.starts_with("be");
            meter.read(&hierarchy, &snapshot, node, is_best_effort).node
        };
        passes.into_iter().map(read).collect()
    }

    #[test]
    fn passes_that_repeat_a_snapshot_leave_the_measurement_alone() {
        let rows = |used| vec![row("cart", used)];
        let use_of = uses_at(vec![
            (0, 0, rows(0)),
            (0, 4_000, rows(0)),
            (0, 8_000, rows(0)),
            (3, 12_000, rows(9_000)),
            (3, 16_000, rows(9_000)),
        ]);
        let used = use_of[3].unwrap();
        assert_eq!((used.node, used.pods), (4.0, 3.0), "of three seconds");
        assert_eq!([use_of[1], use_of[2], use_of[4]], [None; 3]);
    }

    #[test]
    fn a_pod_that_ends_leaves_the_budget_of_the_others() {
        let use_of = uses(vec![
            (100_000, vec![row("be-done", 90_000), row("be-next", 1_000), row("cart", 2_000)]),
            (103_000, vec![row("be-next", 2_000), row("cart", 4_000)]),
        ]);
        let used = use_of[1].unwrap();
        assert_eq!((used.node, used.pods, used.best_effort), (3.0, 3.0, 1.0));
        assert!((budget(&used) - 4.5).abs() < 1e-9, "6.5 - 2 of cart: {used:?}");
    }

    #[test]
    fn a_container_that_is_found_late_uses_at_most_the_node() {
        let use_of = uses(vec![
            (0, vec![row("cart", 0)]),
            (3_000, vec![row("cart", 1_000), row("be", 50_000)]),
        ]);
        let used = use_of[1].unwrap();
        assert_eq!((used.node, used.pods, used.best_effort), (3.0, 3.0, 3.0));
        assert_eq!(use_of[0], None);
    }
}
