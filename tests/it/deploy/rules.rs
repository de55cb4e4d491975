//! Recording rules and alerts: what they ask for exists, promtool's unit tests pass, every alert has its runbook.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::json;
use serde_yaml_ng::Value;

use super::{catalogue, deploy, output_of, read};

const FILES: [&str; 2] = ["rules/recording.yaml", "rules/alerts.yaml"];

#[test]
fn rules_are_valid_and_fire_as_their_unit_tests_say() {
    output_of(Command::new("promtool").args(["check", "rules"]).args(FILES.map(deploy)));
    for tests in ["alerts.yaml", "recording.yaml"] {
        output_of(Command::new("promtool").args(["test", "rules", tests]).current_dir(deploy("tests")));
    }
}

#[test]
fn rules_ask_for_nothing_that_the_agent_does_not_expose() {
    for rule in FILES.into_iter().flat_map(rules) {
        catalogue::assert_all_known(name(&rule), rule["expr"].as_str().unwrap());
    }
}

#[test]
fn every_alert_is_tested_and_described_and_has_its_section_in_the_runbooks() {
    let (runbooks, tests) = (read("docs/runbooks.md"), read("tests/alerts.yaml"));
    let sections: BTreeSet<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let alerts = rules("rules/alerts.yaml");
    assert_eq!(sections, alerts.iter().map(name).collect());
    for alert in &alerts {
        let name = name(alert);
        let url = alert["annotations"]["runbook_url"].as_str().unwrap();
        assert_eq!(url, format!("runbooks.md#{}", name.to_lowercase()));
        assert!(["warning", "info"].contains(&alert["labels"]["severity"].as_str().unwrap()), "{name}");
        assert!(alert["for"].is_string() && alert["annotations"]["summary"].is_string(), "{name}");
        assert!(
            tests.contains(&format!("- {{labels: '{{alertname=\"{name}\", ")),
            "{name} is not seen firing in a test"
        );
    }
    for what in ["**Meaning.**", "**Look.**", "**Do.**"] {
        assert_eq!(runbooks.matches(what).count(), alerts.len(), "{what} in each section");
    }
}

#[test]
fn the_kubernetes_mixins_expressions_work_on_the_page_of_cadvisors_names() {
    // What the exposition writes, under the labels that deploy/docs/prometheus.md has the scrape add.
    let golden = include_str!("../../../crates/metrics/tests/golden/cadvisor.txt");
    let scrape = r#",job="kubelet",metrics_path="/metrics/cadvisor",instance="i",node="n"}"#;
    let series = golden.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (series, value) = line.split_once("} ").unwrap();
        json!({"series": format!("{series}{scrape}"), "values": format!("0+{value}x30")})
    });
    let is_there = |expression: &str| {
        let labels = "{container=\"app\"}";
        let counted = format!("count by (container) ({expression})");
        json!({"expr": counted, "eval_time": "25m", "exp_samples": [{"labels": labels, "value": 1}]})
    };
    let firing = r#"ALERTS{alertname="CPUThrottlingHigh", alertstate="firing"}"#;
    let expected = [firing, "mixin:cpu_usage", "mixin:cpu_throttling", "mixin:cpu_quota"].map(is_there);
    let test = json!({"interval": "1m", "input_series": series.collect::<Vec<_>>(), "promql_expr_test": expected});
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let rules = deploy("tests/kubernetes-mixin.yaml");
    serde_json::to_writer(&file, &json!({"rule_files": [rules], "tests": [test]})).unwrap();
    output_of(Command::new("promtool").args(["test", "rules"]).arg(file.path()));
}

fn rules(file: &str) -> Vec<Value> {
    let rules: Value = serde_yaml_ng::from_str(&read(file)).unwrap();
    let groups = rules["groups"].as_sequence().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_sequence().unwrap().clone()).collect()
}

fn name(rule: &Value) -> &str {
    rule["alert"].as_str().or(rule["record"].as_str()).unwrap()
}
