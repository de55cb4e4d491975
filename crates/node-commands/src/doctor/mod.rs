//! The examination of a node: what the agent would find there with these options, with remedies.
//!
//! Uses the agent's own code (the pods service, a few ticks of the sampler), but opens no port and
//! writes nothing.

mod acting;
mod examination;
mod injection;
mod node;
mod owners;
mod pinning;
mod pods;

use std::path::PathBuf;

use api::DoctorReport;
use api::doctor::Finding;
use cgroupfs::Hierarchy;
use kubepods::model::Pod;
use pod_sources::PodConfig;
use sampler::SamplerConfig;

use examination::Examination;

pub use acting::Acting;

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
    /// Best-effort pods that yield.
    pub best_effort: Acting,
    /// CPU limits that burst.
    pub burst: Acting,
    /// State file of the kubelet's CPU manager.
    pub cpu_manager_state: PathBuf,
    /// Directory for the state of pinning.
    pub state_dir: PathBuf,
    /// Namespaces whose pods may be agents that place containers.
    pub owner_namespaces: Vec<String>,
    /// The runtime's NRI socket, if the agent is to connect to it.
    pub nri_socket: Option<PathBuf>,
}

/// Examines the node, with the sampler that `sampler` configures for its hierarchy, and the
/// variables that `would_inject` gives for the containers of a pod. Must be called inside a tokio
/// runtime.
///
/// # Errors
/// Invalid options of the pod sources, or no sampler. Problems of the node are findings, not
/// errors.
pub async fn examine(
    options: Options,
    sampler: impl FnOnce(Hierarchy) -> SamplerConfig,
    would_inject: impl Fn(&Pod) -> Vec<String>,
) -> anyhow::Result<DoctorReport> {
    let examination = Examination::make(options, sampler).await?;
    let checks: [fn(&Examination) -> Vec<Finding>; 5] =
        [node::findings, pods::findings, owners::findings, pinning::findings, acting::findings];
    let mut findings: Vec<_> = checks.iter().flat_map(|check| check(&examination)).collect();
    if let Some(socket) = &examination.options.nri_socket {
        findings.push(injection::socket(socket));
        let pods = examination.index.pods().iter();
        findings.push(injection::variables(pods.flat_map(|pod| would_inject(pod)).collect()));
    }
    Ok(DoctorReport::new(findings))
}
