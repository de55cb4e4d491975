//! Series whose labels a scrape overwrites with its target's, as when `honorLabels` is overridden.
//! An alert reports this, and the documented relabelings restore the names.

use serde_json::Value;

use super::server::{Pace, Prometheus};
use crate::deploy::read;
use crate::support::eventually;
use crate::support::http::serve;

pub(super) const PAGE: &str = include_str!("../../../../crates/metrics/tests/golden/maximal.txt");
const USAGE: &str = "cpuwarden_container_cpu_usage_seconds_total";

/// A Prometheus that scrapes the page like three PodMonitors that override `honorLabels`: a job and
/// a `cluster` for each of these relabelings.
fn overridden(jobs: &[(&str, Value)]) -> Prometheus {
    let address = serve(|_| PAGE.to_owned());
    let job = |(name, relabelings): &(&str, Value)| {
        format!(
            "  - job_name: {name}
    honor_labels: false
    metric_relabel_configs: {relabelings}
    static_configs:
      - targets: ['{address}']
        labels: {{cluster: {name}, node: n, namespace: cpuwarden, pod: cpuwarden-x, container: cpuwarden}}
"
        )
    };
    let configuration = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [recording.yaml, alerts.yaml]
scrape_configs:
{}",
        jobs.iter().map(job).collect::<String>()
    );
    Prometheus::configured(&configuration, Pace { window: "20s", hold: "1s" })
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

/// Namespace, pod and container of a metric's series in one cluster.
fn names(prometheus: &Prometheus, metric: &str, cluster: &str) -> Vec<String> {
    let of = |labels: &Value| {
        ["namespace", "pod", "container"]
            .map(|name| labels[name].as_str().unwrap_or("-").to_owned())
    };
    let series = prometheus.samples(&format!("{metric}{{cluster=\"{cluster}\"}}"));
    let mut names: Vec<String> = series.iter().map(|(labels, _)| of(labels).join(" ")).collect();
    names.sort();
    names.dedup();
    names
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
fn replaced_labels_raise_an_alert_and_the_documented_relabelings_restore_them() {
    let jobs = [
        ("replaced", Value::Array(Vec::new())),
        ("restored", documented(0)),
        ("enforced", documented(1)),
    ];
    let prometheus = overridden(&jobs);
    let recorded = "container:cpuwarden_cpu_usage_cores:rate5m";
    for (cluster, _) in &jobs {
        eventually("a scrape and the recording rules", || {
            !names(&prometheus, USAGE, cluster).is_empty()
                && !names(&prometheus, recorded, cluster).is_empty()
        });
    }
    // Only for the job whose labels stay replaced.
    let firing = r#"ALERTS{alertname="CpuwardenLabelsOverridden", alertstate="firing"}"#;
    eventually("the alert fires", || prometheus.count(firing) > 0);
    let clusters =
        prometheus.samples(firing).into_iter().map(|(labels, _)| labels["cluster"].clone());
    assert_eq!(clusters.collect::<Vec<_>>(), ["replaced"]);
    let replaced = names(&prometheus, USAGE, "replaced");
    assert!(
        replaced.iter().all(|name| name.starts_with("cpuwarden cpuwarden-x cpuwarden")),
        "{replaced:?}"
    );

    assert_eq!(names(&prometheus, USAGE, "restored"), measured());
    assert_eq!(prometheus.count(r#"{exported_pod!="", cluster!="replaced"}"#), 0);
    // The agent's own series keep their names.
    let own = names(&prometheus, "cpuwarden_build_info", "restored");
    assert_eq!(own, ["cpuwarden cpuwarden-x cpuwarden"]);
    let recorded = names(&prometheus, recorded, "restored");
    assert!(recorded.iter().all(|name| measured().contains(name)), "{recorded:?}");

    // Where the namespace is enforced, the label pod has both names.
    let expected = measured().into_iter().map(|name| {
        let parts: Vec<&str> = name.split(' ').collect();
        format!("cpuwarden {}/{} {}", parts[0], parts[1], parts[2])
    });
    assert_eq!(names(&prometheus, USAGE, "enforced"), expected.collect::<Vec<_>>());
}
