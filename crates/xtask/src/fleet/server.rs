//! A real Prometheus with the product's rules: its start, its answers, and what it costs.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use procfs::process::Process;
use serde_json::Value;

use super::http::{self, free_address, percent_encoded};
use super::{FleetError, bound};
use crate::workspace;

/// Interval of the scrapes, seconds.
pub(super) const SCRAPE_SECONDS: u64 = 15;
/// Interval of the rules, seconds: the default of kube-prometheus.
pub(super) const RULE_SECONDS: u64 = 30;

/// A target.
pub(super) struct Target {
    pub(super) node: String,
    pub(super) address: SocketAddr,
    pub(super) path: String,
}

/// A running Prometheus; killed when dropped.
pub(super) struct Prometheus {
    child: Child,
    directory: PathBuf,
    pub(super) address: SocketAddr,
}

/// Cumulative cost of the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) at: Instant,
    pub(super) cpu_seconds: f64,
    /// CPU time of this process, which serves the replayed pages.
    pub(super) replayer_seconds: f64,
    pub(super) resident_bytes: f64,
    pub(super) heap_bytes: f64,
    pub(super) head_series: f64,
    pub(super) created_series: f64,
}

/// Times of a query, seconds since the epoch: `seconds` up to `end`, or `end` alone if that is 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) end: u64,
    pub(super) seconds: u64,
    pub(super) step: u64,
}

/// Cost of one query.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueryCost {
    pub(super) cpu_seconds: f64,
    pub(super) wall: f64,
    /// Number of series of the answer.
    pub(super) series: usize,
}

impl Prometheus {
    /// Starts it in a directory. `more`: further parts of its configuration.
    pub(super) fn start(
        directory: &Path,
        targets: &[Target],
        more: &str,
    ) -> Result<Self, FleetError> {
        let failed = |error| FleetError::io(directory, error);
        for rules in ["recording.yaml", "alerts.yaml"] {
            let from = workspace::root().join("deploy/rules").join(rules);
            fs::copy(&from, directory.join(rules)).map_err(|error| FleetError::io(&from, error))?;
        }
        let mut text = format!(
            "global: {{scrape_interval: {SCRAPE_SECONDS}s, scrape_timeout: {SCRAPE_SECONDS}s, \
             evaluation_interval: {RULE_SECONDS}s, external_labels: {{shard: \"0\"}}}}\n\
             rule_files: [recording.yaml, alerts.yaml]\n{more}\
             scrape_configs:\n  - job_name: cpuwarden\n    honor_labels: true\n    static_configs:\n"
        );
        for Target { node, address, path } in targets {
            let _ = writeln!(
                text,
                "      - {{targets: [\"{address}\"], labels: {{cluster: fleet, node: \"{node}\", \
                 instance: \"{node}\", __metrics_path__: \"{path}\"}}}}"
            );
        }
        fs::write(directory.join("prometheus.yaml"), text).map_err(failed)?;
        let address = free_address().map_err(failed)?;
        let log = fs::File::create(directory.join("prometheus.log")).map_err(failed)?;
        let child = bound("prometheus")
            .args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--log.level=warn"])
            .arg(format!("--web.listen-address={address}"))
            .arg("--web.enable-lifecycle")
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| FleetError::io(Path::new("prometheus"), error))?;
        Ok(Self { child, directory: directory.to_owned(), address })
    }

    pub(super) fn is_ready(&self) -> bool {
        http::get(self.address, "/-/ready").is_ok()
    }

    /// Its version.
    pub(super) fn version(&self) -> io::Result<String> {
        let answer = self.json("/api/v1/status/buildinfo")?;
        Ok(answer["data"]["version"].as_str().unwrap_or_default().to_owned())
    }

    /// Its own metrics.
    pub(super) fn cost(&self) -> io::Result<Cost> {
        let page = http::get(self.address, "/metrics")?;
        let value = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
        };
        Ok(Cost {
            at: Instant::now(),
            cpu_seconds: value("process_cpu_seconds_total"),
            replayer_seconds: own_cpu_seconds(),
            resident_bytes: value("process_resident_memory_bytes"),
            heap_bytes: value("go_memstats_heap_alloc_bytes"),
            head_series: value("prometheus_tsdb_head_series"),
            created_series: value("prometheus_tsdb_head_series_created_total"),
        })
    }

    /// The groups of rules with the times of their last evaluations.
    pub(super) fn rule_groups(&self) -> io::Result<Vec<Value>> {
        let mut answer = self.json("/api/v1/rules")?;
        match answer["data"]["groups"].take() {
            Value::Array(groups) => Ok(groups),
            _ => Ok(Vec::new()),
        }
    }

    /// The only value of an expression now; `None` without one.
    pub(super) fn number(&self, expression: &str) -> io::Result<Option<f64>> {
        let answer = self.query(expression)?;
        let value = answer["data"]["result"][0]["value"][1].as_str();
        Ok(value.and_then(|text| text.parse().ok()))
    }

    pub(super) fn query(&self, expression: &str) -> io::Result<Value> {
        self.json(&format!("/api/v1/query?query={}", percent_encoded(expression)))
    }

    /// Answer for a past moment, seconds since the epoch.
    pub(super) fn query_at(&self, expression: &str, at: u64) -> io::Result<Value> {
        let expression = percent_encoded(expression);
        self.json(&format!("/api/v1/query?query={expression}&time={at}"))
    }

    /// Ends all scrapes and evaluations, so that the CPU time is that of the queries alone. Past
    /// moments stay.
    pub(super) fn pause(&self) -> io::Result<()> {
        fs::write(self.directory.join("prometheus.yaml"), "global: {}\n")?;
        http::post(self.address, "/-/reload")?;
        let mut last = self.cost()?;
        // Until the process has nothing more to do.
        loop {
            std::thread::sleep(Duration::from_secs(2));
            let now = self.cost()?;
            if now.cpu_seconds - last.cpu_seconds < 0.1 {
                return Ok(());
            }
            last = now;
        }
    }

    /// Evaluates an expression at a moment, as a panel or a rule does. Returns the CPU time of the
    /// process and the wall time; a paused process does nothing else.
    pub(super) fn timed(&self, expression: &str, at: Span) -> io::Result<QueryCost> {
        let Span { end, seconds, step } = at;
        let expression = percent_encoded(expression);
        let path = match seconds {
            0 => format!("/api/v1/query?query={expression}&time={end}"),
            _ => format!(
                "/api/v1/query_range?query={expression}&start={}&end={end}&step={step}",
                end - seconds
            ),
        };
        let (before, began) = (self.cost()?.cpu_seconds, Instant::now());
        let answer = self.json(&path)?;
        let wall = began.elapsed().as_secs_f64();
        let series = answer["data"]["result"].as_array().map_or(0, Vec::len);
        Ok(QueryCost { cpu_seconds: self.cost()?.cpu_seconds - before, wall, series })
    }

    fn json(&self, path: &str) -> io::Result<Value> {
        serde_json::from_str(&http::get(self.address, path)?).map_err(io::Error::other)
    }
}

/// CPU time of this process so far.
fn own_cpu_seconds() -> f64 {
    let stat = Process::myself().and_then(|process| process.stat());
    let ticks = stat.map_or(0, |stat| stat.utime + stat.stime);
    ticks as f64 / procfs::ticks_per_second() as f64
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
