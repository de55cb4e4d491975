//! The dashboards: Grafana's own types accept them, their metrics exist, and they follow Grafana's
//! dashboard linter.

use std::collections::BTreeSet;
use std::process::Command;

use metrics::catalogue::Scope;
use serde_json::Value;
use xtask::tools;

use super::{catalogue, deploy, output_of, read};

/// All dashboards. The chart ships `details` with `metrics: full` only.
pub(super) const DASHBOARDS: [&str; 5] = ["fleet", "pod", "node", "agent", "details"];

/// One query of a panel.
#[derive(Debug, Clone)]
pub(super) struct Query {
    /// Names of dashboard and panel.
    pub(super) place: String,
    pub(super) expression: String,
}

/// Every query of every panel.
pub(super) fn queries() -> Vec<Query> {
    let panels =
        DASHBOARDS.iter().flat_map(|name| panels(name).into_iter().map(move |panel| (name, panel)));
    panels
        .flat_map(|(name, panel)| {
            let place = format!("{name}: {}", text(&panel["title"]));
            let targets = panel["targets"].as_array().unwrap().clone();
            targets.into_iter().map(move |target| Query {
                place: place.clone(),
                expression: text(&target["expr"]).to_owned(),
            })
        })
        .collect()
}

/// A query per variable that returns its choices, and nothing if there is none.
pub(super) fn choices() -> Vec<Query> {
    let variables = DASHBOARDS
        .iter()
        .flat_map(|name| variables(name).into_iter().skip(1).map(move |own| (name, own)));
    let choice = |(name, variable): (&&str, Value)| {
        let query = text(&variable["query"]["query"]);
        let arguments = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (selector, label) =
            arguments.unwrap_or_else(|| panic!("{name}: {query}")).rsplit_once(", ").unwrap();
        assert_eq!(text(&variable["name"]), label, "{name}");
        let there = match selector.strip_suffix('}') {
            Some(open) => format!("{open}, {label}!=\"\"}}"),
            None => format!("{selector}{{{label}!=\"\"}}"),
        };
        Query {
            place: format!("{name}: ${label}"),
            expression: format!("count by ({label}) ({there})"),
        }
    };
    variables.map(choice).collect()
}

#[test]
fn grafanas_own_types_take_every_dashboard_whole() {
    let files = DASHBOARDS
        .iter()
        .chain(&["runbooks"])
        .map(|name| deploy(&format!("dashboards/{name}.json")));
    output_of(
        Command::new(tools::python().unwrap()).arg(deploy("tests/parse_dashboards.py")).args(files),
    );
}

#[test]
fn every_query_asks_for_metrics_that_the_agent_exposes() {
    for Query { place, expression } in queries() {
        catalogue::assert_all_known(&place, &expression);
        let names = catalogue::names_in(&expression);
        assert!(
            !names.is_empty() || expression.starts_with("ALERTS{"),
            "{place}: no metric of ours in {expression}"
        );
    }
}

#[test]
fn every_dashboard_links_to_the_others_and_is_not_editable() {
    for name in DASHBOARDS {
        let board = dashboard(name);
        assert!(board["schemaVersion"].as_u64().unwrap() >= 39, "{name}");
        assert_eq!(
            (text(&board["uid"]), text(&board["tags"][0])),
            (&*format!("cpuwarden-{name}"), "cpuwarden")
        );
        let link = &board["links"][0];
        assert_eq!((text(&link["type"]), text(&link["tags"][0])), ("dashboards", "cpuwarden"));
        assert!(link["includeVars"] == true && link["keepTime"] == true, "{name}: {link}");
        assert_eq!(board["editable"], false, "{name}");
    }
}

