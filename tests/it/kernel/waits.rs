//! Waits between pods on the page of the real binary.

use std::process::Command;

use crate::support::{
    Agent, Cgroup, Exposition, Qos, RealTree, Running, Workload, binary, eventually,
};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0005";
const RIVAL_UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0006";
const ID: &str = "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";
const RIVAL_ID: &str = "9a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";
const WAIT_SECONDS: &str = "cpuwarden_container_cpu_wait_seconds_total";
const INTERFERENCE_SECONDS: &str = "cpuwarden_interference_wait_seconds_total";
const TRACE: &str = "sched_trace";
const COUNTERS: &str = "bpf_counters";

fn waited(page: &Exposition, cause: &str) -> f64 {
    page.value(WAIT_SECONDS, &[("container", ID), ("cause", cause)]).unwrap_or(0.0)
}

/// Value and reason of a feature.
fn feature(page: &Exposition, name: &str) -> (f64, String) {
    let found = page
        .with_prefix("cpuwarden_feature_enabled")
        .find(|sample| sample.label("feature") == name);
    let found = found.unwrap_or_else(|| panic!("no {name:?} on {}", page.text));
    (found.value, found.label("reason").to_owned())
}

#[test]
fn a_rival_on_the_same_cpu_is_named_and_a_quota_is_not_a_rival() {
    let tree = RealTree::new();
    let (victim, rival) = (
        tree.pod(Qos::Burstable, UID).child(ID),
        tree.pod(Qos::Burstable, RIVAL_UID).child(RIVAL_ID),
    );
    for cgroup in [&victim, &rival] {
        cgroup.write("cpuset", "cpuset.cpus", "0");
    }
    // The budget is not tested here: in an emulated machine a switch costs a hundred times as much.
    let options = ["--sched-trace=on", "--sched-trace-budget=1", "--sample-interval=500ms"];
    let agent = Agent::on(&tree, &options);
    agent.after_ticks(1);
    let spinners = [&victim, &rival].map(|cgroup| cgroup.spawn(&Workload::Spin { threads: 1 }));
    eventually("two seconds of the neighbor's", || waited(&agent.metrics(), "neighbor") > 2.0);
    drop(spinners);
    let page = agent.after_ticks(4);
    for name in [TRACE, COUNTERS] {
        assert_eq!(feature(&page, name), (1.0, String::new()), "{name}");
    }
    let (neighbor, throttled) = (waited(&page, "neighbor"), waited(&page, "throttled"));
    assert!(neighbor > 2.0 && throttled == 0.0, "neighbor {neighbor} s, throttled {throttled} s");
    assert_pair(&page, neighbor);
    assert_histogram(&page, neighbor);
    assert!(page.value("cpuwarden_bpf_run_seconds_total", &[]) > Some(0.0));

    // The same container alone, at its quota.
    victim.set_quota_usec(20_000, 100_000);
    let spinner = victim.spawn(&Workload::Spin { threads: 1 });
    eventually("two seconds of throttling", || waited(&agent.metrics(), "throttled") > 2.0);
    drop(spinner);
    let page = agent.after_ticks(4);
    let (more, throttled) = (waited(&page, "neighbor") - neighbor, waited(&page, "throttled"));
    assert!(more < throttled / 50.0, "neighbor {more} s, throttled {throttled} s");
    let stalls = page
        .value("cpuwarden_container_throttle_stall_seconds_count", &[("container", ID)])
        .unwrap();
    assert!(stalls >= 20.0, "{stalls} stalls");
}

#[test]
fn contention_pressure_is_near_one_for_rivals_and_near_zero_for_a_quota() {
    let tree = RealTree::new();
    let (victim, rival) = (
        tree.pod(Qos::Burstable, UID).child(ID),
        tree.pod(Qos::Guaranteed, RIVAL_UID).child(RIVAL_ID),
    );
    for cgroup in [&victim, &rival] {
        cgroup.write("cpuset", "cpuset.cpus", "0");
    }
    let spinners = [&victim, &rival].map(spin);
    let agent = Agent::on(&tree, &["--sched-trace=on", "--sched-trace-budget=1"]);
    eventually("half a second of waits", || waited(&agent.metrics(), "neighbor") > 0.5);
    // The lower bound needs the cpusets, which are read every ten seconds.
    eventually("a lower bound", || contention(&agent.metrics()).0 > 0.0);
    let measured = over_seconds(&agent, 8.0);
    drop(spinners);
    assert!(measured.lower > 0.85, "one of two spinners always waits: {measured:?}");
    // A quarter of a second of a wait in progress may be missing, at either end.
    let late = 2.0 * 0.25 / 8.0;
    assert!((measured.lower - late..=1.1).contains(&measured.upper), "{measured:?}");

    // The same container alone, at its quota.
    victim.set_quota_usec(20_000, 100_000);
    let spinner = spin(&victim);
    eventually("a second of throttling", || waited(&agent.metrics(), "throttled") > 1.0);
    let measured = over_seconds(&agent, 8.0);
    let psi = psi_share(&agent);
    drop(spinner);
    // Host processes on its CPU make it wait too.
    let contention = measured.upper - measured.others;
    assert!(contention < 0.1, "throttling is not contention: {measured:?}");
    let page = agent.after_ticks(4);
    let (throttled, kernel) = (waited(&page, "throttled"), victim.throttled_ns() as f64 / 1e9);
    assert!(
        (throttled - kernel).abs() < kernel / 10.0,
        "one thread that waits for its quota: {throttled} s, by the kernel {kernel} s; {measured:?}"
    );
    if let Some(psi) = psi {
        assert!(psi > 0.4, "PSI counts throttling: {psi}, {measured:?}");
    }
}

