//! A real Prometheus that scrapes real agents under load. Every panel shows data, and the harm
//! alert fires only for the harmed pod.

mod demo;
mod emulated;
mod labels;
mod loads;
mod pinned;
mod server;

use std::thread::sleep;
use std::time::{Duration, Instant};

use demo::Demo;
use emulated::Emulated;
use pinned::Pinned;
use server::{Pace, Prometheus, Target};

use super::dashboards::{Query, choices, queries};
use crate::support::http::free_address;
use crate::support::{Agent, eventually};

/// Timeout for a node that boots at the speed of an emulated CPU.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Prefix of the metrics that only the emulated node has, because it has PSI.
const EMULATED: &str = "cpuwarden_container_pressure_";

/// Metrics that none of these agents has. They need hours of history, CPUs with two threads,
/// rejected requests, an API server, panics or floods.
const ELSEWHERE: [&str; 7] = [
    "cpuwarden_container_recommended_",
    "cpuwarden_container_smt_shared_",
    "cpuwarden_pin_rejections_total",
    "cpuwarden_pin_events_total",
    "cpuwarden_subsystem_restarts_total",
    "cpuwarden_http_connections_cut_total",
    "cpuwarden_pod_lists_cut_total",
];

#[test]
fn prometheus_fills_every_panel_and_fires_the_right_alerts() {
    // Each agent shows what the others cannot. The first holds the tests' turn lock; the emulated
    // one serves pages slowly.
    let pinned = Pinned::start();
    let [demo, traced, emulated] = [(); 3].map(|()| free_address());
    let target = |node, address, seconds| Target { node, address, seconds };
    let agents = [
        target("pinned", pinned.address(), 1),
        target("demo", demo, 1),
        target("traced", traced, 1),
        target("emulated", emulated, 4),
    ];
    let prometheus = Prometheus::start(&agents, Pace { window: "20s", hold: "20s" });
    let mut empty = [queries(), choices()].concat();
    empty.retain(|query| !ELSEWHERE.iter().any(|name| query.expression.contains(name)));
    // Started before the demo, which takes all free CPU.
    let mut node = Emulated::start(emulated);
    ask_until(&prometheus, &mut empty, |empty| {
        node.start_again_if_lost();
        !empty.iter().any(|query| query.expression.contains(EMULATED))
    });
    drop(node);
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
    ask_until(&prometheus, &mut empty, <[Query]>::is_empty);
}

/// Repeats the queries that have shown no data yet.
fn ask_until(
    prometheus: &Prometheus,
    empty: &mut Vec<Query>,
    mut is_done: impl FnMut(&[Query]) -> bool,
) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        empty.retain(|query| !prometheus.shows(&on_this_prometheus(&query.expression)));
        if is_done(empty) {
            return;
        }
        assert!(Instant::now() < deadline, "nothing from {empty:#?}");
        sleep(Duration::from_millis(200));
    }
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
fn on_this_prometheus(expression: &str) -> String {
    let variables = ["$job", "$cluster", "$node", "$namespace", "$pod"];
    let chosen = variables
        .iter()
        .fold(expression.to_owned(), |text, name| text.replace(&format!("\"{name}\""), "\".*\""));
    chosen.replace("$__rate_interval", "20s")
}
