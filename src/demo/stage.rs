//! The stage of the demo: real cgroups if they can be created, else a recorded node.

use anyhow::bail;

use crate::config::Options;

use super::real::RealNode;
use super::replay::Replay;

/// The node that the agent runs on.
pub(super) enum Stage {
    /// Real cgroups of this kernel with workloads.
    Real(RealNode),
    /// A recorded node, and the reason why real cgroups failed.
    Replay(Replay, String),
}

impl Stage {
    /// Builds the real node, or unpacks the recorded one if that fails.
    ///
    /// # Errors
    /// The recording cannot be unpacked.
    pub(super) fn set() -> anyhow::Result<Self> {
        match build() {
            Ok(node) => Ok(Self::Real(node)),
            Err(why) => Ok(Self::Replay(Replay::unpack()?, format!("{why:#}"))),
        }
    }

    /// One-line description of the stage.
    pub(super) fn headline(&self) -> String {
        match self {
            Self::Real(node) => node.headline(),
            Self::Replay(node, why) => format!("{} (no real cgroups: {why})", node.headline()),
        }
    }

    pub(super) fn node_name(&self) -> &'static str {
        match self {
            Self::Real(_) => super::plan::NODE,
            Self::Replay(..) => super::replay::NODE,
        }
    }

    /// The kubelet's response to `/pods`.
    pub(super) fn pod_list(&self) -> Vec<u8> {
        match self {
            Self::Real(_) => super::plan::pod_list(),
            Self::Replay(node, _) => node.pod_list(),
        }
    }

    /// Options with the node's paths.
    pub(super) fn options(&self) -> Options {
        match self {
            Self::Real(node) => Options { kubepods: Some(node.kubepods()), ..Options::default() },
            Self::Replay(node, _) => node.options(),
        }
    }

    /// Advances a recording after the sampler's sample number `tick`. Real cgroups advance on their own.
    pub(super) fn step(&mut self, tick: u64) {
        if let Self::Replay(node, _) = self {
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
