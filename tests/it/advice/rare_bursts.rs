//! Bursts less frequent than the length of a usage trace: the agent must not call a limit exact if
//! the kernel throttles at it.

use std::time::Duration;

use serde_json::Value;

use crate::support::{Agent, Cgroup, Qos, RealTree, Running, Workload, eventually};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0011";
const ID: &str = "8d7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

/// Starts bursts of 1 ms every 10 ms, and of 300 ms every 7 s.
fn start(cgroup: &Cgroup) -> [Running; 2] {
    let burst = |cpu_ms, every_ms| {
        let (cpu, every) = (Duration::from_millis(cpu_ms), Duration::from_millis(every_ms));
        cgroup.spawn(&Workload::Burst { threads: 1, cpu, every })
    };
    [burst(1, 10), burst(300, 7_000)]
}

#[test]
fn a_limit_is_a_lower_bound_while_bursts_are_rarer_than_a_trace() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Burstable, UID);
    let (container, limited) = (pod.child(ID), pod.child("limited"));
    container.set_quota_usec(400_000, 100_000);
    limited.set_quota_usec(30_000, 100_000);
    let _running = (start(&container), start(&limited));
    let agent = Agent::on(&tree, &["--advice-after", "24s"]);
    let advised = || -> Option<Value> {
        let row = super::row_of(&agent, ID)?;
        row["cpu"]["limit"].is_object().then(|| row["cpu"]["limit"].clone())
    };
    eventually("a limit", || advised().is_some());
    let found = advised().unwrap();
    let stat = limited.cpu_stat();
    let share = stat["nr_throttled"] as f64 / stat["nr_periods"] as f64;
    println!("advised {found}; at 0.3 cores the kernel throttled {share} of the periods");
    assert!(share > 0.02, "{share}: no load to be measured by");
    assert!(found["isLowerBound"] == true || found["cores"].as_f64().unwrap() >= 1.0, "{found}");
}
