//! The metric reference, as markdown, from the tables.

use std::fmt::Write as _;

use super::{Descriptor, Scope, all, cadvisor};

const SECTIONS: [(Scope, &str); 5] = [
    (Scope::Container, "Containers"),
    (Scope::Pod, "Pods whose own cgroup has a quota"),
    (Scope::Interference, "Who made whom wait"),
    (Scope::Node, "Node"),
    (Scope::Agent, "Agent"),
];

/// The reference of all metrics: a section a scope, a table row a metric.
#[must_use]
pub fn reference() -> String {
    let mut text = String::new();
    for (scope, title) in SECTIONS {
        if !text.is_empty() {
            text.push('\n');
        }
        section(&mut text, scope, title, all().filter(|(of, _)| *of == scope).map(|(_, descriptor)| descriptor));
    }
    text.push('\n');
    section(&mut text, Scope::Container, "cAdvisor's names, on `/metrics/cadvisor`", cadvisor::descriptors());
    text
}

fn section(text: &mut String, scope: Scope, title: &str, metrics: impl Iterator<Item = &'static Descriptor>) {
    text.push_str("## ");
    text.push_str(title);
    text.push_str("\n\n");
    if !scope.labels().is_empty() {
        text.push_str("Every series carries ");
        text.push_str(&code_list(scope.labels()));
        text.push_str(".\n\n");
    }
    text.push_str("| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n");
    metrics.for_each(|descriptor| row(text, descriptor));
}

fn row(text: &mut String, descriptor: &Descriptor) {
    let Descriptor { name, kind, labels, help } = descriptor;
    let (kind, unit, labels) = (kind.as_str(), descriptor.unit().unwrap_or_default(), code_list(labels));
    writeln!(text, "| `{name}` | {kind} | {unit} | {labels} | {help} |").expect("a String takes any text");
}

fn code_list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
