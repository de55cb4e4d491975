//! Presets of metrics: promtool evaluates every panel and alert on the series of each preset.
//! deploy/docs/sizing.md lists those that need more than `lean`.

#[path = "../../../crates/metrics/tests/snapshots/mod.rs"]
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;

use metrics::catalogue::{self, Form, MetricKind, Preset, Selection};
use metrics::{Exposition, Format};
use serde_json::{Value, json};

use super::dashboards::{self, Query};
use super::{chart, deploy, read, rules};

/// Labels that the scrape adds, according to deploy/docs/prometheus.md.
const SCRAPE: &str = r#"job="cpuwarden",cluster="c",node="n",instance="i""#;

/// Dashboard that the chart ships with the full preset only.
const DETAILS: &str = "details";

/// Series of a page as promtool's input: counters grow by one a second and CPU, histograms as their
/// buckets say.
fn input(preset: Preset, traced: bool) -> Vec<Value> {
    let mut snapshot = snapshots::maximal();
    if !traced {
        snapshot.waits = Default::default();
        snapshot.containers.iter_mut().for_each(|row| row.waits = None);
    }
    let agent = snapshots::agent();
    let identity = Arc::clone(&snapshot.containers[0].identity);
    agent.slowed().set(vec![snapshots::slowed(&identity.namespace, &identity.pod)]);
    agent.advice().set(vec![metrics::AdviceRow { identity, ..snapshots::advised("any") }]);
    let mut exposition = Exposition::with_selection(usize::MAX, Selection::preset(preset));
    let page = exposition.render(&snapshot, &agent, Format::Text);
    let page = String::from_utf8(page.to_vec()).unwrap();
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let series = match series.strip_suffix('}') {
            Some(open) => format!("{open},{SCRAPE}}}"),
            None => format!("{series}{{{SCRAPE}}}"),
        };
        let (_, metric) = catalogue::find(name_of(&series)).unwrap();
        let values = match metric.kind {
            MetricKind::Counter => "0+60x30".to_owned(),
            MetricKind::Gauge => "1x30".to_owned(),
            MetricKind::Histogram => format!("0+{value}x30"),
        };
        json!({"series": series, "values": values})
    });
    let firing =
        format!(r#"ALERTS{{alertname="CPUThrottlingHarmful",alertstate="firing",{SCRAPE}}}"#);
    series.chain([json!({"series": firing, "values": "1x30"})]).collect()
}

fn name_of(series: &str) -> &str {
    series.split('{').next().unwrap()
}

/// The query with every variable at All.
fn with_all(query: &Query) -> String {
    let mut text = query.expression.replace("$__rate_interval", "5m");
    for name in ["$job", "$cluster", "$node", "$namespace", "$pod"] {
        text = text.replace(&format!("\"{name}\""), "\".*\"");
    }
    text
}

/// One input of promtool, and what is asked about it.
struct Group {
    /// As in a file of unit tests.
    input: Value,
    /// Expressions, each with a number of its own in all groups.
    expressions: Vec<(usize, String)>,
    /// Minute at which they are evaluated.
    at_minute: u64,
}

