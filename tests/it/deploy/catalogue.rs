//! Which metrics an expression asks for, and whether the agent has them.

use std::collections::BTreeSet;

use metrics::catalogue;

use super::read;

/// Metrics of the contract that the agent does not expose yet. An entry that is in the catalogue fails the test below.
pub(super) const PENDING: &[&str] = &["cpuwarden_container_runtime_parallelism"];

/// The names in an expression that begin with the product's, those of recording rules included (`pod:cpuwarden_…`).
pub(super) fn names_in(expression: &str) -> BTreeSet<&str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == ':';
    let words = expression.split(|char| !is_part(char));
    words.filter(|word| word.starts_with("cpuwarden_") || word.contains(":cpuwarden_")).collect()
}

/// Whether the metric is one of those that are to come.
pub(super) fn is_pending(name: &str) -> bool {
    let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    PENDING.contains(&family)
}

/// Panics, with the place, at a metric that neither the agent nor a recording rule has.
pub(super) fn assert_all_known(place: &str, expression: &str) {
    let recorded = recorded();
    for name in names_in(expression) {
        let is_known = catalogue::find(name).is_some() || recorded.contains(name) || is_pending(name);
        assert!(is_known, "{place}: no metric {name} in the catalogue, in {expression}");
    }
}

/// What the recording rules record.
fn recorded() -> BTreeSet<String> {
    let text = read("rules/recording.yaml");
    text.lines().filter_map(|line| Some(line.trim().strip_prefix("- record: ")?.to_owned())).collect()
}

#[test]
fn what_is_pending_is_not_in_the_catalogue_yet() {
    let here: Vec<_> = catalogue::all().map(|(_, metric)| metric.name).filter(|name| PENDING.contains(name)).collect();
    assert!(here.is_empty(), "to be taken off PENDING: {here:?}");
}

#[test]
fn names_are_taken_out_of_an_expression() {
    let names =
        names_in(r#"rate(cpuwarden_a_total{x="cpuwarden"}[5m]) / pod:cpuwarden_b:rate5m + up{job="cpuwarden"}"#);
    assert_eq!(names, BTreeSet::from(["cpuwarden_a_total", "pod:cpuwarden_b:rate5m"]));
}
