//! A service that its CPU limit throttles, before and after `--burst=enforce`. Needs root, writable
//! cgroups and Linux 5.14; takes 4 minutes.
//!
//! The service has a limit of 200m (20 ms per period) and uses an eighth of it: once in 1.03
//! seconds (not a multiple of the period) eight requests are due at the same time, each with 3.5 ms
//! of CPU time, answered by two threads. A request's latency counts from the time at which it was
//! due. In each round the requests meet the limit without burst until the agent sets one, and then
//! with it for a minute.
//!
//! Printed: p50 and p99 of the service, and the share of throttled periods, as the replay predicted
//! them and as the kernel counted them, before and after; and the ratios of each round. It fails if
//! the burst does not lower the kernel's share in each round.

#![allow(dead_code, unused_imports, reason = "the tests' support, of which this uses a part")]
#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

#[path = "support/load.rs"]
mod load;
#[path = "../tests/it/support/mod.rs"]
mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use load::{Latencies, Service};
use serde_json::{Value, json};
use support::{Agent, BURST_EVERY, Cgroup, Kubelet, Qos, RealTree, pod_list, running_pod};

const SERVICE: Service =
    Service { threads: 2, every: BURST_EVERY, group: 8, work: Duration::from_micros(3_500) };
const QUOTA_USEC: u64 = 20_000;
const PERIOD_USEC: u64 = 100_000;

const ROUNDS: usize = 2;
/// The first requests warm the service up.
const WARM_UP: Duration = Duration::from_secs(2);
/// History that the replay needs: `--advice-after`.
const BEFORE: Duration = Duration::from_secs(40);
const AFTER: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(180);

const POD: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0211";
const ID: &str = "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8650211";

/// Figures of the service without or with burst.
#[derive(Debug, Clone, Copy)]
struct Figures {
    latencies: Latencies,
    /// Share of throttled periods: replayed, and counted by the kernel.
    replayed: f64,
    counted: f64,
}

fn main() {
    load::run_role();
    println!(
        "| round | | p50 | p99 | throttled periods: replay | throttled periods: kernel |\n\
         |---|---|---|---|---|---|"
    );
    let rounds: Vec<_> = (1..=ROUNDS)
        .map(|round| {
            let (percent, figures) = measure();
            let names = ["no burst".to_owned(), format!("burst of {percent} %")];
            for (name, figures) in names.iter().zip(figures) {
                let Figures { latencies: Latencies { p50_ms, p99_ms, .. }, .. } = figures;
                let [replayed, counted] = [figures.replayed, figures.counted].map(|s| s * 100.0);
                println!(
                    "| {round} | {name} | {p50_ms:.0} ms | {p99_ms:.0} ms | {replayed:.1} % | {counted:.1} % |"
                );
            }
            figures
        })
        .collect();
    println!("\nwith burst / without, by round:");
    let of: [(&str, Figure); 3] = [
        ("p50", |figures| figures.latencies.p50_ms),
        ("p99", |figures| figures.latencies.p99_ms),
        ("throttled periods", |figures| figures.counted),
    ];
    for (name, value) in of {
        let ratios = rounds.iter().map(|[before, after]| value(after) / value(before));
        println!("  {name:20}{}", ratios.map(|ratio| format!("{ratio:6.2}")).collect::<String>());
    }
    for [before, after] in rounds {
        assert!(after.counted < before.counted, "the burst does not help: {before:?}, {after:?}");
    }
}

/// One of the figures.
type Figure = fn(&Figures) -> f64;

/// Percent of the burst, and the figures without and with it.
fn measure() -> (u64, [Figures; 2]) {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Burstable, POD);
    let container = pod.child(ID);
    for cgroup in [&pod, &container] {
        cgroup.set_quota_usec(QUOTA_USEC, PERIOD_USEC);
    }
    let mut listed = running_pod(POD, "test", "service", ID);
    listed["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "200m"}});
    let kubelet = Kubelet::start(pod_list(&[listed]));
    let state = tempfile::tempdir().unwrap();
    let latencies = state.path().join("latencies");
    let _running = SERVICE.start(&container, &latencies);
    let start = Instant::now();
    let agent = start_agent(&tree, &kubelet, state.path());
    std::thread::sleep(WARM_UP);
    let warm = periods(&container);
    while burst_usec(&container) == 0 {
        let reasons = || agent.metrics().text;
        assert!(start.elapsed() < TIMEOUT, "no burst:\n{}", reasons());
        std::thread::sleep(Duration::from_millis(100));
    }
    let (begins, first) = (start.elapsed(), periods(&container));
    std::thread::sleep(AFTER);
    let (ends, last) = (start.elapsed(), periods(&container));
    let raised = last_raise(&agent.log());
    let replayed = |field: &str| raised[field].as_f64().unwrap();
    let before = Figures {
        latencies: Latencies::read(&latencies, WARM_UP, begins),
        replayed: replayed("throttled_without"),
        counted: throttled_share(warm, first),
    };
    let after = Figures {
        // The last requests may not be answered yet.
        latencies: Latencies::read(&latencies, begins, ends - Duration::from_secs(1)),
        replayed: replayed("throttled_with"),
        counted: throttled_share(first, last),
    };
    (raised["percent"].as_u64().unwrap(), [before, after])
}

fn start_agent(tree: &RealTree, kubelet: &Kubelet, state: &Path) -> Agent {
    let own = [
        format!("--kubepods={}", tree.kubepods().path().display()),
        format!("--state-dir={}", state.display()),
        format!("--advice-after={}s", BEFORE.as_secs()),
        "--burst=enforce".to_owned(),
        "--sched-trace=off".to_owned(),
    ];
    let flags = [kubelet.flags(), own.to_vec()].concat();
    Agent::start_in(&tree.above().child("agent"), &flags)
}

/// Fields of the last log line about a raised burst.
fn last_raise(log: &str) -> Value {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut raised = lines.filter(|line| line["fields"]["message"] == "burst raised");
    raised.next_back().unwrap()["fields"].clone()
}

fn burst_usec(cgroup: &Cgroup) -> u64 {
    let is_v2 = cgroup.dir("cpu").join("cpu.max").exists();
    let file = if is_v2 { "cpu.max.burst" } else { "cpu.cfs_burst_us" };
    cgroup.read("cpu", file).trim().parse().unwrap()
}

/// Periods and throttled periods.
fn periods(cgroup: &Cgroup) -> [u64; 2] {
    let stat = cgroup.cpu_stat();
    [stat["nr_periods"], stat["nr_throttled"]]
}

fn throttled_share(from: [u64; 2], to: [u64; 2]) -> f64 {
    (to[1] - from[1]) as f64 / (to[0] - from[0]) as f64
}
