//! The dashboards: Grafana's own types take them, what they ask for exists, and the rules of Grafana's dashboard linter.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use xtask::tools;

use super::{catalogue, deploy, output_of, read};

/// All dashboards.
pub(super) const DASHBOARDS: [&str; 4] = ["fleet", "pod", "node", "agent"];

/// One query of a panel.
pub(super) struct Query {
    /// Dashboard and panel.
    pub(super) place: String,
    pub(super) expression: String,
}

/// Every query of every panel.
pub(super) fn queries() -> Vec<Query> {
    let panels = DASHBOARDS.iter().flat_map(|name| panels(name).into_iter().map(move |panel| (name, panel)));
    panels
        .flat_map(|(name, panel)| {
            let place = format!("{name}: {}", text(&panel["title"]));
            let targets = panel["targets"].as_array().unwrap().clone();
            targets
                .into_iter()
                .map(move |target| Query { place: place.clone(), expression: text(&target["expr"]).to_owned() })
        })
        .collect()
}

#[test]
fn grafanas_own_types_take_every_dashboard_whole() {
    let files = DASHBOARDS.map(|name| deploy(&format!("dashboards/{name}.json")));
    output_of(Command::new(tools::python().unwrap()).arg(deploy("tests/parse_dashboards.py")).args(files));
}

#[test]
fn every_query_asks_for_metrics_that_the_agent_exposes() {
    for Query { place, expression } in queries() {
        catalogue::assert_all_known(&place, &expression);
        let names = catalogue::names_in(&expression);
        assert!(!names.is_empty() || expression.starts_with("ALERTS{"), "{place}: no metric of ours in {expression}");
    }
}

#[test]
fn every_dashboard_has_its_variables_and_leads_to_the_others() {
    for name in DASHBOARDS {
        let board = dashboard(name);
        assert!(board["schemaVersion"].as_u64().unwrap() >= 39, "{name}");
        assert_eq!((text(&board["uid"]), text(&board["tags"][0])), (&*format!("cpuwarden-{name}"), "cpuwarden"));
        assert_eq!(
            (text(&board["links"][0]["type"]), text(&board["links"][0]["tags"][0])),
            ("dashboards", "cpuwarden")
        );
        let variables = board["templating"]["list"].as_array().unwrap();
        let names: Vec<_> = variables.iter().map(|variable| text(&variable["name"])).take(5).collect();
        assert_eq!(names, ["datasource", "job", "cluster", "node", "namespace"], "{name}");
        for variable in &variables[1..] {
            assert_eq!(text(&variable["datasource"]["uid"]), "${datasource}", "{name}: {variable}");
            // A label that is nowhere, such as cluster, must not empty every panel.
            assert_eq!(text(&variable["allValue"]), ".*", "{name}: {variable}");
        }
    }
}

#[test]
fn every_panel_has_a_title_a_description_a_unit_and_no_datasource_of_its_own() {
    for name in DASHBOARDS {
        let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
        for panel in panels(name) {
            let title = text(&panel["title"]).to_owned();
            assert!(!title.is_empty() && !text(&panel["description"]).is_empty(), "{name}: {title}");
            assert!(!text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{name}: {title} has no unit");
            let targets = panel["targets"].as_array().unwrap();
            for source in targets.iter().map(|target| &target["datasource"]).chain([&panel["datasource"]]) {
                assert_eq!(
                    (text(&source["type"]), text(&source["uid"])),
                    ("prometheus", "${datasource}"),
                    "{name}: {title}"
                );
            }
            assert!(ids.insert(panel["id"].as_u64()) && titles.insert(title.clone()), "{name}: {title} is there twice");
        }
    }
}

#[test]
fn every_rate_follows_the_interval_of_the_panel() {
    for Query { place, expression } in queries() {
        let ranges = expression.matches('[').count();
        let rates: usize = ["rate(", "increase("].iter().map(|function| expression.matches(function).count()).sum();
        assert_eq!(
            (ranges, rates),
            (expression.matches("[$__rate_interval]").count(), ranges),
            "{place}: {expression}"
        );
    }
}

#[test]
fn every_selector_follows_the_variables() {
    for Query { place, expression } in queries() {
        for selector in expression.split('{').skip(1).map(|rest| rest.split('}').next().unwrap()) {
            assert!(selector.contains(r#"cluster=~"$cluster""#), "{place}: {expression}");
            let is_raw = catalogue::names_in(&expression).iter().any(|name| name.starts_with("cpuwarden_"));
            assert!(!is_raw || selector.contains(r#"job=~"$job""#), "{place}: {expression}");
        }
        let (selectors, names) = (expression.matches('{').count(), catalogue::names_in(&expression).len());
        assert!(selectors >= names, "{place}: a bare name in {expression}");
    }
}

fn dashboard(name: &str) -> Value {
    serde_json::from_str(&read(&format!("dashboards/{name}.json"))).unwrap()
}

fn panels(name: &str) -> Vec<Value> {
    dashboard(name)["panels"].as_array().unwrap().clone()
}

/// The text of a string; empty where there is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
