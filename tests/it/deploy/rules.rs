//! Recording rules and alerts: their metrics exist, promtool's unit tests pass, and every alert has
//! a runbook.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use super::{catalogue, deploy, output_of, read};

const FILES: [&str; 2] = ["rules/recording.yaml", "rules/alerts.yaml"];

/// Unit tests for promtool.
pub(super) const TESTS: [&str; 4] =
    ["alerts.yaml", "slowed.yaml", "throttling.yaml", "recording.yaml"];

#[test]
fn rules_are_valid_and_fire_as_their_unit_tests_say() {
    output_of(Command::new("promtool").args(["check", "rules"]).args(FILES.map(deploy)));
    for tests in TESTS {
        output_of(
            Command::new("promtool").args(["test", "rules", tests]).current_dir(deploy("tests")),
        );
    }
}

#[test]
fn rules_use_only_exposed_metrics() {
    for rule in FILES.into_iter().flat_map(rules) {
        catalogue::assert_all_known(name(&rule), rule["expr"].as_str().unwrap());
    }
}

#[test]
fn every_alert_has_a_test_and_a_runbook() {
    let (runbooks, tests) =
        (read("docs/runbooks.md"), TESTS.map(|file| read(&format!("tests/{file}"))).concat());
    let sections: BTreeSet<&str> =
        runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let alerts = rules("rules/alerts.yaml");
    assert_eq!(sections, alerts.iter().map(name).collect());
    for alert in &alerts {
        let name = name(alert);
        let severity = alert["labels"]["severity"].as_str().unwrap();
        let is_chosen =
            severity == r#"{{ if match "^()$" $labels.namespace }}warning{{ else }}info{{ end }}"#;
        assert!(["warning", "info"].contains(&severity) || is_chosen, "{name}: {severity}");
        assert!(alert["for"].is_string() && alert["annotations"]["summary"].is_string(), "{name}");
        let fired = format!("alertname=\"{name}\", ");
        let expected = tests.lines().filter(|line| line.trim_start().starts_with("- {labels: '"));
        assert!(
            expected.into_iter().any(|line| line.contains(&fired)),
            "{name} is not seen firing in a test"
        );
    }
    for what in ["**Meaning.**", "**Look.**", "**Do.**"] {
        assert_eq!(runbooks.matches(what).count(), alerts.len(), "{what} in each section");
    }
}

#[test]
fn every_alert_links_its_runbook_and_dashboard() {
    let runbooks: Value = serde_json::from_str(&read("dashboards/runbooks.json")).unwrap();
    let panels = runbooks["panels"].as_array().unwrap();
    for alert in rules("rules/alerts.yaml") {
        let (name, annotations) = (name(&alert), &alert["annotations"]);
        let url = annotations["runbook_url"].as_str().unwrap();
        let path = format!("/d/{}?viewPanel=", runbooks["uid"].as_str().unwrap());
        let (panel, section) =
            url.strip_prefix(&path).and_then(|rest| rest.split_once('#')).expect(url);
        assert_eq!(section, name.to_lowercase());
        let linked = panels
            .iter()
            .find(|one| one["id"].as_u64().is_some_and(|id| id.to_string() == panel))
            .expect(url);
        assert_eq!(linked["title"], name, "{url}");
        let url = annotations["dashboard_url"].as_str().unwrap();
        let uid = url
            .strip_prefix("/d/cpuwarden-")
            .and_then(|rest| rest.split(['?', '{']).next())
            .expect(url);
        let variables = url.split("var-").skip(1).map(|rest| rest.split('=').next().unwrap());
        for variable in variables {
            assert!(super::dashboards::has_variable(uid, variable), "{name}: {url}");
            assert!(url.contains(&format!("$labels.{variable}")), "{name}: {url}");
        }
        // Exactly the links to the pod dashboard set the pod.
        assert_eq!(url.contains("$labels.pod"), uid == "pod", "{name}: {url}");
    }
}

#[test]
fn kubernetes_mixin_expressions_work_on_cadvisor_names() {
    // The exposition's output, with the labels that the scrape adds according to
    // deploy/docs/prometheus.md.
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
    let expected =
        [firing, "mixin:cpu_usage", "mixin:cpu_throttling", "mixin:cpu_quota"].map(is_there);
    let test = json!({"interval": "1m", "input_series": series.collect::<Vec<_>>(), "promql_expr_test": expected});
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let rules = deploy("tests/kubernetes-mixin.yaml");
    serde_json::to_writer(&file, &json!({"rule_files": [rules], "tests": [test]})).unwrap();
    output_of(Command::new("promtool").args(["test", "rules"]).arg(file.path()));
}

/// Names of all alerts.
pub(super) fn alerts() -> Vec<String> {
    rules("rules/alerts.yaml").iter().map(|alert| name(alert).to_owned()).collect()
}

/// Expressions of all rules.
pub(super) fn expressions() -> Vec<String> {
    FILES
        .into_iter()
        .flat_map(rules)
        .map(|rule| rule["expr"].as_str().unwrap().to_owned())
        .collect()
}

fn rules(file: &str) -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read(file)).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn name(rule: &Value) -> &str {
    rule["alert"].as_str().or(rule["record"].as_str()).unwrap()
}
