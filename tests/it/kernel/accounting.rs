//! What outlives one cgroup, and what is read of threads.

use std::time::Duration;

use crate::support::{Agent, Exposition, Qos, RealTree, Workload, eventually};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0004";
const ID: &str = "7a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d9b";

fn usage(page: &Exposition) -> f64 {
    let name = "cpuwarden_container_cpu_usage_seconds_total";
    let mode = |mode| page.value(name, &[("container", ID), ("mode", mode)]).unwrap();
    mode("user") + mode("system")
}

#[test]
fn a_cgroup_made_anew_in_place_goes_on_in_the_same_series() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Burstable, UID);
    let agent = Agent::on(&tree, &["--sample-interval", "200ms"]);
    let first = pod.child(ID);
    let spinner = first.spawn(&Workload::Spin { threads: 1 });
    agent.after_ticks(5);
    drop(spinner);
    let before = usage(&agent.after_ticks(2));
    first.remove();
    let second = pod.child(ID);
    let fresh = usage(&agent.after_ticks(2));
    assert!(before > 0.1 && fresh >= before, "{before}, then {fresh}");
    let spinner = second.spawn(&Workload::Spin { threads: 1 });
    agent.after_ticks(5);
    drop(spinner);
    let page = agent.after_ticks(2);
    assert!(usage(&page) > fresh, "{} after {fresh}", usage(&page));
    // Once, and not one series a cgroup.
    assert_eq!(page.with(&[("container", ID)]).iter().filter(|sample| sample.name.ends_with("_info")).count(), 2);
}

#[test]
fn what_runs_after_a_rest_is_counted_as_the_kernel_counts_it() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Burstable, UID);
    // As the kubelet sets them: the pod's quota is the sum of its containers'.
    pod.set_quota_usec(40_000, 100_000);
    let containers = [0, 1].map(|number| pod.child(&format!("{number:064x}")));
    containers.iter().for_each(|container| container.set_quota_usec(20_000, 100_000));
    let agent = Agent::on(&tree, &["--sample-interval", "100ms"]);
    for round in 0..4 {
        // Longer than it takes until nothing in the pod is read any more but the pod's own usage.
        agent.after_ticks(20);
        let ran = &containers[round % 2];
        let before = ran.usage_ns();
        let mut command = ran.command("sh");
        command.args(["-c", "i=0; while [ $i -lt 60000 ]; do i=$((i + 1)); done"]);
        assert!(command.status().unwrap().success());
        assert!(ran.usage_ns() > before);
        // The period timer runs on for two periods.
        let page = agent.after_ticks(4);
        for (number, container) in containers.iter().enumerate() {
            let id = format!("{number:064x}");
            let value =
                |name: &str, label| page.value(&format!("cpuwarden_container_{name}"), &[("container", &id), label]);
            let usage = |mode| value("cpu_usage_seconds_total", ("mode", mode)).unwrap_or(0.0);
            let stat = container.cpu_stat();
            let (counted, kernel) = (usage("user") + usage("system"), container.usage_ns() as f64 / 1e9);
            assert!((counted - kernel).abs() < 2e-6, "{counted} s of {kernel} s");
            let all = ("container", id.as_str());
            assert_eq!(value("cfs_periods_total", all), Some(stat["nr_periods"] as f64), "round {round}");
            assert_eq!(value("cfs_throttled_periods_total", all), Some(stat["nr_throttled"] as f64), "round {round}");
        }
    }
}

#[test]
fn the_delay_of_every_thread_counts_and_throttling_does_not() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Burstable, UID);
    let container = pod.child(ID);
    // Four threads on one CPU wait for each other; nothing throttles them.
    container.write("cpuset", "cpuset.cpus", "0");
    let agent = Agent::on(&tree, &["--sample-interval", "100ms"]);
    let _spinners = container.spawn(&Workload::Spin { threads: 4 });
    let bound = |bound: &str| {
        let labels = [("container", ID), ("bound", bound)];
        agent.metrics().value("cpuwarden_container_contention_wait_seconds_total", &labels).unwrap_or(0.0)
    };
    // Each of four threads on one CPU waits three quarters of the time: three seconds a second.
    eventually("waiting of several threads", || bound("lower") > 20.0);
    assert!(bound("upper") >= bound("lower"));
    let page = agent.metrics();
    let threads = page.value("cpuwarden_container_threads", &[("container", ID)]).unwrap();
    let runnable = page.value("cpuwarden_container_runnable_threads", &[("container", ID)]).unwrap();
    assert!(threads >= 5.0 && (4.0..=threads).contains(&runnable), "{runnable} of {threads}");
}

