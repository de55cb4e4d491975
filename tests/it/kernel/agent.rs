//! The agent on real cgroups exposes the kernel's own values.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Agent, BURST_EVERY, Cgroup, Exposition, Qos, RealTree, Workload, eventually};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0002";
const ID: &str = "5a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";
const OTHER_ID: &str = "6a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";
const THROTTLED_SECONDS: &str = "cpuwarden_container_throttled_seconds_total";
/// Options of an agent for tests of counters and not of time.
const OFTEN: [&str; 1] = ["--sample-interval=200ms"];

/// Throttled time of a cgroup in nanoseconds; v2 counts microseconds.
fn throttled_ns(cgroup: &Cgroup) -> u64 {
    let stat = cgroup.cpu_stat();
    stat.get("throttled_time").copied().unwrap_or_else(|| stat["throttled_usec"] * 1000)
}

fn assert_counters_are_the_kernels(page: &Exposition, cgroup: &Cgroup, id: &str) {
    let stat = cgroup.cpu_stat();
    let count = |name| page.value(name, &[("container", id)]).map(|value| value as u64);
    assert_eq!(count("cpuwarden_container_cfs_periods_total"), Some(stat["nr_periods"]));
    assert_eq!(
        count("cpuwarden_container_cfs_throttled_periods_total"),
        Some(stat["nr_throttled"])
    );
    let own = page.nanoseconds(THROTTLED_SECONDS, &[("container", id), ("origin", "own")]);
    assert_eq!(own, Some(throttled_ns(cgroup)));
    assert_modes_are_of(page, id, cgroup.usage_ns(), 0);
}

/// CPU time that exiting threads may use after the kernel has reported their cgroup as empty, on an
/// emulated CPU: the agent reads the last values at that report.
const EXIT_NS: u64 = 1_000_000;

/// The modes sum to the usage, but for what the kernel cuts off each of the two, and for CPU time
/// that was charged after the last values were read.
fn assert_modes_are_of(page: &Exposition, id: &str, usage_ns: u64, later_ns: u64) {
    let name = "cpuwarden_container_cpu_usage_seconds_total";
    let mode = |mode| page.nanoseconds(name, &[("container", id), ("mode", mode)]).unwrap();
    let (user, system) = (mode("user"), mode("system"));
    let short = usage_ns.checked_sub(user + system);
    assert!(
        short.is_some_and(|ns| ns < 2 * Cgroup::mode_unit_ns() + later_ns),
        "{user} + {system} of {usage_ns}"
    );
}

#[test]
fn twenty_seconds_of_a_throttled_spinner_are_counted_exactly() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Burstable, UID);
    let agent = Agent::on(&tree, &[]);
    agent.after_ticks(1);
    // The agent sees it being created, so it counts all that the kernel does.
    let container = pod.child(ID);
    container.set_quota_usec(20_000, 100_000);
    let spinner = container.spawn(&Workload::Spin { threads: 1 });
    let running = agent.after_ticks(20);
    drop(spinner);
    let page = agent.after_ticks(2);
    assert_counters_are_the_kernels(&page, &container, ID);
    let throttled = page
        .value("cpuwarden_container_cfs_throttled_periods_total", &[("container", ID)])
        .unwrap();
    assert!(throttled > 100.0, "{throttled} of about 200 periods");
    let limit = running.value("cpuwarden_container_cpu_limit_cores", &[("container", ID)]);
    assert_eq!(limit, Some(0.2));
    // Only its own quota throttles it.
    assert_eq!(
        page.value(THROTTLED_SECONDS, &[("container", ID), ("origin", "ancestor")]).unwrap_or(0.0),
        0.0
    );
}

#[test]
fn a_quota_of_the_pod_shows_as_an_ancestors() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Guaranteed, UID);
    pod.set_quota_usec(20_000, 100_000);
    let (busy, idle) = (pod.child(ID), pod.child(OTHER_ID));
    let agent = Agent::on(&tree, &OFTEN);
    agent.after_ticks(1);
    let spinner = busy.spawn(&Workload::Spin { threads: 1 });
    eventually("throttled time", || throttled_ns(&pod) > 1_000_000_000);
    drop(spinner);
    let page = agent.after_ticks(2);
    let ancestor =
        page.nanoseconds(THROTTLED_SECONDS, &[("container", ID), ("origin", "ancestor")]);
    let truth = throttled_ns(&pod);
    assert_eq!(ancestor, Some(truth));
    assert_eq!(page.value(THROTTLED_SECONDS, &[("container", ID), ("origin", "own")]), None);
    assert_eq!(page.value("cpuwarden_container_cpu_limit_cores", &[("container", ID)]), Some(0.2));
    let own = page.nanoseconds("cpuwarden_pod_throttled_seconds_total", &[("pod", UID)]);
    assert_eq!(own, Some(truth));
    // Where the kernel reports throttling per cgroup (6.6), an idle neighbor in the pod was not
    // throttled.
    let local = idle.dir("cpu").join("cpu.stat.local").exists();
    let denied =
        page.nanoseconds(THROTTLED_SECONDS, &[("container", OTHER_ID), ("origin", "ancestor")]);
    assert_eq!(denied, Some(if local { 0 } else { truth }));
}

