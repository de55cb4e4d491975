//! Windows of one second at sample intervals that do not divide a second.

use crate::support::{Agent, Qos, RealTree, Workload, eventually};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0010";
const ID: &str = "8c7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

/// A thread limited to half a core: a window of any length shows half a core.
#[test]
fn use_is_half_a_core_at_a_sample_interval_of_1500_ms() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    container.set_quota_usec(50_000, 100_000);
    let _spinner = container.spawn(&Workload::Spin { threads: 1 });
    let agent = Agent::on(&tree, &["--sample-interval", "1500ms", "--advice-after", "15s"]);
    let use_cores = || -> Option<f64> {
        let row = super::row_of(&agent, ID)?;
        row["cpu"]["requestCores"].as_f64()
    };
    eventually("the 95th percentile of use", || use_cores().is_some());
    let found = use_cores().unwrap();
    // The kernel's ticks may let the thread run a little longer; a percentile is at most 15 % too
    // high.
    assert!((0.45..=0.62).contains(&found), "{found} cores of a window's time");
}
