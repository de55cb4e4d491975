//! The real stage: the planned pods as real cgroups, each with a process.

use anyhow::{Context, bail};
use kernel_text::{CgroupVersion, WeightRule, request_shares};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::plan::{self, Limit, PERIOD_USEC, Pod};
use super::tree::Tree;
use super::workload::Process;

/// Cgroups and processes; both are removed on drop, processes first.
pub(super) struct RealNode {
    processes: Vec<Process>,
    tree: Tree,
}

impl RealNode {
    /// Creates the cgroups and starts the processes, which do nothing until [`RealNode::go`].
    ///
    /// # Errors
    /// The hierarchy lacks the cpu controller or is not writable.
    pub(super) fn build() -> anyhow::Result<Self> {
        let tree = Tree::new()?;
        // Other load on the machine must not influence throttling here; the whole plan takes less
        // than two cores.
        tree.create("kubepods")?;
        tree.top().try_set_highest_weight()?;
        let mut processes = Vec::new();
        for pod in plan::pods(last_cpu()?) {
            let process = start(&tree, &pod)
                .with_context(|| format!("pod {}/{}", pod.namespace, pod.name))?;
            processes.push(process);
        }
        Ok(Self { processes, tree })
    }

    /// Lets all processes work at once, so that the neighbors compete from the start.
    ///
    /// # Errors
    /// A process has ended.
    pub(super) fn go(&mut self) -> anyhow::Result<()> {
        self.processes
            .iter_mut()
            .try_for_each(|process| process.go().context("a workload exited during its start"))
    }

    /// One-line description of the stage.
    pub(super) fn headline(&self) -> String {
        let hierarchy = self.tree.hierarchy();
        let (version, place) = (hierarchy.version_name(), hierarchy.cpu.join(self.kubepods()));
        format!(
            "cpuwarden demo: real workloads in real cgroups (cgroup {version}) below {}",
            place.display()
        )
    }

    /// Path of the stage's kubepods, relative to the hierarchy.
    pub(super) fn kubepods(&self) -> String {
        self.tree.top().path().join("kubepods").display().to_string()
    }
}

/// Creates a pod's cgroups with its process, which does not start its work yet.
fn start(tree: &Tree, pod: &Pod) -> anyhow::Result<Process> {
    let container = tree.create(&format!("kubepods/{}", pod.container_path()))?;
    let parent = tree.top().existing_child(&format!("kubepods/{}", pod.pod_path()));
    for cgroup in [&parent, &container] {
        cgroup.try_set_weight(weight(pod.request_milli, tree.hierarchy().version))?;
    }
    match pod.limit {
        Limit::None => {}
        Limit::Container(milli) => container.try_set_quota_usec(quota_usec(milli), PERIOD_USEC)?,
        Limit::Pod(milli) => parent.try_set_quota_usec(quota_usec(milli), PERIOD_USEC)?,
    }
    let process = Process::spawn(pod.workload)?;
    container.try_add_process(process.pid()).context("cannot put the workload into its cgroup")?;
    if let Some(cpu) = pod.cpu {
        process.pin(cpu)?;
    }
    Ok(process)
}

fn quota_usec(limit_milli: u64) -> u64 {
    limit_milli * PERIOD_USEC / 1000
}

/// Converts a CPU request to shares, or to a weight on v2.
fn weight(request_milli: u64, version: CgroupVersion) -> u64 {
    let shares = request_shares(request_milli);
    match version {
        CgroupVersion::V1 => shares,
        CgroupVersion::V2 => WeightRule::default().weight(shares),
    }
}

/// The last CPU that this process may run on.
fn last_cpu() -> anyhow::Result<usize> {
    let allowed =
        sched_getaffinity(None).context("cannot read the CPU affinity of this process")?;
    match (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu)) {
        Some(cpu) => Ok(cpu),
        None => bail!("no CPU is allowed for this process"),
    }
}
