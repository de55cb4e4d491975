//! The examination of a node: what the agent would find there with these options, with remedies.
//!
//! Uses the agent's own code (the pods service, a few ticks of the sampler), but opens no port and
//! writes nothing.

mod examination;
mod finding;
mod node;
mod owners;
mod pinning;
mod pods;

use std::path::PathBuf;

use cgroupfs::Hierarchy;
use kubelet::PodConfig;
use sampler::SamplerConfig;

use examination::Examination;
use finding::Finding;

pub use finding::{Level, Report};

/// Options of the agent that the examination depends on.
#[derive(Debug, Clone)]
pub struct Options {
    /// Mount point of the cgroup hierarchies.
    pub cgroup_root: PathBuf,
    /// The node's /proc.
    pub proc_root: PathBuf,
    /// The node's /sys.
    pub sys_root: PathBuf,
    /// The kubelet's root cgroup below the hierarchy; `None` looks for it.
    pub kubepods: Option<String>,
    /// Sources of the node's pods.
    pub pods: PodConfig,
    /// Share of the node's CPUs that the trace may use; `None` if it is off.
    pub trace_budget: Option<f64>,
    /// Whether the agent is to write cpusets.
    pub enforces: bool,
    /// State file of the kubelet's CPU manager.
    pub cpu_manager_state: PathBuf,
    /// Directory for the state of pinning.
    pub state_dir: PathBuf,
    /// Namespaces whose pods may be agents that place containers.
    pub owner_namespaces: Vec<String>,
}

/// Examines the node, with the sampler that `sampler` configures for its hierarchy. Must be called
/// inside a tokio runtime.
///
/// # Errors
/// Invalid options of the pod sources, or no sampler. Problems of the node are findings, not
/// errors.
pub async fn examine(
    options: Options,
    sampler: impl FnOnce(Hierarchy) -> SamplerConfig,
) -> anyhow::Result<Report> {
    let examination = Examination::make(options, sampler).await?;
    let checks: [fn(&Examination) -> Vec<Finding>; 4] =
        [node::findings, pods::findings, owners::findings, pinning::findings];
    Ok(Report::new(checks.iter().flat_map(|check| check(&examination)).collect()))
}