#[test]
fn every_dashboard_has_its_variables() {
    for name in DASHBOARDS {
        let variables = variables(name);
        let names: Vec<_> = variables.iter().map(|variable| text(&variable["name"])).collect();
        let expected = ["datasource", "job", "cluster", "node", "namespace", "pod"];
        assert_eq!(names, expected[..if of_pod(name) { 6 } else { 5 }], "{name}");
        assert_eq!(
            (text(&variables[0]["type"]), text(&variables[0]["query"])),
            ("datasource", "prometheus"),
            "{name}"
        );
        for variable in &variables[1..] {
            assert_eq!(text(&variable["datasource"]["uid"]), "${datasource}", "{name}: {variable}");
            // The pod dashboard opens on one pod: all pods of a fleet would be unreadable and
            // expensive.
            let has_all = variable["name"] != "pod";
            assert!(
                variable["includeAll"] == has_all && variable["multi"] == true,
                "{name}: {variable}"
            );
            // A label that does not exist, such as cluster, must not empty every panel.
            assert_eq!(
                text(&variable["allValue"]),
                if has_all { ".*" } else { "" },
                "{name}: {variable}"
            );
            assert_eq!(
                text(&variable["current"]["value"]),
                if has_all { "$__all" } else { "" },
                "{name}: {variable}"
            );
            assert_eq!(variable["refresh"], 2, "{name}: with the range of time: {variable}");
        }
    }
}

