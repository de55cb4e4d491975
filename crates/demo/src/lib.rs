//! `cpuwarden demo`, without the agent that it runs: a node on any machine, removed afterwards.
//!
//! [`Stage`] is real cgroups with real workloads; [`Kubelet`] names its pods; [`DemoTable`] and
//! [`DemoView`] show what the agent measured; [`show_recorded`] plays a recording where the stage
//! cannot be built. Only `real` and `tree` create cgroups, all below the demo's own root cgroup;
//! all other parts only read. The image has none of this.

mod args;
mod kubelet;
mod plan;
mod real;
mod recorded;
mod slowed;
mod stage;
mod table;
mod tree;
mod view;
mod workload;

use std::time::Duration;

pub use self::kubelet::Kubelet;
pub use args::{DemoArgs, DemoOutput};
pub use recorded::show_recorded;
pub use stage::Stage;
pub use table::{DemoTable, follow};
pub use testkit::Workload;
pub use view::DemoView;
pub use workload::run as run_workload;

/// Returns after this time; never if there is none.
pub async fn end(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
