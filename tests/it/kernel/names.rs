//! Names of containers that start while the agent runs.

use std::time::{Duration, Instant};

use crate::support::{
    Agent, Cgroup, Exposition, Kubelet, Qos, RealTree, Workload, eventually, pod_list, running_pod,
};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0003";
const ID: &str = "7a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

#[test]
fn a_container_is_shown_by_its_name_before_the_next_tick() {
    is_shown_before_the_next_tick(Listed::Late, Duration::ZERO);
}

#[test]
fn a_late_v1_hierarchy_is_named_before_the_next_tick() {
    is_shown_before_the_next_tick(Listed::Early, Duration::from_millis(300));
}

#[test]
fn a_container_listed_early_is_named_before_the_next_tick() {
    is_shown_before_the_next_tick(Listed::Early, Duration::ZERO);
}

/// Time at which the kubelet lists the container.
#[derive(Clone, Copy, PartialEq)]
enum Listed {
    Early,
    Late,
}

/// Whether a container appears by name before the next tick, if its cgroups are created with a
/// pause between hierarchies.
fn is_shown_before_the_next_tick(listed: Listed, pause: Duration) {
    let tree = RealTree::new();
    let pods = [running_pod(UID, "shop", "late", ID)];
    let kubelet = Kubelet::start(pod_list(if listed == Listed::Early { &pods } else { &[] }));
    let mut flags = kubelet.flags();
    // No second tick within the timeout of `eventually`.
    flags.extend([
        "--sample-interval=60s".to_owned(),
        format!("--kubepods={}", tree.kubepods().path().display()),
    ]);
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

/// Id of the next container of the same pod.
const RESTARTED: &str = "5c1e2aa0f3b94d0c8a7e6d5b4c3f2a1908172635445362718090a1b2c3d4e5f6";

/// Delay until the list contains the next container: the API server does not answer for a while.
const LATE: Duration = Duration::from_secs(9);

#[test]
fn a_restart_that_is_listed_late_loses_no_cpu_time() {
    let tree = RealTree::new();
    let listed = |id| [running_pod(UID, "shop", "late", id)];
    let kubelet = Kubelet::start(pod_list(&listed(ID)));
    let mut flags = kubelet.flags();
    flags.push(format!("--kubepods={}", tree.kubepods().path().display()));
    flags.push("--cadvisor-metrics".to_owned());
    let pod = tree.pod(Qos::Burstable, UID);
    let first = pod.child(ID);
    let agent = Agent::start(&flags);
    let usage = |container: &str| {
        let page = agent.metrics();
        let value = |mode| {
            let labels =
                [("namespace", "shop"), ("pod", "late"), ("container", container), ("mode", mode)];
            page.value("cpuwarden_container_cpu_usage_seconds_total", &labels)
        };
        Some(value("user")? + value("system")?)
    };
    eventually("the first container's name", || usage("main").is_some());
    first.remove();
    let second = pod.child(RESTARTED);
    let began = Instant::now();
    let spinner = second.spawn(&Workload::Spin { threads: 1 });
    eventually("the spinner under its pod", || {
        usage(RESTARTED).is_some_and(|seconds| seconds > 0.1)
    });
    // The first published value, or a later one.
    let shown = usage(RESTARTED).unwrap();
    assert_eq!(
        agent.metrics().value("cpuwarden_unmapped_cgroups", &[("kind", "container")]),
        Some(1.0)
    );
    eventually("the moment of the late list", || began.elapsed() >= LATE);
    let before = usage(RESTARTED).unwrap();
    assert!(before > 1.0, "{before} s of a spinner's nine");
    assert_eq!(usage("main"), Some(0.0), "the first container used nothing");
    kubelet.list(&listed(RESTARTED));
    eventually("the spinner's name", || usage("main").is_some_and(|seconds| seconds > 0.0));
    drop(spinner);
    let truth = || second.usage_ns() as f64 / 1e9;
    let exact = || {
        let page = Exposition::new(agent.get("/metrics/cadvisor").1);
        page.value("container_cpu_usage_seconds_total", &[("container", "main")])
    };
    eventually("the whole usage", || {
        exact().is_some_and(|seconds| (seconds - truth()).abs() < 0.01)
    });
    let cut = 2.0 * Cgroup::mode_unit_ns() as f64 / 1e9;
    // No second is missing in both series, and what grows in one does not grow in the other.
    eventually("all of both modes", || {
        let both = usage("main").unwrap() + usage(RESTARTED).unwrap();
        both > truth() - cut && both - shown < truth() + cut
    });
    assert!(usage(RESTARTED).unwrap() >= before, "the series under its ID stays for two minutes");
    assert_eq!(
        agent.metrics().value("cpuwarden_unmapped_cgroups", &[("kind", "container")]),
        Some(0.0)
    );
}
