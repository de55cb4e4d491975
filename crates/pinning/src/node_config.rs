//! Cgroups and files of the node, for the passes and the drain.

use std::path::PathBuf;

use cgroupfs::Hierarchy;

/// Cgroups and files of the node.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Cgroup mounts.
    pub hierarchy: Hierarchy,
    /// Root cgroups of the kubelet below the mount; if empty, the agent searches for them.
    pub kubepods: Vec<String>,
    /// The node's `/proc`.
    pub proc_root: PathBuf,
    /// The node's `/sys`.
    pub sys_root: PathBuf,
    /// Directory of the checkpoint, the lock and the drain request.
    pub state_dir: PathBuf,
    /// Path of the kubelet's `cpu_manager_state`.
    pub cpu_manager_state: PathBuf,
}
