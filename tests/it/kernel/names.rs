//! The names of containers that start while the agent runs.

use std::time::Duration;

use crate::support::{Agent, Kubelet, Qos, RealTree, eventually, pod_list, running_pod};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0003";
const ID: &str = "7a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

#[test]
fn a_container_is_shown_by_its_name_before_the_next_tick() {
    is_shown_before_the_next_tick(Listed::Late, Duration::ZERO);
}

#[test]
fn so_is_one_whose_cgroup_comes_later_in_one_hierarchy_than_in_the_other() {
    is_shown_before_the_next_tick(Listed::Early, Duration::from_millis(300));
}

#[test]
fn so_is_one_that_the_kubelet_listed_before_its_cgroup_came() {
    is_shown_before_the_next_tick(Listed::Early, Duration::ZERO);
}

/// When the kubelet lists the container.
#[derive(Clone, Copy, PartialEq)]
enum Listed {
    Early,
    Late,
}

/// A container whose cgroup comes with a pause between hierarchies.
fn is_shown_before_the_next_tick(listed: Listed, pause: Duration) {
    let tree = RealTree::new();
    let pods = [running_pod(UID, "shop", "late", ID)];
    let kubelet = Kubelet::start(pod_list(if listed == Listed::Early { &pods } else { &[] }));
    let mut flags = kubelet.flags();
    // No second tick within what `eventually` waits.
    flags.extend(["--sample-interval=60s".to_owned(), format!("--kubepods={}", tree.kubepods().path().display())]);
    let agent = Agent::start(&flags);
    eventually("readiness", || agent.get("/readyz").0 == 200);
    if listed == Listed::Late {
        kubelet.list(&pods);
    }
    tree.pod(Qos::Burstable, UID).slow_child(ID, pause);
    let labels = [("namespace", "shop"), ("pod", "late"), ("container", "main"), ("mode", "user")];
    let usage = || agent.metrics().value("cpuwarden_container_cpu_usage_seconds_total", &labels);
    eventually("the name", || usage().is_some());
    assert_eq!(agent.metrics().ticks(), 1);
}
