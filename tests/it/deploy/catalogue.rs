//! Checks that the metrics named by expressions exist.

use std::collections::BTreeSet;

use metrics::catalogue;

use super::read;

/// Metric names shared by all client libraries.
const PROCESS: [&str; 6] = [
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
];

/// The names of the product's metrics in an expression, including recording rules
/// (`pod:cpuwarden_…`), with repetitions.
pub(super) fn names_in(expression: &str) -> Vec<&str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == ':';
    let words = expression.split(|char| !is_part(char));
    let is_ours = |word: &&str| word.starts_with("cpuwarden_") || word.contains(":cpuwarden_");
    words.filter(|word| is_ours(word) || PROCESS.contains(word)).collect()
}

/// Panics, with the place, if a metric is neither the agent's nor a recording rule's.
pub(super) fn assert_all_known(place: &str, expression: &str) {
    let recorded = recorded();
    for name in names_in(expression) {
        let is_known = catalogue::find(name).is_some() || recorded.contains(name);
        assert!(is_known, "{place}: no metric {name} in the catalogue, in {expression}");
    }
}

/// A metric that is shown nowhere is useless: a panel or rule must read it, or a list must give its
/// purpose.
#[test]
fn every_metric_is_in_a_panel_a_rule_or_the_query_list() {
    let panels = super::dashboards::queries().into_iter().map(|query| query.expression);
    let rules = super::rules::expressions();
    let text: Vec<String> = panels.chain(rules).collect();
    let names: BTreeSet<&str> = text.iter().flat_map(|expression| names_in(expression)).collect();
    let listed =
        |name: &str| catalogue::QUERY_ONLY.iter().filter(|(only, _)| *only == name).count();
    for (_, metric) in catalogue::all() {
        let read = metric.sample_names().any(|name| names.contains(&*name));
        assert_eq!(
            listed(metric.name),
            usize::from(!read),
            "{}: read by a panel or rule: {read}",
            metric.name
        );
    }
    for (name, purpose) in catalogue::QUERY_ONLY {
        assert!(
            catalogue::all().any(|(_, metric)| metric.name == *name) && !purpose.is_empty(),
            "{name}"
        );
    }
}

/// Names recorded by the recording rules.
fn recorded() -> BTreeSet<String> {
    let text = read("rules/recording.yaml");
    text.lines()
        .filter_map(|line| Some(line.trim().strip_prefix("- record: ")?.to_owned()))
        .collect()
}

#[test]
fn the_agents_process_is_reported_as_by_every_client_library() {
    let own: Vec<&str> = catalogue::all()
        .map(|(_, metric)| metric.name)
        .filter(|name| name.contains("process_"))
        .collect();
    let mut sorted = own.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, PROCESS);
}

#[test]
fn pod_and_node_boards_show_slowed_time_by_reason_and_cause() {
    for board in ["pod: ", "node: "] {
        let all = super::dashboards::queries().into_iter();
        let of_board = all.filter(|query| query.place.starts_with(board));
        let text: String = of_board.map(|query| query.expression).collect();
        for name in ["slowed_seconds", "lost_core_seconds", "slowed_by_seconds"] {
            assert!(text.contains(&format!("cpuwarden_pod_{name}_total")), "{board}{name}");
        }
    }
}

#[test]
fn names_are_taken_out_of_an_expression() {
    let names = names_in(
        r#"rate(cpuwarden_a_total{x="cpuwarden"}[5m]) / pod:cpuwarden_b:rate5m + up{job="cpuwarden"}"#,
    );
    assert_eq!(names, ["cpuwarden_a_total", "pod:cpuwarden_b:rate5m"]);
}