#[test]
fn the_program_of_the_counters_runs_with_and_without_the_trace() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    container.set_quota_usec(20_000, 100_000);
    let _spinner = spin(&container);
    let agent = Agent::on(&tree, &["--sched-trace=off", "--bpf-counters=on"]);
    let in_use = [("feature", COUNTERS), ("reason", "")];
    eventually("counters of the program", || {
        agent.metrics().value("cpuwarden_feature_enabled", &in_use) == Some(1.0)
    });
    assert_eq!(feature(&agent.metrics(), TRACE), (0.0, "off: --sched-trace=off".to_owned()));
    drop(agent);
    let options = ["--sched-trace=on", "--sched-trace-budget=1", "--bpf-counters=off"];
    let page = Agent::on(&tree, &options).after_ticks(1);
    assert_eq!(feature(&page, TRACE), (1.0, String::new()));
    assert_eq!(feature(&page, COUNTERS), (0.0, "off: --bpf-counters=off".to_owned()));
}

/// As a container may create them (KEP-5474): more than the program's table has records.
#[test]
fn ten_thousand_cgroups_below_a_container_keep_the_program_in_use() {
    let tree = RealTree::new();
    tree.pod(Qos::Burstable, RIVAL_UID).child(RIVAL_ID).create_many(10_000);
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    let _spinner = spin(&container);
    let agent = Agent::on(&tree, &["--sched-trace=off", "--bpf-counters=on"]);
    eventually("the program", || !agent.metrics().with(&[("feature", COUNTERS)]).is_empty());
    assert_eq!(feature(&agent.after_ticks(2), COUNTERS), (1.0, String::new()));
}

/// A process of one thread that runs without a pause.
fn spin(cgroup: &Cgroup) -> Running {
    let mut shell = cgroup.command("sh");
    shell.args(["-c", "echo spinning; while :; do :; done"]);
    Running::start(shell, |line| line == "spinning").0
}

/// With the lowest weight the victim runs for a slice at most, and then waits for minutes.
#[test]
fn a_wait_in_progress_is_in_the_metrics_before_it_ends() {
    let tree = RealTree::new();
    let pods = [UID, RIVAL_UID].map(|uid| tree.pod(Qos::Burstable, uid));
    pods[0].set_weight(2);
    pods[1].set_highest_weight();
    let cgroups = [pods[0].child(ID), pods[1].child(RIVAL_ID)];
    cgroups.iter().for_each(|cgroup| cgroup.write("cpuset", "cpuset.cpus", "0"));
    let agent = Agent::on(&tree, &["--sched-trace=on", "--sched-trace-budget=1"]);
    agent.after_ticks(1);
    let [victim, rival] = cgroups.each_ref().map(spin);
    let found = |page: &Exposition| waited(page, "neighbor") + waited(page, "system");
    // The kernel counts a wait when it ends: while this is the same, it is one wait.
    let mut counted = schedstat(&victim);
    let (mut first, mut last) = (agent.metrics(), agent.metrics());
    eventually("eight ticks in one wait", || {
        last = agent.metrics();
        let before = std::mem::replace(&mut counted, schedstat(&victim));
        if counted != before {
            first = agent.metrics();
        }
        counted == before && last.ticks() >= first.ticks() + 8
    });
    let (waited, elapsed) = (found(&last) - found(&first), taken(&last) - taken(&first));
    assert!(waited > elapsed - 2.0, "{waited} of {elapsed} s, the kernel: {counted:?}");

    // What was counted in progress is not counted again.
    drop(rival);
    eventually("the end of the wait", || schedstat(&victim)[1] > counted[1]);
    let (in_the_end, [_, delay]) = (found(&agent.after_ticks(2)), schedstat(&victim));
    let delay = delay as f64 / 1e9;
    assert!((found(&last)..delay * 1.05).contains(&in_the_end), "{in_the_end} s, kernel {delay} s");
}

/// CPU time, and the time in waits that have ended, nanoseconds.
fn schedstat(process: &Running) -> [u64; 2] {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", process.pid())).unwrap();
    let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
    [(); 2].map(|()| numbers.next().unwrap())
}

/// Shares of the time over some seconds.
#[derive(Debug)]
struct Shares {
    lower: f64,
    upper: f64,
    /// Of the victim's waits for neighbors and for the host.
    others: f64,
}

