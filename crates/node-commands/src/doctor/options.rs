//! Inputs of the examination.

use std::path::PathBuf;

use pod_sources::PodConfig;
use state_dir::ActingMode;

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
    pub best_effort: ActingMode,
    /// CPU limits that burst.
    pub burst: ActingMode,
    /// State file of the kubelet's CPU manager.
    pub cpu_manager_state: PathBuf,
    /// Directory for the state of pinning.
    pub state_dir: PathBuf,
    /// Namespaces whose pods may be agents that place containers.
    pub owner_namespaces: Vec<String>,
    /// The runtime's NRI socket, if the agent is to connect to it.
    pub nri_socket: Option<PathBuf>,
}
