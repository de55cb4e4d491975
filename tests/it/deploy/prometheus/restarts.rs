//! What a reader of Prometheus concludes about containers while the agent restarts.

use std::time::{SystemTime, UNIX_EPOCH};

use super::server::{Pace, Prometheus};
use crate::support::http::free_address;
use crate::support::{Agent, Cgroup, Qos, RealTree, Running, Workload, eventually};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0011";
const ID: &str = "7a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8653d11";

/// A container that is busy below a quota.
struct Container {
    cgroup: Cgroup,
    spinner: Running,
}

impl Container {
    fn start(pod: &Cgroup) -> Self {
        let cgroup = pod.child(ID);
        cgroup.set_quota_usec(20_000, 100_000);
        let spinner = cgroup.spawn(&Workload::Spin { threads: 2 });
        Self { cgroup, spinner }
    }

    /// Ends it; returns what it has counted.
    fn end(self) -> [f64; 3] {
        let Self { cgroup, spinner } = self;
        drop(spinner);
        let counted = counted(&cgroup);
        cgroup.remove();
        counted
    }
}

/// CPU time in seconds, periods, and throttled periods.
fn counted(cgroup: &Cgroup) -> [f64; 3] {
    let stat = cgroup.cpu_stat();
    let usage = cgroup.usage_ns() as f64 / 1e9;
    [usage, stat["nr_periods"] as f64, stat["nr_throttled"] as f64]
}

#[test]
fn ten_restarts_of_the_agent_never_look_like_growth() {
    let tree = RealTree::new();
    let pod = tree.pod(Qos::Burstable, UID);
    let mut container = Container::start(&pod);
    let address = free_address();
    let configuration = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs: [{{job_name: cpuwarden, honor_labels: true, static_configs: [{{targets: [\"{address}\"]}}]}}]"
    );
    let prometheus = Prometheus::configured(&configuration, Pace { window: "10s", hold: "10s" });
    let kubepods = tree.kubepods().path().to_str().unwrap().to_owned();
    let options = [
        "--kubepods",
        &kubepods,
        "--pod-source=none",
        "--sched-trace=off",
        "--cpu-budget=1000",
        "--sample-interval=100ms",
    ];
    // Enough to be noticed if it counts again.
    eventually("ten periods", || container.cgroup.cpu_stat()["nr_periods"] >= 10);
    let mut truth = counted(&container.cgroup).map(|counted| -counted);
    for _ in 0..10 {
        let agent = Agent::start_at(address, &options);
        agent.after_ticks(2);
        await_scrape(&prometheus);
        // The series goes on with the next run, so the agent's total is above the kernel's.
        add(&mut truth, container.end());
        container = Container::start(&pod);
        agent.after_ticks(2);
        await_scrape(&prometheus);
    }
    add(&mut truth, counted(&container.cgroup));
    let increase = |series: &str| {
        let expression = format!("sum(increase({series}{{container=\"{ID}\"}}[5m]))");
        prometheus.samples(&expression)[0].1
    };
    let told = [
        increase("cpuwarden_container_cpu_usage_seconds_total"),
        increase("cpuwarden_container_cfs_periods_total"),
        increase("cpuwarden_container_cfs_throttled_periods_total"),
    ];
    println!("Prometheus: {told:?}; the kernel: {truth:?}");
    for (told, truth) in told.into_iter().zip(truth) {
        // `increase()` extrapolates by up to half a scrape at both ends.
        assert!(told <= truth * 1.1, "{told} of {truth}");
        assert!(told >= truth * 0.3, "{told} of {truth}");
    }
}

/// Waits for a scrape that begins after this call.
fn await_scrape(prometheus: &Prometheus) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let scraped = format!("timestamp(up) > {now} and up == 1");
    eventually("a scrape", || prometheus.count(&scraped) == 1);
}

fn add(totals: &mut [f64; 3], more: [f64; 3]) {
    totals.iter_mut().zip(more).for_each(|(total, more)| *total += more);
}