/// PSI of the victim's cgroup, as a share of the time between two reads of the agent. cgroup v1 has
/// none.
fn psi_share(agent: &Agent) -> Option<f64> {
    let pressure = |page: &Exposition| {
        let name = "cpuwarden_container_pressure_cpu_waiting_seconds_total";
        page.value(name, &[("container", ID)])
    };
    let mut last = agent.metrics();
    pressure(&last)?;
    // The file is read every ten seconds, and the task waits all the time: each read has a new
    // value.
    let [first, second] = [(); 2].map(|()| {
        let before = pressure(&last);
        eventually("the next read of the pressure", || {
            last = agent.metrics();
            pressure(&last) != before
        });
        (pressure(&last).unwrap(), taken(&last))
    });
    Some((second.0 - first.0) / (second.1 - first.1))
}

/// Time of the last tick, seconds since the epoch.
fn taken(page: &Exposition) -> f64 {
    page.value("cpuwarden_last_sample_timestamp_seconds", &[]).unwrap()
}

/// Bounds of the node's contention, seconds.
fn contention(page: &Exposition) -> (f64, f64) {
    let bound = |bound| {
        let value = page.value("cpuwarden_node_contention_seconds_total", &[("bound", bound)]);
        value.unwrap_or(0.0)
    };
    (bound("lower"), bound("upper"))
}

fn over_seconds(agent: &Agent, seconds: f64) -> Shares {
    let first = agent.metrics();
    let is_over = |page: &Exposition| taken(page) - taken(&first) >= seconds;
    eventually("the next seconds", || is_over(&agent.metrics()));
    let last = agent.metrics();
    let elapsed = taken(&last) - taken(&first);
    let (before, after) = (contention(&first), contention(&last));
    let share = |cause| (waited(&last, cause) - waited(&first, cause)) / elapsed;
    Shares {
        lower: (after.0 - before.0) / elapsed,
        upper: (after.1 - before.1) / elapsed,
        others: share("neighbor") + share("system"),
    }
}

/// The pod has one container and one neighbor. Waits from before the pair got a series are in
/// `other`.
#[track_caller]
fn assert_pair(page: &Exposition, neighbor: f64) {
    let by_rival =
        page.value(INTERFERENCE_SECONDS, &[("pod", UID), ("aggressor_pod", RIVAL_UID)]).unwrap();
    assert!((neighbor * 0.9..=neighbor + 1e-6).contains(&by_rival), "{by_rival} s of {neighbor} s");
}

#[track_caller]
fn assert_histogram(page: &Exposition, neighbor: f64) {
    let latency = "cpuwarden_container_runqueue_latency_seconds";
    let of_victim =
        |suffix: &str| page.value(&format!("{latency}_{suffix}"), &[("container", ID)]).unwrap();
    let (waits, sum) = (of_victim("count"), of_victim("sum"));
    assert!(waits > 10.0 && sum >= neighbor, "{waits} waits, {sum} s");
    let buckets = page.with_prefix("cpuwarden_container_runqueue_latency_seconds_bucket");
    assert_eq!(buckets.filter(|sample| sample.label("container") == ID).count(), 10);
}

#[test]
fn without_the_trace_no_wait_is_exported_and_the_reason_is() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    let agent = Agent::on(&tree, &["--sched-trace=off"]);
    let _spinner = container.spawn(&Workload::Spin { threads: 2 });
    let page = agent.after_ticks(4);
    for name in [TRACE, COUNTERS] {
        assert_eq!(feature(&page, name), (0.0, "off: --sched-trace=off".to_owned()), "{name}");
    }
    for prefix in [
        WAIT_SECONDS,
        INTERFERENCE_SECONDS,
        "cpuwarden_bpf_",
        "cpuwarden_container_runqueue_latency",
    ] {
        assert_eq!(page.with_prefix(prefix).count(), 0, "{prefix}");
    }
}

#[test]
fn trace_obstacles_disable_the_feature_or_fail_the_start() {
    let tree = RealTree::new();
    let sys = tempfile::tempdir().unwrap();
    let cpus = sys.path().join("devices/system/cpu");
    std::fs::create_dir_all(&cpus).unwrap();
    ["possible", "online"].iter().for_each(|name| std::fs::write(cpus.join(name), "0\n").unwrap());
    let sys_root = format!("--sys-root={}", sys.path().display());
    let agent = Agent::on(&tree, &["--sched-trace=auto", &sys_root]);
    // In an emulated node, the trace is refused some ticks after the first.
    eventually("the feature", || agent.metrics().text.contains(&format!("feature=\"{TRACE}\"")));
    let (enabled, reason) = feature(&agent.metrics(), TRACE);
    assert!(
        enabled == 0.0
            && reason.starts_with("no_btf: ")
            && reason.contains("CONFIG_DEBUG_INFO_BTF"),
        "{reason}"
    );
    let args = ["run", "--listen=127.0.0.1:0", "--pod-source=none", "--sched-trace=on", &sys_root];
    let output = Command::new(binary()).args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().unwrap();
    assert_eq!(output.status.code(), Some(69), "{errors}");
    assert!(last.contains("--sched-trace=on") && last.contains("CONFIG_DEBUG_INFO_BTF"), "{last}");
}
