//! The stage of `cpuwarden demo`: a node for the agent on any machine, removed afterwards.
//!
//! [`Stage`] is real cgroups with real workloads, or a recorded node; [`Kubelet`] names its pods;
//! [`Table`] shows what the agent measured. Only `real` and `tree` create cgroups,
//! all below the demo's own root cgroup; all other parts only read. The image has none of this.

mod kubelet;
mod plan;
mod real;
mod replay;
mod stage;
mod table;
mod tree;
mod workload;

pub use kubelet::Kubelet;
pub use stage::{Paths, Stage};
pub use table::{LEGEND, Table};
pub use workload::{Workload, run as run_workload};
