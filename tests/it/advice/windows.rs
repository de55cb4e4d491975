//! Windows of one second at sample intervals that do not divide a second.

use crate::support::{Agent, Qos, RealTree, Workload, eventually};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0010";
const ID: &str = "8c7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

/// A thread limited to a fifth of a core: a window of any length shows a fifth.
#[test]
fn use_is_a_fifth_of_a_core_at_a_sample_interval_of_1500_ms() {
    let tree = RealTree::beside_others();
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    container.set_quota_usec(20_000, 100_000);
    let _spinner = container.spawn(&Workload::Spin { threads: 1 });
    let agent = Agent::on(&tree, &["--sample-interval", "1500ms", "--advice-after", "10s"]);
    let use_cores = || -> Option<f64> {
        let row = super::row_of(&agent, ID)?;
        row["cpu"]["requestCores"].as_f64()
    };
    eventually("the 95th percentile of use", || use_cores().is_some());
    let found = use_cores().unwrap();
    // The kernel's ticks may let the thread run a little longer; a percentile is at most 15 % too
    // high.
    assert!((0.18..=0.255).contains(&found), "{found} cores of a window's time");
}
