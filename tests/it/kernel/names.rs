//! The names of containers that start while the agent runs.

use crate::support::{Agent, Kubelet, Qos, RealTree, eventually, pod_list, running_pod};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0003";
const ID: &str = "7a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

#[test]
fn a_container_is_shown_by_its_name_before_the_next_tick() {
    let tree = RealTree::new();
    let kubelet = Kubelet::start(pod_list(&[]));
    let mut flags = kubelet.flags();
    // No second tick within what `eventually` waits.
    flags.extend(["--sample-interval=60s".to_owned(), format!("--kubepods={}", tree.kubepods().path().display())]);
    let agent = Agent::start(&flags);
    eventually("readiness", || agent.get("/readyz").0 == 200);
    kubelet.list(&[running_pod(UID, "shop", "late", ID)]);
    tree.pod(Qos::Burstable, UID).child(ID);
    let labels = [("namespace", "shop"), ("pod", "late"), ("container", "main"), ("mode", "user")];
    let usage = || agent.metrics().value("cpuwarden_container_cpu_usage_seconds_total", &labels);
    eventually("the name", || usage().is_some());
    assert_eq!(agent.metrics().ticks(), 1);
}
