//! CFS bandwidth control of this kernel, on which the agent's own tests rely.

use std::time::{Duration, Instant};

use crate::support::{BURST_EVERY, Qos, RealTree, Workload, eventually};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0001";
const CONTAINER: &str = "4a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

#[test]
fn a_spinner_over_its_quota_is_throttled() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, UID).child(CONTAINER);
    container.set_quota_usec(20_000, 100_000);
    let spinner = container.spawn(&Workload::Spin { threads: 1 });
    eventually("three throttled periods", || container.cpu_stat()["nr_throttled"] >= 3);
    drop(spinner);
    let stat = container.cpu_stat();
    assert!(stat["nr_periods"] >= stat["nr_throttled"], "{stat:?}");
    // v1 counts in nanoseconds, v2 in microseconds.
    assert!(stat.get("throttled_usec").or(stat.get("throttled_time")) > Some(&0), "{stat:?}");
}

#[test]
fn a_burst_is_throttled_though_most_periods_never_come() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::BestEffort, UID).child(CONTAINER);
    container.set_quota_usec(20_000, 100_000);
    let burst = Workload::Burst { threads: 1, cpu: Duration::from_millis(30), every: BURST_EVERY };
    let _running = container.spawn(&burst);
    let (start, before) = (Instant::now(), container.cpu_stat());
    eventually("four throttled bursts", || {
        container.cpu_stat()["nr_throttled"] >= before["nr_throttled"] + 4
    });
    // The period timer stops while the cgroup idles.
    let periods = container.cpu_stat()["nr_periods"] - before["nr_periods"];
    assert!(
        Duration::from_millis(100 * periods) < start.elapsed(),
        "{periods} periods in {:?}",
        start.elapsed()
    );
}

#[test]
fn a_quota_on_the_pod_shows_on_the_pod_and_not_on_its_container() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Guaranteed, UID);
    pod.set_quota_usec(20_000, 100_000);
    let container = pod.child(CONTAINER);
    let _spinner = container.spawn(&Workload::Spin { threads: 1 });
    eventually("three throttled periods of the pod", || pod.cpu_stat()["nr_throttled"] >= 3);
    assert_eq!(container.cpu_stat().get("nr_throttled").copied().unwrap_or(0), 0);
}