#[test]
fn a_quota_below_a_container_shows_as_a_childs() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    let agent = Agent::on(&tree, &OFTEN);
    agent.after_ticks(1);
    // As a container with writable cgroups may do (KEP-5474).
    let worker = container.child("workers").child("one");
    worker.set_quota_usec(20_000, 100_000);
    let _spinner = worker.spawn(&Workload::Spin { threads: 1 });
    let seen = |origin| {
        let labels = [("container", ID), ("origin", origin)];
        agent.metrics().nanoseconds(THROTTLED_SECONDS, &labels)
    };
    eventually("throttled time", || seen("child") > Some(300_000_000));
    let (child, truth) = (seen("child").unwrap(), throttled_ns(&worker));
    assert!(child <= truth, "{child} of {truth}");
    assert_eq!([seen("own"), seen("ancestor")], [None, None]);
}

#[test]
fn a_quota_above_kubepods_shows_as_an_ancestors() {
    let tree = RealTree::new();
    // Without its own quota: v1 rejects a quota above a smaller one of a child.
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    let agent = Agent::on(&tree, &OFTEN);
    agent.after_ticks(1);
    // After the agent's start: the change is detected at once.
    tree.above().set_quota_usec(10_000, 50_000);
    let spinner = container.spawn(&Workload::Spin { threads: 1 });
    eventually("throttled time", || throttled_ns(tree.above()) > 1_000_000_000);
    drop(spinner);
    let page = agent.after_ticks(2);
    let truth = throttled_ns(tree.above());
    let value =
        |name: &str| page.value(&format!("cpuwarden_container_{name}"), &[("container", ID)]);
    assert_eq!((value("cpu_limit_cores"), value("cfs_period_seconds")), (Some(0.2), Some(0.05)));
    let of = |origin| page.nanoseconds(THROTTLED_SECONDS, &[("container", ID), ("origin", origin)]);
    assert_eq!((of("own"), of("ancestor")), (None, Some(truth)));
}

#[test]
fn a_pod_removed_mid_run_costs_no_tick_and_leaves_no_series() {
    let tree = RealTree::new();
    let staying = tree.pod(Qos::Burstable, UID).child(ID);
    staying.set_quota_usec(50_000, 100_000);
    let going = tree.pod(Qos::BestEffort, "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0003");
    let gone = going.child(OTHER_ID);
    let agent = Agent::on(&tree, &["--sample-interval", "200ms"]);
    assert!(!agent.after_ticks(2).with(&[("container", OTHER_ID)]).is_empty());
    gone.remove();
    going.remove();
    let page = agent.after_ticks(2);
    assert!(
        page.with(&[("container", OTHER_ID)]).is_empty(),
        "the removed container is still exposed"
    );
    assert!(!page.with(&[("container", ID)]).is_empty(), "the other one is not");
    let errors = |reason| page.value("cpuwarden_read_errors_total", &[("reason", reason)]);
    assert_eq!((errors("io"), errors("parse")), (Some(0.0), Some(0.0)));
}

#[test]
fn a_container_is_in_the_next_tick_after_its_cgroup_appears() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Burstable, UID);
    let agent = Agent::on(&tree, &["--reconcile-interval", "1h"]);
    agent.after_ticks(1);
    let before = agent.metrics().ticks();
    let container = pod.child(ID);
    container.set_quota_usec(20_000, 100_000);
    let mut page = agent.metrics();
    eventually("the container", || {
        page = agent.metrics();
        !page.with(&[("container", ID)]).is_empty()
    });
    assert!(page.ticks() <= before + 1, "there, but {} ticks later", page.ticks() - before);
}

