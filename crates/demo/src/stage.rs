//! The stage of the demo: real cgroups with workloads.

use anyhow::bail;

use crate::plan;
use crate::real::RealNode;

/// The node that the agent runs on.
pub struct Stage(RealNode);

impl Stage {
    /// Builds the node. Its pods are idle until [`Stage::go`].
    ///
    /// # Errors
    /// This process is not root, or the hierarchy lacks the cpu controller or is not writable.
    pub fn build() -> anyhow::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("not root");
        }
        RealNode::build().map(Self)
    }

    /// Lets the pods work.
    ///
    /// # Errors
    /// A workload has ended.
    pub fn go(&mut self) -> anyhow::Result<()> {
        self.0.go()
    }

    /// One-line description of the stage.
    pub fn headline(&self) -> String {
        self.0.headline()
    }

    /// Name of the node.
    pub fn node_name(&self) -> &'static str {
        plan::NODE
    }

    /// The kubelet's response to `/pods`.
    pub fn pod_list(&self) -> Vec<u8> {
        plan::pod_list()
    }

    /// The kubelet's root cgroup below the hierarchy.
    pub fn kubepods(&self) -> String {
        self.0.kubepods()
    }
}
