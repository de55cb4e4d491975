//! A real Prometheus with our rules.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::deploy::read;
use crate::support::eventually;
use crate::support::http::{free_address, get};

/// An agent to scrape.
pub(super) struct Target {
    /// Label `node` of its series.
    pub(super) node: &'static str,
    pub(super) address: SocketAddr,
    /// Scrape interval and timeout, seconds.
    pub(super) seconds: u32,
}

/// Durations that replace those of the rules, for a test.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Window of rates.
    pub(super) window: &'static str,
    /// Time for which a condition must hold.
    pub(super) hold: &'static str,
}

/// A running Prometheus with our rules; killed when dropped.
pub(super) struct Prometheus {
    child: Child,
    address: SocketAddr,
    directory: TempDir,
}

impl Prometheus {
    /// Starts Prometheus with these targets.
    pub(super) fn start(agents: &[Target], pace: Pace) -> Self {
        Self::configured(&configuration(agents), pace)
    }

    /// Starts Prometheus with this configuration.
    pub(super) fn configured(configuration: &str, pace: Pace) -> Self {
        let (directory, address) = (tempfile::tempdir().unwrap(), free_address());
        for rules in ["recording.yaml", "alerts.yaml"] {
            fs::write(
                directory.path().join(rules),
                at_pace(&read(&format!("rules/{rules}")), pace),
            )
            .unwrap();
        }
        fs::write(directory.path().join("prometheus.yaml"), configuration).unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg("--config.file=prometheus.yaml")
            .arg("--storage.tsdb.path=data")
            .arg("--log.level=warn");
        command
            .arg(format!("--web.listen-address={address}"))
            .current_dir(directory.path())
            .stdin(Stdio::null());
        command.stderr(fs::File::create(directory.path().join("log")).unwrap());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("prometheus (Debian package prometheus): {error}"));
        let prometheus = Self { child, address, directory };
        eventually("Prometheus is up", || {
            get(address, "/-/ready").is_ok_and(|(status, _)| status == 200)
        });
        prometheus
    }

    /// The URL of its API.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Number of series of an expression now.
    pub(super) fn count(&self, expression: &str) -> usize {
        self.values(expression).len()
    }

    /// Whether a panel of the expression shows anything: NaN, for example from 0 / 0, is not drawn.
    pub(super) fn shows(&self, expression: &str) -> bool {
        self.values(expression).iter().any(|value| !value.is_nan())
    }

    fn values(&self, expression: &str) -> Vec<f64> {
        self.samples(expression).into_iter().map(|(_, value)| value).collect()
    }

    /// The alerts of a name that fire now.
    pub(super) fn firing(&self, name: &str) -> Vec<Value> {
        let (status, body) = get(self.address, "/api/v1/alerts").unwrap();
        assert_eq!(status, 200, "{body}");
        let mut answer: Value = serde_json::from_str(&body).unwrap();
        let Value::Array(mut alerts) = answer["data"]["alerts"].take() else { panic!("{body}") };
        alerts.retain(|one| one["labels"]["alertname"] == name && one["state"] == "firing");
        alerts
    }

    /// Current series of an expression: labels and value.
    pub(super) fn samples(&self, expression: &str) -> Vec<(Value, f64)> {
        let (status, body) =
            get(self.address, &format!("/api/v1/query?query={}", percent_encoded(expression)))
                .unwrap();
        assert_eq!(status, 200, "{expression}: {body}\n{}", log(self.directory.path()));
        let answer: Value = serde_json::from_str(&body).unwrap();
        let series = answer["data"]["result"].as_array().unwrap();
        let sample = |series: &Value| {
            (series["metric"].clone(), series["value"][1].as_str().unwrap().parse().unwrap())
        };
        series.iter().map(sample).collect()
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

/// The configuration of deploy/docs/prometheus.md with static targets.
fn configuration(agents: &[Target]) -> String {
    let target = |Target { node, address, seconds }: &Target| {
        let pace = format!("__scrape_interval__: {seconds}s, __scrape_timeout__: {seconds}s");
        format!(
            "      - {{targets: [\"{address}\"], labels: {{cluster: test, node: {node}, {pace}}}}}\n"
        )
    };
    let targets: String = agents.iter().map(target).collect();
    format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [recording.yaml, alerts.yaml]
scrape_configs:
  - job_name: cpuwarden
    honor_labels: true
    static_configs:
{targets}"
    )
}

/// The rules with shorter windows, the same hold time for each alert, and no interval of their own.
fn at_pace(rules: &str, Pace { window, hold }: Pace) -> String {
    let window = format!("[{window}]");
    let shorter = ["[10m]", "[5m]", "[2m]"]
        .iter()
        .fold(rules.to_owned(), |rules, long| rules.replace(long, &window));
    let hold = format!("        for: {hold}");
    let lines = shorter.lines().filter(|line| !line.starts_with("    interval: "));
    let lines = lines.map(|line| if line.starts_with("        for: ") { &hold } else { line });
    lines.map(|line| format!("{line}\n")).collect()
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