/// Numbers of the expressions that have a value.
fn with_values(groups: &[Group]) -> BTreeSet<usize> {
    let tests = groups.iter().map(|group| {
        let expected = group.expressions.iter().map(|(number, expression)| {
            // NaN is less than nothing. The number marks the expression in promtool's output.
            let counted = format!("(count(({expression}) < Inf) > bool 0) + 0 * {number}");
            let at = format!("{}m", group.at_minute);
            json!({"expr": counted, "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}]})
        });
        let mut input = group.input.clone();
        input["promql_expr_test"] = expected.collect();
        input
    });
    let rules = ["rules/recording.yaml", "rules/alerts.yaml"].map(deploy);
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let tests = json!({"rule_files": rules, "evaluation_interval": "1m", "tests": tests.collect::<Vec<_>>()});
    serde_json::to_writer(&file, &tests).unwrap();
    let output =
        Command::new("promtool").args(["test", "rules"]).arg(file.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() != text.contains("FAILED") && !text.contains("error"),
        "{text}"
    );
    let expressions = groups.iter().flat_map(|group| &group.expressions);
    let mut values: BTreeSet<usize> = expressions.map(|(number, _)| *number).collect();
    for rest in text.split(" + 0 * ").skip(1) {
        let number = rest.split('"').next().unwrap().parse().unwrap();
        assert!(values.remove(&number), "{text}");
    }
    values
}

/// Queries that have data on a preset, by their position.
fn queries_with_data(queries: &[Query], preset: Preset, traced: bool) -> BTreeSet<usize> {
    let expressions = queries.iter().map(with_all).enumerate().collect();
    let input = json!({"interval": "1m", "input_series": input(preset, traced)});
    with_values(&[Group { input, expressions, at_minute: 25 }])
}

/// Panels and alerts that need more than lean, in the words of the page.
fn listed() -> BTreeSet<String> {
    let page = read("docs/sizing.md");
    let (_, table) = page.split_once("## What needs more than lean").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.split('|').nth(1).unwrap().trim().to_owned()).collect()
}

#[test]
fn every_panel_has_data_with_its_documented_preset() {
    let queries = dashboards::queries();
    let data = Preset::ALL.map(|preset| queries_with_data(&queries, preset, true));
    let mut smallest = BTreeMap::<&str, Preset>::new();
    for (at, Query { place, expression }) in queries.iter().enumerate() {
        let works = Preset::ALL
            .into_iter()
            .zip(&data)
            .find(|(_, data)| data.contains(&at))
            .map(|(preset, _)| preset);
        // Bounds and pressure are for nodes without the trace; the next test has these.
        if works.is_none() && expression.contains(" unless on (") {
            continue;
        }
        let works = works.unwrap_or_else(|| panic!("{place} never has data: {expression}"));
        let of_details = place.starts_with(DETAILS);
        assert!(of_details || works <= Preset::Standard, "{place} needs {works:?}: {expression}");
        smallest
            .entry(place)
            .and_modify(|smallest| *smallest = works.min(*smallest))
            .or_insert(works);
    }
    let beyond = smallest
        .iter()
        .filter(|(place, works)| **works > Preset::Lean && !place.starts_with(DETAILS));
    let beyond: BTreeSet<String> = beyond.map(|(place, _)| (*place).to_owned()).collect();
    let panels = listed().into_iter().filter(|name| name.contains(": ")).collect();
    assert_eq!(beyond, panels, "the table in docs/sizing.md");
}

#[test]
fn waits_have_a_panel_with_data_without_the_trace_too() {
    let queries = dashboards::queries();
    let data = queries_with_data(&queries, Preset::Standard, false);
    let of_waits =
        queries.iter().enumerate().filter(|(_, query)| query.place == "pod: Waited, by cause");
    let with_data: Vec<bool> = of_waits.map(|(at, _)| data.contains(&at)).collect();
    assert_eq!(with_data, [false, true, true, true], "by cause, and three without the trace");
}

/// The series as the preset has it; `None` if it has not. A test's own series, such as `up`, stay.
fn on(preset: Preset, series: &str) -> Option<String> {
    let form =
        catalogue::find(name_of(series)).map_or(Form::Whole, |(_, metric)| metric.form(preset));
    match form {
        Form::Absent => None,
        Form::Whole => Some(series.to_owned()),
        Form::Brief if series.contains("cpu_usage") => {
            series.contains("mode=\"user\"").then(|| series.replace(", mode=\"user\"", ""))
        }
        Form::Brief if series.contains("cpu_wait") => {
            series.contains("cause=\"neighbor\"").then(|| series.to_owned())
        }
        // No alert reads the others.
        Form::Brief => None,
    }
}

/// A group of unit tests with what the preset leaves of its input, and the last minute at which the
/// group asks for anything.
fn left(group: &Value, preset: Preset) -> (Value, u64) {
    let asked = ["alert_rule_test", "promql_expr_test"].into_iter().flat_map(|tests| {
        group[tests]
            .as_array()
            .into_iter()
            .flatten()
            .map(|test| test["eval_time"].as_str().unwrap())
    });
    let minute = |time: &str| time.strip_suffix('m').expect(time).parse::<u64>().unwrap();
    let last = asked.map(minute).max().unwrap();
    let series = group["input_series"].as_array().unwrap().iter().filter_map(|one| {
        let series = on(preset, one["series"].as_str().unwrap())?;
        // To YAML 0x30 is a number; promtool means thirty times 0.
        let values = one["values"]
            .as_u64()
            .map_or_else(|| one["values"].clone(), |hex| json!(format!("{hex:#x}")));
        Some(json!({"series": series, "values": values}))
    });
    let mut input = group.clone();
    input["input_series"] = series.collect();
    input.as_object_mut().unwrap().remove("alert_rule_test");
    (input, last)
}

/// Alerts that fire on what each preset leaves of the input of their own unit tests. Presets with
/// the same input share one evaluation.
fn firing<const N: usize>(presets: [Preset; N]) -> [BTreeSet<String>; N] {
    let alerts = rules::alerts();
    let files = rules::TESTS
        .map(|file| serde_saphyr::from_str::<Value>(&read(&format!("tests/{file}"))).unwrap());
    let tests: Vec<&Value> =
        files.iter().flat_map(|file| file["tests"].as_array().unwrap()).collect();
    let mut groups: Vec<Group> = Vec::new();
    // Positions in `groups` of each preset's inputs.
    let used = presets.map(|preset| {
        let each = tests.iter().map(|test| {
            let (input, at_minute) = left(test, preset);
            if let Some(same) = groups.iter().position(|group| group.input == input) {
                return same;
            }
            let expression = |(number, alert): (usize, &String)| {
                let firing = format!(r#"ALERTS{{alertname="{alert}",alertstate="firing"}}"#);
                (number, format!("max_over_time({firing}[90m])"))
            };
            let numbers = groups.len() * alerts.len()..;
            let expressions = numbers.zip(&alerts).map(expression).collect();
            groups.push(Group { input, expressions, at_minute });
            groups.len() - 1
        });
        each.collect::<BTreeSet<usize>>()
    });
    let fired = with_values(&groups);
    used.map(|used| {
        let of_preset = fired.iter().filter(|number| used.contains(&(*number / alerts.len())));
        of_preset.map(|number| alerts[number % alerts.len()].clone()).collect()
    })
}

#[test]
fn every_alert_fires_with_its_documented_preset() {
    let all: BTreeSet<String> = rules::alerts().into_iter().collect();
    let [full, standard, lean] = firing([Preset::Full, Preset::Standard, Preset::Lean]);
    assert_eq!(full, all, "with full");
    assert_eq!(standard, all, "with standard");
    let beyond: BTreeSet<String> = all.difference(&lean).cloned().collect();
    let listed = listed().into_iter().filter(|name| !name.contains(": ")).collect();
    assert_eq!(beyond, listed, "the table in docs/sizing.md");
}

#[test]
fn the_details_dashboard_comes_only_with_full() {
    let has = |arguments: &[&str]| {
        let text = chart::render(arguments);
        let config = chart::documents(&text)
            .into_iter()
            .find(|object| !object["data"]["cpuwarden.yaml"].is_null());
        let config: Value =
            serde_saphyr::from_str(config.unwrap()["data"]["cpuwarden.yaml"].as_str().unwrap())
                .unwrap();
        (config["metrics"].as_str().unwrap().to_owned(), text.contains("cpuwarden-details.json"))
    };
    assert_eq!(has(&[]), ("standard".to_owned(), false));
    assert_eq!(has(&["--set=metrics=lean"]), ("lean".to_owned(), false));
    assert_eq!(has(&["--set=metrics=full"]), ("full".to_owned(), true));
    for (argument, place) in
        [("--set=metrics=tiny", "metrics"), ("--set=config.metrics=lean", "config")]
    {
        let text = xtask::generated::render(&[argument]).unwrap_err().to_string();
        assert!(text.contains(place), "{argument}: {text}");
    }
}