#[test]
fn a_quota_alone_is_no_contention() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    container.set_quota_usec(20_000, 100_000);
    let agent = Agent::on(&tree, &["--sample-interval", "100ms"]);
    let _spinner = container.spawn(&Workload::Spin { threads: 1 });
    let value = |name: &str, label: (&str, &str)| agent.metrics().value(name, &[("container", ID), label]);
    let throttled = || value("cpuwarden_container_throttled_seconds_total", ("origin", "own")).unwrap_or(0.0);
    let upper = || value("cpuwarden_container_contention_wait_seconds_total", ("bound", "upper"));
    eventually("a second look at the thread", || upper().is_some() && throttled() > 12.0);
    // The machine may be busy besides; the thread's delay is mostly its quota's doing all the same.
    let (contention, denied) = (upper().unwrap(), throttled());
    assert!(contention < denied / 2.0, "{contention} s of contention beside {denied} s of throttling");
}

#[test]
fn a_storm_of_containers_leaves_nothing_behind() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::BestEffort, UID);
    let agent = Agent::on(&tree, &[]);
    let resources = |agent: &Agent| {
        let page = agent.after_ticks(2);
        let of = |prefix| page.with_prefix(prefix).filter(|sample| !sample.labels.is_empty()).count();
        // What is being read is open for a moment: the lowest of several counts is what is kept.
        let count = |_| {
            std::thread::sleep(Duration::from_millis(20));
            std::fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap().count()
        };
        let descriptors = (0..20).map(count).min();
        (descriptors, of("cpuwarden_container_"), of("cpuwarden_pod_cfs"))
    };
    let before = resources(&agent);
    let resident = |page: &Exposition| page.value("cpuwarden_process_resident_memory_bytes", &[]).unwrap();
    let mut halfway = 0.0;
    let (seconds, rate) = churn();
    for second in 0..seconds {
        let began = std::time::Instant::now();
        let storm = tree.pod(Qos::Burstable, &format!("{second:08x}-5f4b-4f60-9f2a-3d8c1d0c0004"));
        let made: Vec<_> = (0..rate).map(|at| storm.child(&format!("{:064x}", second * rate + at))).collect();
        made.iter().for_each(crate::support::Cgroup::remove);
        storm.remove();
        if second == seconds / 2 {
            halfway = resident(&agent.metrics());
        }
        std::thread::sleep(Duration::from_secs(1).saturating_sub(began.elapsed()));
    }
    assert_eq!(resources(&agent), before, "descriptors and series");
    let page = agent.metrics();
    let grown = resident(&page) - halfway;
    assert!(grown < 1024.0 * 1024.0, "{grown} bytes more than halfway");
    let errors = |reason| page.value("cpuwarden_read_errors_total", &[("reason", reason)]);
    assert_eq!((errors("io"), errors("parse")), (Some(0.0), Some(0.0)));
    let lateness = "cpuwarden_sample_lateness_seconds";
    let all = page.value(&format!("{lateness}_count"), &[]).unwrap();
    let timely = page.value(&format!("{lateness}_bucket"), &[("le", "0.05")]).unwrap();
    println!("{timely} of {all} ticks began within 50 ms of their time");
    drop(pod);
}

/// (seconds, containers a second). `CPUWARDEN_CHURN_SECONDS` shortens the storm, as on an emulated CPU.
fn churn() -> (u64, u64) {
    let seconds = std::env::var("CPUWARDEN_CHURN_SECONDS").map_or(180, |text| text.parse().unwrap());
    (seconds, 50)
}
