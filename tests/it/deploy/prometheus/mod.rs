//! A real Prometheus that scrapes the real agent under the demo's load: every panel shows something, and the alert of harm
//! fires for who is harmed and for nobody else.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::dashboards::queries;
use super::read;
use crate::support::http::{free_address, get};
use crate::support::{Agent, binary, eventually, turn};

/// Why a query may show nothing here: a part of it, the metric that this machine or the demo lacks, and why.
/// An excuse does not hold where the agent exposes the metric.
const EXCUSES: &[(&str, &str, &str)] = &[
    ("cpuwarden_container_pressure_", "cpuwarden_container_pressure_", "cgroup v1 has no cpu.pressure"),
    (":cpuwarden_wait_cores:", WAITS, NO_TRACE),
    (WAITS, WAITS, NO_TRACE),
    ("cpuwarden_container_runqueue_latency_seconds", WAITS, NO_TRACE),
    ("cpuwarden_interference_wait_seconds_total", WAITS, NO_TRACE),
    ("cpuwarden_bpf_run_seconds_total", WAITS, NO_TRACE),
    ("runtime_parallelism", "cpuwarden_container_runtime_parallelism{", "the demo's workloads say nothing of theirs"),
    ("cpuwarden_pinned_cpus", "cpuwarden_pinned_cpus{", "the demo pins nothing"),
    ("cpuwarden_pool_cpus", "cpuwarden_pool_cpus{", "the demo pins nothing"),
    ("cpuwarden_exclusive_overlap_", "cpuwarden_exclusive_overlap_seconds_total{", "the demo pins nothing"),
    ("cpuwarden_pin_operations_", "cpuwarden_pin_operations_total{", "the demo pins nothing"),
];
const WAITS: &str = "cpuwarden_container_cpu_wait_seconds_total";
const NO_TRACE: &str = "this machine takes no eBPF program";

#[test]
fn every_panel_has_data_and_harm_is_told_from_bursts_by_a_real_prometheus() {
    let _turn = turn();
    let demo = Demo::start();
    // The demo does not trace who waits for whom: a second agent on its cgroups does, where the machine lets it.
    let traced = Agent::start(&["--kubepods", &demo.kubepods(), "--pod-source=none", "--cpu-budget=1000"]);
    let prometheus = Prometheus::start(&[demo.address, traced.address()]);
    eventually("CPUThrottlingHarmful fires for the spinner", || prometheus.count(&harmful("checkout", "firing")) > 0);
    let seen = |selector: &str| prometheus.count(&format!("max_over_time({selector}[10m])"));
    assert_eq!(seen(&harmful("checkout", "pending")), 1, "it was pending first");
    // Or the alert's silence says nothing. On a busy machine a burst takes so long that not each is throttled.
    let throttled = r#"cpuwarden_container_cfs_throttled_periods_total{pod="thumbnails"} > 0"#;
    eventually("the burst pod is throttled", || prometheus.count(throttled) == 1);
    assert_eq!(seen(&harmful("thumbnails", "firing")), 0, "the burst pod is not harmed");
    let page = get(demo.address, "/metrics").unwrap().1 + &traced.metrics().text;
    for query in queries() {
        let expression = on_this_prometheus(&query.expression);
        let shown = prometheus.count(&expression);
        assert!(shown > 0 || is_excused(&expression, &page), "{}: nothing from {expression}", query.place);
    }
}

fn harmful(pod: &str, state: &str) -> String {
    format!(r#"ALERTS{{alertname="CPUThrottlingHarmful", pod="{pod}", alertstate="{state}"}}"#)
}

/// As Grafana would ask with every variable at All.
fn on_this_prometheus(expression: &str) -> String {
    let variables = ["$job", "$cluster", "$node", "$namespace", "$pod"];
    let chosen =
        variables.iter().fold(expression.to_owned(), |text, name| text.replace(&format!("\"{name}\""), "\".*\""));
    chosen.replace("$__rate_interval", "10s")
}

fn is_excused(expression: &str, page: &str) -> bool {
    let is_excuse = |part: &str, metric: &str| expression.contains(part) && !page.contains(metric);
    EXCUSES.iter().any(|(part, metric, _reason)| is_excuse(part, metric))
}

/// A running demo; it takes its cgroups away when dropped.
struct Demo {
    child: Child,
    address: SocketAddr,
}

impl Demo {
    fn start() -> Self {
        let address = free_address();
        let mut command = Command::new(binary());
        command.args(["demo", "--duration", "10m", "--listen", &address.to_string()]).stdin(Stdio::null());
        let demo = Self { child: command.stdout(Stdio::null()).spawn().unwrap(), address };
        // A replay, as without root, has other pods.
        eventually("the demo's real workloads, as root", || {
            get(address, "/metrics").is_ok_and(|(_, page)| page.contains(r#"pod="thumbnails""#))
        });
        demo
    }

    /// Its top cgroup, below the hierarchies.
    fn kubepods(&self) -> String {
        format!("cpuwarden-demo-{}/kubepods", self.child.id())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A running Prometheus with our rules; dropping it kills it.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    directory: TempDir,
}

impl Prometheus {
    fn start(agents: &[SocketAddr]) -> Self {
        let (directory, address) = (tempfile::tempdir().unwrap(), free_address());
        for rules in ["recording.yaml", "alerts.yaml"] {
            fs::write(directory.path().join(rules), in_seconds(&read(&format!("rules/{rules}")))).unwrap();
        }
        fs::write(directory.path().join("prometheus.yaml"), configuration(agents)).unwrap();
        let mut command = Command::new("prometheus");
        command.arg("--config.file=prometheus.yaml").arg("--storage.tsdb.path=data").arg("--log.level=warn");
        command.arg(format!("--web.listen-address={address}")).current_dir(directory.path()).stdin(Stdio::null());
        command.stderr(fs::File::create(directory.path().join("log")).unwrap());
        let child = command.spawn().unwrap_or_else(|error| panic!("prometheus (Debian package prometheus): {error}"));
        let prometheus = Self { child, address, directory };
        eventually("Prometheus is up", || get(address, "/-/ready").is_ok_and(|(status, _)| status == 200));
        prometheus
    }

    /// How many series an expression has now.
    fn count(&self, expression: &str) -> usize {
        let (status, body) =
            get(self.address, &format!("/api/v1/query?query={}", percent_encoded(expression))).unwrap();
        assert_eq!(status, 200, "{expression}: {body}\n{}", log(self.directory.path()));
        let answer: Value = serde_json::from_str(&body).unwrap();
        answer["data"]["result"].as_array().unwrap().len()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log(directory: &Path) -> String {
    fs::read_to_string(directory.join("log")).unwrap_or_default()
}

/// What deploy/docs/prometheus.md says, with static targets, every second.
fn configuration(agents: &[SocketAddr]) -> String {
    let targets: Vec<String> = agents.iter().map(ToString::to_string).collect();
    format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [recording.yaml, alerts.yaml]
scrape_configs:
  - job_name: cpuwarden
    honor_labels: true
    static_configs:
      - targets: {targets:?}
        labels: {{node: demo}}
"
    )
}

/// The rules with their minutes made seconds: the windows shorter, each alert after 20 seconds.
fn in_seconds(rules: &str) -> String {
    let shorter = rules.replace("[5m]", "[20s]").replace("[2m]", "[20s]");
    let lines = shorter.lines().map(|line| if line.starts_with("        for: ") { "        for: 20s" } else { line });
    lines.map(|line| format!("{line}\n")).collect()
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
