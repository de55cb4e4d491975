//! Recording rules and alerts: what they ask for exists, promtool's unit tests pass, every alert has its runbook.

use std::collections::BTreeSet;
use std::process::Command;

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

fn rules(file: &str) -> Vec<Value> {
    let rules: Value = serde_yaml_ng::from_str(&read(file)).unwrap();
    let groups = rules["groups"].as_sequence().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_sequence().unwrap().clone()).collect()
}

fn name(rule: &Value) -> &str {
    rule["alert"].as_str().or(rule["record"].as_str()).unwrap()
}
