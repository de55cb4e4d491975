//! Series whose labels a scrape overwrites with its target's, as when `honorLabels` is overridden.
//! An alert reports this, and the documented relabelings restore the names.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use serde_json::Value;

use super::server::{Pace, Prometheus};
use crate::deploy::read;
use crate::support::eventually;

const PAGE: &str = include_str!("../../../../crates/metrics/tests/golden/maximal.txt");
const USAGE: &str = "cpuwarden_container_cpu_usage_seconds_total";

/// Serves the agent's page to every request until the test ends.
fn serve_page() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                request.push(byte[0]);
            }
            let head = format!(
                "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}",
                PAGE.len()
            );
            let _ = write!(stream, "{head}\r\n\r\n{PAGE}");
        }
    });
    address
}

/// A Prometheus that scrapes the page like a PodMonitor, but overrides `honorLabels`.
fn overridden(relabelings: &Value) -> Prometheus {
    let labels =
        "cluster: test, node: n, namespace: cpuwarden, pod: cpuwarden-x, container: cpuwarden";
    let address = serve_page();
    let configuration = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [recording.yaml, alerts.yaml]
scrape_configs:
  - job_name: cpuwarden
    honor_labels: false
    metric_relabel_configs: {relabelings}
    static_configs: [{{targets: ['{address}'], labels: {{{labels}}}}}]
"
    );
    let prometheus = Prometheus::configured(&configuration, Pace { window: "20s", hold: "1s" });
    eventually("a scrape", || prometheus.count(USAGE) > 0);
    prometheus
}

/// Relabelings in the n-th YAML block of the section, in the form of Prometheus' own configuration.
fn documented(number: usize) -> Value {
    let page = read("docs/prometheus.md");
    let section = page
        .split("## Where honorLabels is overridden")
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    let block = section.split("```yaml").nth(number + 1).unwrap().split("```").next().unwrap();
    let values: Value = serde_saphyr::from_str(block).unwrap();
    let text = values["podMonitor"]["metricRelabelings"].to_string();
    let own = text.replace("sourceLabels", "source_labels").replace("targetLabel", "target_label");
    serde_json::from_str(&own).unwrap()
}

/// Namespace, pod and container of a metric's series.
fn names(prometheus: &Prometheus, metric: &str) -> Vec<String> {
    let of = |labels: &Value| {
        ["namespace", "pod", "container"]
            .map(|name| labels[name].as_str().unwrap_or("-").to_owned())
    };
    let mut names: Vec<String> =
        prometheus.samples(metric).iter().map(|(labels, _)| of(labels).join(" ")).collect();
    names.sort();
    names.dedup();
    names
}

fn fires(prometheus: &Prometheus) -> bool {
    prometheus.count(r#"ALERTS{alertname="CpuwardenLabelsOverridden", alertstate="firing"}"#) == 1
}

/// The same names on the page itself.
fn measured() -> Vec<String> {
    let label = |line: &str, name: &str| {
        line.split(&format!("{name}=\""))
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .unwrap_or("-")
            .to_owned()
    };
    let lines = PAGE.lines().filter(|line| line.starts_with(&format!("{USAGE}{{")));
    let mut names: Vec<String> = lines
        .map(|line| ["namespace", "pod", "container"].map(|name| label(line, name)).join(" "))
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn labels_that_are_replaced_raise_an_alert() {
    let prometheus = overridden(&Value::Array(Vec::new()));
    assert!(
        names(&prometheus, USAGE)
            .iter()
            .all(|name| name.starts_with("cpuwarden cpuwarden-x cpuwarden"))
    );
    eventually("the alert fires", || fires(&prometheus));
}

#[test]
fn the_documented_relabelings_give_all_names_back() {
    let prometheus = overridden(&documented(0));
    assert_eq!(names(&prometheus, USAGE), measured());
    assert_eq!(prometheus.count(r#"{exported_pod!=""}"#), 0);
    // The agent's own series keep their names.
    assert_eq!(names(&prometheus, "cpuwarden_build_info"), ["cpuwarden cpuwarden-x cpuwarden"]);
    let recorded = "container:cpuwarden_cpu_usage_cores:rate5m";
    eventually("the recording rules have them", || prometheus.count(recorded) > 0);
    assert!(names(&prometheus, recorded).iter().all(|name| measured().contains(name)));
    assert!(!fires(&prometheus));
}

#[test]
fn where_the_namespace_is_enforced_the_pod_bears_it() {
    let prometheus = overridden(&documented(1));
    let expected = measured().into_iter().map(|name| {
        let parts: Vec<&str> = name.split(' ').collect();
        format!("cpuwarden {}/{} {}", parts[0], parts[1], parts[2])
    });
    assert_eq!(names(&prometheus, USAGE), expected.collect::<Vec<_>>());
    assert!(!fires(&prometheus));
}
