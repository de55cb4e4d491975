//! `kubectl cpuwarden fleet` from a real Prometheus with the recording rules.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::Value;

use super::PACE;
use super::server::{Prometheus, Target};
use crate::support::http::{free_address, serve};
use crate::support::{binary, eventually};

const NODES: [&str; 12] =
    ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11", "n12"];
/// Nodes on which `batch/report` slows `shop/cart`.
const HIT: usize = 10;

/// The page of a node: a pod of `shop/cart` that `batch/report` slows, or on the other nodes a pod
/// of `shop/pay` that the host slows less, and whose limit costs it half a core.
fn page(number: usize) -> impl Fn(&str) -> String {
    let began = Instant::now();
    move |_| {
        let (victim, by, workload, reason, rate) = match number < HIT {
            true => ("cart", "batch", "report", "neighbor", 0.5),
            false => ("pay", "system", "", "system", 0.25),
        };
        let pod = format!("namespace=\"shop\",pod=\"{victim}-{number}\"");
        let seconds = rate * began.elapsed().as_secs_f64();
        format!(
            "cpuwarden_container_info{{{pod},container=\"main\",workload=\"{victim}\"}} 1\n\
             cpuwarden_container_cpu_usage_seconds_total{{{pod},container=\"main\"}} {seconds}\n\
             cpuwarden_pod_slowed_seconds_total{{{pod},reason=\"{reason}\"}} {seconds}\n\
             cpuwarden_pod_slowed_seconds_total{{{pod},reason=\"own_limit\"}} {seconds}\n\
             cpuwarden_pod_lost_core_seconds_total{{{pod},reason=\"own_limit\"}} {seconds}\n\
             cpuwarden_pod_slowed_by_seconds_total{{{pod},aggressor_namespace=\"{by}\",\
             aggressor_workload=\"{workload}\",beyond_request=\"true\"}} {seconds}\n"
        )
    }
}

/// Runs the plugin.
fn fleet(arguments: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("kubectl-cpuwarden");
    symlink(binary(), &plugin).unwrap();
    Command::new(plugin).arg("fleet").args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

#[test]
fn the_culprit_of_ten_nodes_is_named_first_with_its_victims() {
    let targets: Vec<Target> = NODES
        .iter()
        .enumerate()
        .map(|(number, node)| Target { node, address: serve(page(number)), seconds: 1 })
        .collect();
    let prometheus = Prometheus::start(&targets, PACE);
    let url = prometheus.url();
    let ask = |more: &[&str]| fleet(&[&["--prometheus", &url, "-o", "json"], more].concat());
    eventually("the culprit on all its nodes", || json(&ask(&[]))["culprits"][0]["nodes"] == HIT);
    // The window of the rules is ten seconds here, but the command takes it for ten minutes.
    let report = json(&ask(&[]));
    let first = |list: &str| {
        let row = &report[list][0];
        format!("{} {}/{}", row["cluster"], row["namespace"], row["workload"]).replace('"', "")
    };
    assert_eq!(first("culprits"), "test batch/report", "{report}");
    assert_eq!(first("victims"), "test shop/cart", "{report}");
    let [culprit, victim] = [&report["culprits"][0], &report["victims"][0]];
    assert_eq!(
        (&culprit["victims"][0]["workload"], &victim["by"][0]["workload"]),
        (&"cart".into(), &"report".into())
    );
    assert_eq!(victim["nodes"], HIT, "{report}");
    let lost = report["throttled"][0]["lostCores"].as_f64().unwrap();
    assert!(lost > 1.0, "ten pods of half a core each: {report}");
    let host =
        report["culprits"].as_array().unwrap().iter().find(|row| row["namespace"] == "system");
    assert_eq!(host.unwrap()["nodes"], NODES.len() - HIT, "{report}");

    eventually("the past window", || json(&ask(&["--window=1h"]))["culprits"][0]["nodes"] == HIT);
    let [now, hour] = [&report, &json(&ask(&["--window=1h"]))]
        .map(|report| report["culprits"][0]["harmSeconds"].as_f64().unwrap());
    assert!(hour > 0.0 && hour < now, "minutes of the hour, not an hour: {now}, {hour}");

    let output = fleet(&["--prometheus", &url, "--limit=1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("test: batch/report"), "{text}");
    assert!(!text.contains("the host") && text.ends_with("of Prometheus\n"), "{text}");
}

#[test]
fn a_prometheus_without_the_rules_or_none_at_all_is_reported_with_the_remedy() {
    let error = |arguments: &[&str]| {
        let output = fleet(arguments);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let empty =
        serve(|_| r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#.into());
    let (code, text) = error(&["--prometheus", &format!("http://{empty}")]);
    assert_eq!(code, Some(69), "{text}");
    assert!(
        text.contains("has no series workload:cpuwarden_…: load deploy/rules/recording.yaml"),
        "{text}"
    );
    let (code, text) = error(&["--prometheus", &format!("http://{}", free_address())]);
    assert!(code == Some(69) && text.contains("no Prometheus answers at "), "{text}");
    let (code, text) = error(&["--prometheus", "https://localhost:9090"]);
    assert!(code == Some(64) && text.contains("https needs --tls-cert"), "{text}");
    let (code, text) = error(&["--window=1h"]);
    assert!(
        code == Some(64) && text.contains("agents keep ten minutes; set --prometheus"),
        "{text}"
    );
}
