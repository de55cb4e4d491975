//! Prometheus for the descheduler, with the chart's rules: it scrapes the agents, and the PSI of each
//! node under node_exporter's name.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;

use super::super::session::Cluster;
use super::super::{ClusterError, write};
use super::nodes::{NODES, Node};
use crate::{process, workspace};

/// URL of Prometheus, in the cluster's network namespace.
pub(super) const PROMETHEUS: &str = "http://127.0.0.1:9090";
const EXPORTER: &str = "127.0.0.1:9100";
const FIRST_AGENT_PORT: usize = 9753;

/// A value for each of [`NODES`], in their order; `None` where there is none.
pub(super) type Values = [Option<f64>; NODES.len()];

/// Agents and Prometheus; killed on drop.
pub(super) struct Measures {
    processes: Vec<Child>,
    directory: PathBuf,
}

impl Measures {
    /// Starts an agent per node, the exporter and Prometheus.
    pub(super) fn start(
        cluster: &Cluster,
        agent: &Path,
        token: &Path,
    ) -> Result<Self, ClusterError> {
        let directory = cluster.work().join("measures");
        let mut this = Self { processes: Vec::new(), directory };
        write(&this.directory.join("prometheus.yaml"), configuration())?;
        for (at, node) in NODES.into_iter().enumerate() {
            let mut command = Command::new(agent);
            command.args(["run", "--sched-trace=on", "--ui=off", "--pod-source=apiserver"]);
            command.args(["--listen", &address(at), "--kubepods", &node.kubepods()]);
            command.args(["--node-name", node.name, "--apiserver-url", super::API_SERVER]);
            command.arg("--apiserver-ca-file").arg(cluster.certificate("ca", "crt"));
            command.arg("--apiserver-token-file").arg(token);
            command.arg("--state-dir").arg(this.directory.join(node.name));
            this.spawn(node.name, &mut command)?;
        }
        let listener = TcpListener::bind(EXPORTER).map_err(ClusterError::io(EXPORTER))?;
        thread::spawn(move || export(&listener));
        let mut prometheus = Command::new("prometheus");
        prometheus.args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data"]);
        prometheus.args(["--web.listen-address=127.0.0.1:9090", "--log.level=warn"]);
        prometheus.current_dir(&this.directory);
        this.spawn("prometheus", &mut prometheus)?;
        Ok(this)
    }

    fn spawn(&mut self, name: &str, command: &mut Command) -> Result<(), ClusterError> {
        let path = self.directory.join(format!("{name}.log"));
        let log = File::create(&path).map_err(ClusterError::io(path))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|source| process::start_error(command, source))?;
        self.processes.push(child);
        Ok(())
    }

    /// Values of a query now.
    pub(super) fn ask(&self, query: &str) -> Result<Values, ClusterError> {
        let mut promtool = Command::new("promtool");
        promtool.args(["query", "instant", "--format=json", PROMETHEUS, query]);
        let output = process::output_of(&mut promtool)?;
        let series: Value = serde_json::from_slice(&output)
            .map_err(|error| ClusterError::Unexpected(format!("{query}: {error}")))?;
        let series = series.as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(NODES.map(|node| {
            let one = series.iter().find(|one| one["metric"]["instance"] == node.name)?;
            one["value"][1].as_str()?.parse().ok()
        }))
    }
}

impl Drop for Measures {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn address(at: usize) -> String {
    format!("127.0.0.1:{}", FIRST_AGENT_PORT + at)
}

fn configuration() -> String {
    let rules = workspace::root().join("deploy/chart/cpuwarden/files/rules/recording.yaml");
    let targets: String = (0..)
        .zip(NODES)
        .map(|(at, node)| {
            format!("      - {{targets: [\"{}\"], labels: {{node: {}}}}}\n", address(at), node.name)
        })
        .collect();
    format!(
        "global: {{scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 5s}}
rule_files: [{}]
scrape_configs:
  - job_name: node-exporter
    honor_labels: true
    static_configs: [{{targets: [\"{EXPORTER}\"]}}]
  - job_name: cpuwarden
    honor_labels: true
    static_configs:
{targets}",
        rules.display()
    )
}

/// Serves the PSI of all nodes, a page per connection.
fn export(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        let _ = answer(stream);
    }
}

fn answer(mut stream: std::net::TcpStream) -> io::Result<()> {
    for line in BufReader::new(&stream).lines() {
        if line?.is_empty() {
            break;
        }
    }
    let page: String = NODES.into_iter().filter_map(series).collect();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n";
    write!(stream, "{head}Content-Length: {}\r\n\r\n{page}", page.len())
}

/// The series of a node under node_exporter's name. OpenShift's label `instance` is the node's name.
fn series(node: Node) -> Option<String> {
    let seconds = waiting_seconds(&node.pressure().ok()?)?;
    let name = node.name;
    Some(format!("node_pressure_cpu_waiting_seconds_total{{instance=\"{name}\"}} {seconds}\n"))
}

/// Time in which at least one thread waited, from the kernel's microseconds.
fn waiting_seconds(pressure: &str) -> Option<f64> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    let total = some.rsplit_once("total=")?.1.parse::<u64>().ok()?;
    Some(total as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_time_is_the_total_of_some() {
        let full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=7";
        let text = format!("some avg10=1.00 avg60=0.50 avg300=0.10 total=2500000\n{full}\n");
        assert_eq!(waiting_seconds(&text), Some(2.5));
        assert_eq!(waiting_seconds(full), None);
    }
}
