//! What tests, benchmarks and the demo share: cgroups of the running kernel that are removed
//! afterwards, processes that load a CPU in them, and a source of pods without names.
//!
//! Functions panic with the place of the failure, because a test fails by a panic. Where the demo
//! needs the error, there is also a function whose name begins with `try_`.

mod cgroup;
pub mod load;
mod names;
mod process;
mod removal;
mod stage;
mod tree;
mod workload;

pub use cgroup::{Cgroup, try_hierarchy};
pub use names::NoNames;
pub use process::{READY, Running};
pub use removal::{OwnedCgroup, remove};
pub use stage::OnStage;
pub use tree::{Qos, RealTree, turn};
pub use workload::Workload;
