//! The stage of the demo: real cgroups if they can be created, else a recorded node.

use std::path::PathBuf;

use anyhow::bail;

use crate::real::RealNode;
use crate::replay::Replay;

/// The node that the agent runs on.
pub struct Stage(StageKind);

enum StageKind {
    /// Real cgroups of this kernel with workloads.
    Real(RealNode),
    /// A recorded node, and the reason why real cgroups failed.
    Replay(Replay, String),
}

/// Directories of the node; `None` is this machine's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths {
    /// Mount point of the cgroup hierarchies.
    pub cgroup_root: Option<PathBuf>,
    /// The node's /proc.
    pub proc_root: Option<PathBuf>,
    /// The node's /sys.
    pub sys_root: Option<PathBuf>,
    /// The kubelet's root cgroup below the hierarchy; `None` lets the agent find it.
    pub kubepods: Option<String>,
}

impl Stage {
    /// Builds the real node, or unpacks the recorded one if that fails.
    ///
    /// # Errors
    /// The recording cannot be unpacked.
    pub fn set() -> anyhow::Result<Self> {
        match build() {
            Ok(node) => Ok(Self(StageKind::Real(node))),
            Err(why) => Ok(Self(StageKind::Replay(Replay::unpack()?, format!("{why:#}")))),
        }
    }

    /// One-line description of the stage.
    pub fn headline(&self) -> String {
        match &self.0 {
            StageKind::Real(node) => node.headline(),
            StageKind::Replay(node, why) => format!("{} (no real cgroups: {why})", node.headline()),
        }
    }

    /// Name of the node.
    pub fn node_name(&self) -> &'static str {
        match &self.0 {
            StageKind::Real(_) => crate::plan::NODE,
            StageKind::Replay(..) => crate::replay::NODE,
        }
    }

    /// The kubelet's response to `/pods`.
    pub fn pod_list(&self) -> Vec<u8> {
        match &self.0 {
            StageKind::Real(_) => crate::plan::pod_list(),
            StageKind::Replay(node, _) => node.pod_list(),
        }
    }

    /// Whether the cgroups are real.
    pub fn is_real(&self) -> bool {
        matches!(self.0, StageKind::Real(_))
    }

    /// Directories of the node.
    pub fn paths(&self) -> Paths {
        match &self.0 {
            StageKind::Real(node) => Paths { kubepods: Some(node.kubepods()), ..Paths::default() },
            StageKind::Replay(node, _) => node.paths(),
        }
    }

    /// Advances a recording after the sampler's sample number `tick`. Real cgroups advance on their
    /// own.
    pub fn step(&self, tick: u64) {
        if let StageKind::Replay(node, _) = &self.0 {
            node.advance(tick);
        }
    }
}

fn build() -> anyhow::Result<RealNode> {
    if !rustix::process::geteuid().is_root() {
        bail!("not root");
    }
    RealNode::build()
}
