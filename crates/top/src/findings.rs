//! Changes that a finding proposes: as fields to set, and as a command.

use api::{AdviceReport, Finding, Severity};
use serde_json::Value;

use crate::source::{Advice, Change};

/// Findings in the form of the view.
#[must_use]
pub fn advice(report: AdviceReport) -> Vec<Advice> {
    let change = |finding: &Finding| Change {
        is_warning: finding.severity == Severity::Warning,
        finding: finding.kind.as_str().to_owned(),
        change: match &finding.summary {
            Some(summary) if finding.patch.is_some() => {
                format!("{}; {summary}", changed_fields(finding))
            }
            Some(summary) => summary.clone(),
            None => changed_fields(finding),
        },
    };
    let advice = |row: api::ContainerReport| Advice {
        changes: row.findings.iter().map(change).collect(),
        pending: row.not_enough_history.unwrap_or_default(),
        namespace: row.namespace,
        pod: row.pod,
        container: row.container,
    };
    report.containers.into_iter().map(advice).collect()
}

/// The fields that a patch of a workload sets, such as `app: resources.limits.cpu=640m`; without a
/// patch, the reason.
fn changed_fields(finding: &Finding) -> String {
    let Some(patch) = &finding.patch else {
        return finding.no_patch.clone().unwrap_or_else(|| format!("see {}", finding.docs));
    };
    let mut fields = Vec::new();
    collect(&patch["spec"]["template"]["spec"], "", &mut fields);
    fields.join(", ")
}

/// Adds the leaves of a patch, without the names by which its lists are merged.
fn collect(value: &Value, path: &str, fields: &mut Vec<String>) {
    match value {
        Value::Object(entries) if entries.contains_key("value") => {
            // An environment variable.
            let text = |name: &str| entries.get(name).and_then(Value::as_str).unwrap_or_default();
            fields.push(format!("env {}={}", text("name"), text("value")));
        }
        Value::Object(entries) => {
            for (name, value) in entries.iter().filter(|(name, _)| *name != "name") {
                // The finding's container is known.
                let is_list = matches!(value, Value::Array(_));
                let path = match (is_list, path.is_empty()) {
                    (true, _) => String::new(),
                    (false, true) => name.clone(),
                    (false, false) => format!("{path}.{name}"),
                };
                collect(value, &path, fields);
            }
        }
        Value::Array(entries) => entries.iter().for_each(|entry| collect(entry, path, fields)),
        Value::Null => {}
        leaf => fields.push(format!("{path}={}", leaf.as_str().unwrap_or(&leaf.to_string()))),
    }
}