#[test]
fn every_variable_is_chosen_among_what_the_ones_before_it_leave() {
    for Query { place, expression } in choices() {
        catalogue::assert_all_known(&place, &expression);
        let chosen = expression.split_once("by (").unwrap().1.split(')').next().unwrap();
        let before =
            ["job", "cluster", "node", "namespace"].into_iter().take_while(|name| *name != chosen);
        // A recorded series has fewer labels.
        let own = variables_of(catalogue::names_in(&expression)[0]);
        for name in before.filter(|name| own.contains(name)) {
            assert!(expression.contains(&format!(r#"{name}=~"${name}""#)), "{place}: {expression}");
        }
    }
}

#[test]
fn every_panel_link_keeps_the_time_range() {
    let mut count = 0;
    for (name, panel) in
        DASHBOARDS.iter().flat_map(|name| panels(name).into_iter().map(move |panel| (name, panel)))
    {
        let place = format!("{name}: {}", text(&panel["title"]));
        for link in links(&panel) {
            let url = text(&link["url"]);
            let (uid, query) =
                url.strip_prefix("/d/cpuwarden-").and_then(|rest| rest.split_once('?')).expect(url);
            assert!(
                query.starts_with("${__url_time_range}&${datasource:queryparam}&"),
                "{place}: {url}"
            );
            let variables =
                query.split("&var-").skip(1).map(|rest| rest.split('=').next().unwrap());
            variables.for_each(|variable| assert!(has_variable(uid, variable), "{place}: {url}"));
            count += 1;
        }
    }
    assert!(count >= 8, "{count} links");
}

/// Links of a panel's series or rows.
fn links(panel: &Value) -> Vec<Value> {
    let config = &panel["fieldConfig"];
    let overrides = config["overrides"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|one| one["properties"].as_array().unwrap());
    let of_columns =
        overrides.filter(|property| property["id"] == "links").map(|property| &property["value"]);
    let all = of_columns.chain([&config["defaults"]["links"]]);
    all.filter_map(Value::as_array).flatten().cloned().collect()
}

/// Link of a table's column.
fn column_link(panel: &Value, column: &str) -> String {
    let overrides = panel["fieldConfig"]["overrides"].as_array().unwrap();
    let of_column = overrides.iter().find(|one| one["matcher"]["options"] == column).expect(column);
    text(&of_column["properties"][0]["value"][0]["url"]).to_owned()
}

fn panel(name: &str, title: &str) -> Value {
    panels(name).into_iter().find(|panel| panel["title"] == title).expect(title)
}

#[test]
fn firing_alerts_and_the_worst_pods_lead_to_their_pods() {
    for title in ["Firing alerts", "Slowed pods", "Most throttled containers"] {
        let panel = panel("fleet", title);
        let pod = column_link(&panel, "pod");
        assert!(pod.starts_with("/d/cpuwarden-pod?"), "{pod}");
        assert!(
            pod.ends_with("&var-namespace=${__data.fields.namespace}&var-pod=${__data.fields.pod}"),
            "{pod}"
        );
        assert!(column_link(&panel, "node").starts_with("/d/cpuwarden-node?"), "{title}");
    }
}

#[test]
fn the_most_slowed_pods_come_first_with_reason_and_cause() {
    let panel = panel("fleet", "Slowed pods");
    assert_eq!(
        (&panel["options"]["sortBy"][0]["displayName"], &panel["options"]["sortBy"][0]["desc"]),
        (&"Slowed".into(), &true.into())
    );
    let organize = &panel["transformations"][0]["options"]["renameByName"];
    let columns: Vec<&str> = organize.as_object().unwrap().values().map(text).collect();
    assert!(["Slowed", "Reason", "Cause"].iter().all(|column| columns.contains(column)));
}

#[test]
fn the_most_throttled_containers_come_first_with_all_evidence() {
    let panel = panel("fleet", "Most throttled containers");
    assert_eq!(
        (&panel["options"]["sortBy"][0]["displayName"], &panel["options"]["sortBy"][0]["desc"]),
        (&"Throttled time".into(), &true.into())
    );
    let organize = &panel["transformations"][1]["options"]["renameByName"];
    let columns: Vec<&str> = organize.as_object().unwrap().values().map(text).collect();
    for column in [
        "Throttled time",
        "Used (cores)",
        "Limit (cores)",
        "Limit used",
        "Recommended limit (cores)",
    ] {
        assert!(columns.contains(&column), "{column}: {columns:?}");
    }
}

/// A raw series of 410,000 containers costs seconds for each panel and viewer.
#[test]
fn the_fleet_board_reads_recorded_series_only() {
    let of_fleet = queries().into_iter().filter(|query| query.place.starts_with("fleet: "));
    for Query { place, expression } in of_fleet {
        for (_, name, _) in selectors(&expression) {
            assert!(name.contains(":cpuwarden_") || name == "ALERTS", "{place}: {name}");
        }
    }
}

/// Several Prometheus servers, each with some of the nodes, record parts that must be added up.
#[test]
fn series_of_many_nodes_are_added_up_over_servers() {
    let mut count = 0;
    for Query { place, expression } in queries() {
        for (before, name, _) in selectors(&expression) {
            let labels = match name.split(':').next() {
                Some("workload") => "cluster, namespace, workload",
                Some("namespace") => "cluster, namespace",
                _ => continue,
            };
            let is_sum = before
                .rsplit_once("sum by (")
                .is_some_and(|(_, by)| by.starts_with(labels) && by.ends_with(") ("));
            assert!(is_sum, "{place}: {expression}");
            count += 1;
        }
    }
    assert!(count >= 9, "{count}");
}

#[test]
fn steal_is_a_share_of_the_online_cpus() {
    let steal = "rate(cpuwarden_node_steal_seconds_total{";
    let queries: Vec<Query> =
        queries().into_iter().filter(|query| query.expression.contains(steal)).collect();
    assert!(!queries.is_empty());
    for Query { place, expression } in queries {
        let (stolen, online) =
            expression.split_once(" / ").unwrap_or_else(|| panic!("{place}: {expression}"));
        assert!(
            stolen.contains(steal) && online.starts_with("sum by (node) (cpuwarden_node_cpus{"),
            "{place}"
        );
        assert!(online.contains(r#"state="online""#), "{place}: {expression}");
    }
}

#[test]
fn every_panel_has_a_title_description_and_unit() {
    for name in DASHBOARDS {
        let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
        for panel in panels(name) {
            let title = text(&panel["title"]).to_owned();
            assert!(
                !title.is_empty() && !text(&panel["description"]).is_empty(),
                "{name}: {title}"
            );
            assert!(
                !text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(),
                "{name}: {title} has no unit"
            );
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{name}: {title} asks for nothing");
            for source in
                targets.iter().map(|target| &target["datasource"]).chain([&panel["datasource"]])
            {
                assert_eq!(
                    (text(&source["type"]), text(&source["uid"])),
                    ("prometheus", "${datasource}"),
                    "{name}: {title}"
                );
            }
            assert!(
                ids.insert(panel["id"].as_u64()) && titles.insert(title.clone()),
                "{name}: {title} is there twice"
            );
        }
    }
}

/// As on the page and in the terminal. A sum over pods is no share: its title says what it counts.
#[test]
fn waits_are_shares_of_the_time_and_sums_over_pods_are_threads() {
    let waits = ["wait_seconds_total", "wait_cores", "trace_lost_seconds_total"];
    let mut count = 0;
    for name in DASHBOARDS {
        for panel in panels(name) {
            let targets = panel["targets"].as_array().unwrap();
            let of_waits =
                |target: &Value| waits.iter().any(|of| text(&target["expr"]).contains(of));
            if !targets.iter().any(of_waits) {
                continue;
            }
            let (title, unit) =
                (text(&panel["title"]), text(&panel["fieldConfig"]["defaults"]["unit"]));
            let expected = if ["fleet", "agent"].contains(&name) {
                assert!(title.starts_with("Waiting threads"), "{name}: {title}");
                ("none", "Average number of threads")
            } else {
                ("percentunit", "can exceed 100 %")
            };
            assert_eq!(unit, expected.0, "{name}: {title}");
            assert!(text(&panel["description"]).contains(expected.1), "{name}: {title}");
            count += 1;
        }
    }
    assert_eq!(count, 7);
}

#[test]
fn every_rate_follows_the_interval_of_the_panel() {
    for Query { place, expression } in queries() {
        let ranges = expression.matches('[').count();
        let rates: usize = ["rate(", "increase("]
            .iter()
            .map(|function| expression.matches(function).count())
            .sum();
        assert_eq!(
            (ranges, rates),
            (expression.matches("[$__rate_interval]").count(), ranges),
            "{place}: {expression}"
        );
    }
}

#[test]
fn every_counter_is_shown_by_its_rate() {
    for Query { place, expression } in queries() {
        for (before, name, _) in selectors(&expression) {
            let counts =
                ["_total", "_bucket", "_sum", "_count"].iter().any(|suffix| name.ends_with(suffix));
            let is_rate = before.ends_with("rate(") || before.ends_with("increase(");
            assert_eq!(is_rate, counts, "{place}: {name} in {expression}");
        }
    }
}

#[test]
fn every_selector_follows_the_variables() {
    for Query { place, expression } in queries() {
        let selectors = selectors(&expression);
        for (_, name, matchers) in &selectors {
            let of_pod = place.split(':').next().is_some_and(of_pod);
            for variable in
                variables_of(name).iter().filter(|variable| **variable != "pod" || of_pod)
            {
                let follows = matchers.contains(&format!(r#"{variable}=~"${variable}""#));
                assert!(follows, "{place}: {name} does not follow {variable} in {expression}");
            }
        }
        let selected = selectors.iter().filter(|(_, name, _)| *name != "ALERTS").count();
        assert_eq!(
            selected,
            catalogue::names_in(&expression).len(),
            "{place}: a bare name in {expression}"
        );
    }
}

/// Whether a dashboard is about chosen pods.
fn of_pod(dashboard: &str) -> bool {
    ["pod", "details"].contains(&dashboard)
}

/// Dashboard variables for which a metric has labels.
fn variables_of(name: &str) -> &'static [&'static str] {
    match name.split_once(':') {
        Some(("container" | "pod", _)) => &["cluster", "node", "namespace", "pod"],
        Some(("node", _)) => &["cluster", "node"],
        Some(_) => &["cluster", "namespace"],
        None if name == "ALERTS" => &["cluster"],
        None => match metrics::catalogue::find(name) {
            Some((Scope::Node | Scope::Agent, metric)) if !metric.labels.contains(&"pod") => {
                &["job", "cluster", "node"]
            }
            _ => &["job", "cluster", "node", "namespace", "pod"],
        },
    }
}

/// Selectors of an expression: the text before the name, the name, the matchers.
fn selectors(expression: &str) -> Vec<(&str, &str, &str)> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == ':';
    let selector = |at| {
        let (before, matchers) = expression.split_at(at);
        let name = before.rsplit(|char| !is_part(char)).next().unwrap();
        (before.strip_suffix(name).unwrap(), name, matchers.split('}').next().unwrap())
    };
    expression.match_indices('{').map(|(at, _)| selector(at)).collect()
}

/// Whether a link to the dashboard can set this variable.
pub(super) fn has_variable(name: &str, variable: &str) -> bool {
    variables(name).iter().any(|own| text(&own["name"]) == variable)
}

/// Variables of a dashboard.
fn variables(name: &str) -> Vec<Value> {
    dashboard(name)["templating"]["list"].as_array().unwrap().clone()
}

fn dashboard(name: &str) -> Value {
    serde_json::from_str(&read(&format!("dashboards/{name}.json"))).unwrap()
}

fn panels(name: &str) -> Vec<Value> {
    dashboard(name)["panels"].as_array().unwrap().clone()
}

/// Text of a JSON string; empty for any other value.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
