//! A real Prometheus that scrapes real agents under load. Every panel shows data, and the harm
//! alert fires only for the harmed pod.

mod demo;
mod emulated;
mod fleet;
mod incident;
mod labels;
mod loads;
mod pinned;
mod restarts;
mod server;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use demo::Demo;
use emulated::Emulated;
use pinned::Pinned;
use server::{Pace, Prometheus, Target};

use super::dashboards::{Query, choices, queries};
use crate::fixtures::recording;
use crate::recordings::Node;
use crate::support::http::{free_address, serve};
use crate::support::{Agent, OnStage, eventually, poll, turn};

/// Timeout for a node that boots at the speed of an emulated CPU.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Prefix of the metrics that only a node with PSI has.
const PRESSURE: &str = "cpuwarden_container_pressure_";

/// Metrics that none of these agents has. They need hours of history, CPUs with two threads,
/// rejected requests, an API server, panics, floods, or programs with a collector and `--gc=on`.
const ELSEWHERE: [&str; 9] = [
    "cpuwarden_container_gc_",
    "cpuwarden_container_recommended_",
    "container:cpuwarden_recommended_",
    "cpuwarden_container_smt_shared_",
    "cpuwarden_pin_rejections_total",
    "cpuwarden_pin_events_total",
    "cpuwarden_subsystem_restarts_total",
    "cpuwarden_http_connections_cut_total",
    "cpuwarden_pod_lists_cut_total",
];

/// Metrics that depend on what else the machine does: their series on a recorded page grow.
const SLOWED: [&str; 2] = ["cpuwarden_pod_slowed_", "cpuwarden_pod_lost_core_"];

/// The workload of the slowed pod, which is not among the page's containers.
const OF_SLOWED: &str = "cpuwarden_container_info{namespace=\"shop\",pod=\"cart-1\",container=\"main\",workload=\"cart\"} 1\n";

/// Rates and alerts need ten seconds here. The workloads of the demo burst once a second.
const PACE: Pace = Pace { window: "10s", hold: "10s" };

#[test]
fn prometheus_fills_every_panel_and_fires_the_right_alerts() {
    // Each agent shows what the others cannot. The first holds the tests' turn lock.
    let pinned = Pinned::start();
    let with_pressure = Node::start(recording("guest-v2-cgroupfs"));
    let [demo, traced] = [(); 2].map(|()| free_address());
    let target = |node, address| Target { node, address, seconds: 1 };
    let agents = [
        target("pinned", pinned.address()),
        target("recorded", with_pressure.agent.address()),
        target("demo", demo),
        target("traced", traced),
        target("slowed", serve(growing(&SLOWED))),
    ];
    let prometheus = Prometheus::start(&agents, PACE);
    let mut empty = [queries(), choices()].concat();
    empty.retain(|query| !ELSEWHERE.iter().any(|name| query.expression.contains(name)));
    let demo = Demo::start(demo);
    let options = [
        "--kubepods",
        &demo.kubepods(),
        "--pod-source=none",
        "--sched-trace=on",
        "--cpu-budget=1000",
        "--metrics=full",
    ];
    let _traced = Agent::start_at(traced, &options);
    harm_is_told_from_bursts(&prometheus);
    ask_until(&prometheus, PACE, &mut empty, <[Query]>::is_empty);
}

#[test]
#[ignore = "only in `cargo xtask test --all`: an emulated node boots, for pressure that changes"]
fn panels_of_pressure_show_a_running_node() {
    let (_turn, _stage) = (turn(), OnStage::enter());
    let emulated = free_address();
    // It serves pages slowly.
    let target = Target { node: "emulated", address: emulated, seconds: 4 };
    let pace = Pace { window: "20s", hold: "20s" };
    let prometheus = Prometheus::start(&[target], pace);
    let mut empty = queries();
    empty.retain(|query| query.expression.contains(PRESSURE));
    assert!(!empty.is_empty());
    let mut node = Emulated::start(emulated);
    ask_until(&prometheus, pace, &mut empty, |empty| {
        node.start_again_if_lost();
        empty.is_empty()
    });
}

/// The series of metrics on the recorded page. All grow by half a second per second.
fn growing(metrics: &'static [&str]) -> impl Fn(&str) -> String {
    let began = Instant::now();
    move |_| {
        let seconds = began.elapsed().as_secs_f64() / 2.0;
        let is_of_them = |line: &&str| metrics.iter().any(|metric| line.contains(metric));
        let lines = labels::PAGE.lines().filter(is_of_them);
        let grown = lines.map(|line| match line.rsplit_once(' ') {
            Some((series, _)) if !line.starts_with('#') => format!("{series} {seconds}\n"),
            _ => format!("{line}\n"),
        });
        grown.chain([OF_SLOWED.to_owned()]).collect()
    }
}

/// Repeats the queries that have shown no data yet.
fn ask_until(
    prometheus: &Prometheus,
    pace: Pace,
    empty: &mut Vec<Query>,
    mut is_done: impl FnMut(&[Query]) -> bool,
) {
    let empty = RefCell::new(empty);
    let describe = || format!("data of {:#?}", empty.borrow());
    poll(Duration::from_millis(200), TIMEOUT, describe, || {
        let mut empty = empty.borrow_mut();
        empty.retain(|query| !prometheus.shows(&at_pace(&query.expression, pace)));
        is_done(empty.as_slice())
    });
}

fn harm_is_told_from_bursts(prometheus: &Prometheus) {
    eventually("CPUThrottlingHarmful fires for the spinner", || {
        prometheus.count(&harmful("checkout", "firing")) > 0
    });
    let seen = |selector: &str| prometheus.count(&format!("max_over_time({selector}[10m])"));
    assert_eq!(seen(&harmful("checkout", "pending")), 1, "it was pending first");
    // Without throttling the alert's silence proves nothing. On a busy machine bursts take long and
    // not each is throttled.
    let throttled =
        r#"cpuwarden_container_cfs_throttled_periods_total{node="demo", pod="thumbnails"} > 0"#;
    eventually("the burst pod is throttled", || prometheus.count(throttled) == 1);
    assert_eq!(seen(&harmful("thumbnails", "firing")), 0, "the burst pod is not harmed");
}

fn harmful(pod: &str, state: &str) -> String {
    format!(
        r#"ALERTS{{alertname="CPUThrottlingHarmful", node="demo", pod="{pod}", alertstate="{state}"}}"#
    )
}

/// The query as Grafana sends it with every variable at All.
fn at_pace(expression: &str, pace: Pace) -> String {
    let variables = ["$job", "$cluster", "$node", "$namespace", "$pod"];
    let chosen = variables
        .iter()
        .fold(expression.to_owned(), |text, name| text.replace(&format!("\"{name}\""), "\".*\""));
    chosen.replace("$__rate_interval", pace.window)
}