#[test]
fn a_container_that_exits_between_ticks_is_fully_counted() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Burstable, UID);
    let agent = Agent::on(&tree, &[]);
    agent.until_tick(1);
    let container = pod.child(ID);
    container.set_quota_usec(20_000, 100_000);
    let spinner = container.spawn(&Workload::Spin { threads: 1 });
    // It ends between two ticks, so its last values do not come from a tick.
    agent.after_ticks(1);
    let seen = container.usage_ns();
    eventually("CPU time after the tick", || container.usage_ns() > seen + 50_000_000);
    drop(spinner);
    let (usage, throttled) = remove_after_exit(&container);
    let page = agent.after_ticks(1);
    assert!(throttled > 0 && usage > 0);
    assert_modes_are_of(&page, ID, usage, EXIT_NS);
    let exposed = page.nanoseconds(THROTTLED_SECONDS, &[("container", ID), ("origin", "own")]);
    assert_eq!(exposed, Some(throttled));
    assert_eq!(
        page.value("cpuwarden_container_cpu_limit_cores", &[("container", ID)]),
        None,
        "a gauge of the dead"
    );
    pod.remove();
    assert!(agent.after_ticks(2).with(&[("container", ID)]).is_empty());
}

#[test]
fn a_container_that_lives_less_than_a_tick_is_fully_counted() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Burstable, UID);
    let agent = Agent::on(&tree, &["--sample-interval", "6s"]);
    let before = agent.until_tick(1).ticks();
    let container = pod.child(ID);
    let spinner = container.spawn(&Workload::Spin { threads: 1 });
    eventually("CPU time", || container.usage_ns() > 200_000_000);
    drop(spinner);
    let (usage, _) = remove_after_exit(&container);
    assert_eq!(agent.metrics().ticks(), before, "this machine is too slow: a tick came between");
    assert_modes_are_of(&agent.until_tick(before + 1), ID, usage, EXIT_NS);
}

/// Removes the cgroup of a container that has ended, as a runtime does some milliseconds after the
/// exit. Returns its CPU time and its throttled time.
fn remove_after_exit(container: &Cgroup) -> (u64, u64) {
    std::thread::sleep(Duration::from_millis(50));
    let counted = (container.usage_ns(), throttled_ns(container));
    container.remove();
    counted
}

#[test]
fn a_limit_and_a_weight_show_in_the_tick_after_they_are_set() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    let agent = Agent::on(&tree, &OFTEN);
    // More than five seconds: until then, each tick reads what may still be missing.
    agent.after_ticks(30);
    for step in 1..=4 {
        container.set_quota_usec(step * 10_000, 100_000);
        let weight = container.set_weight(step * 1000);
        let page = agent.after_ticks(1);
        let value =
            |name: &str| page.value(&format!("cpuwarden_container_{name}"), &[("container", ID)]);
        assert_eq!(value("cpu_limit_cores"), Some(step as f64 / 10.0));
        assert_eq!(value("cpu_weight"), Some(weight as f64));
    }
}

#[test]
fn a_burst_a_second_under_a_tight_quota_shows_in_the_windows() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    container.set_quota_usec(20_000, 100_000);
    let agent = Agent::on(&tree, &[]);
    let burst = Workload::Burst { threads: 1, cpu: Duration::from_millis(30), every: BURST_EVERY };
    let _running = container.spawn(&burst);
    let page = agent.after_ticks(8);
    let name = "cpuwarden_container_throttled_window_ratio";
    let windows = page.value(&format!("{name}_count"), &[("container", ID)]).unwrap();
    let below = page.value(&format!("{name}_bucket"), &[("container", ID), ("le", "0.1")]).unwrap();
    assert!(windows >= 5.0, "{windows} windows");
    assert!(below < windows / 2.0, "{below} of {windows} windows saw no stall");
}

#[test]
fn two_spinners_are_throttled_for_more_than_wall_time() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    let agent = Agent::on(&tree, &OFTEN);
    agent.after_ticks(1);
    container.set_quota_usec(10_000, 100_000);
    let began = Instant::now();
    let spinners = container.spawn(&Workload::Spin { threads: 2 });
    eventually("more throttled time than wall time", || {
        let lead = Duration::from_nanos(throttled_ns(&container)).checked_sub(began.elapsed());
        lead.is_some_and(|lead| lead > Duration::from_secs(1))
    });
    drop(spinners);
    let wall = began.elapsed();
    let page = agent.after_ticks(2);
    let throttled = page.value(THROTTLED_SECONDS, &[("container", ID), ("origin", "own")]).unwrap();
    assert_counters_are_the_kernels(&page, &container, ID);
    assert!(throttled > wall.as_secs_f64(), "{throttled} s in {wall:?}");
}

#[test]
fn probes_report_readiness_and_sigterm_stops_within_a_second() {
    let tree = RealTree::new();
    tree.pod(Qos::Burstable, UID).child(ID);
    let agent = Agent::on(&tree, &[]);
    agent.after_ticks(1);
    assert_eq!(agent.get("/healthz").0, 200);
    assert_eq!(agent.get("/readyz").0, 200);
    assert!(agent.log().contains("no pod source"), "{}", agent.log());
    let (status, took) = agent.signal(Signal::TERM);
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}
