//! Advice for a workload from the reports of its pods.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    ContainerReport, Finding, FindingKind, Injected, InjectionStatus, Severity,
    merged as merged_patches,
};
use serde::Serialize;
use serde_json::Value;

/// Names of the figures that differ between pods of a workload, the decisive one first. Others are
/// settings, which are the same in all pods.
const RANKED: [&str; 4] =
    ["throttledShare", "throttledSecondsPerSecond", "contentionShare", "useP95Cores"];

/// Number of pods with a property, of those with a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ForPods {
    /// Pods with the property.
    pub pods: usize,
    /// Pods with a report of this container.
    pub of: usize,
}

/// A finding of one container in all pods of a workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MergedFinding {
    /// Pods with this finding.
    #[serde(flatten)]
    pub seen: ForPods,
    /// Pod with the figures below: the one with the largest throttled share, wait or use.
    pub worst_pod: String,
    /// Figures and change. A change that raises a value is the largest over the pods; one that
    /// lowers a value is there only if all pods have it.
    #[serde(flatten)]
    pub finding: Finding,
}

/// One container of a workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MergedContainer {
    /// Name of the container.
    pub container: String,
    /// Pods with a report of this container.
    pub pods: usize,
    /// Pods with less history than some advice needs.
    pub pods_without_enough_history: usize,
    /// The findings, by kind, warnings first.
    pub findings: Vec<MergedFinding>,
    /// Runtime and limits of a pod, for the text.
    #[serde(skip)]
    pub(crate) about: String,
    /// Environment variables of the pods, for the text.
    #[serde(skip)]
    pub(crate) injected: BTreeSet<String>,
    /// The advice that lacks history in a pod, for the text.
    #[serde(skip)]
    pub(crate) missing: Option<String>,
}

/// Advice for a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadReport {
    /// Kind, such as `Deployment`; `Pod` for a pod without a workload.
    pub kind: String,
    /// Namespace of the workload.
    pub namespace: String,
    /// Name of the workload.
    pub name: String,
    /// Names of the pods with a report.
    pub pods: BTreeSet<String>,
    /// The containers, by name.
    pub containers: Vec<MergedContainer>,
    /// Change of the pods' QoS class by the patches; `None` if they keep it.
    pub qos_change: Option<String>,
    /// All changes.
    pub patch: Option<Value>,
}

impl WorkloadReport {
    /// Merges the reports of a workload's pods.
    #[must_use]
    pub fn of(kind: &str, namespace: &str, name: &str, rows: &[ContainerReport]) -> Self {
        let (containers, patch) = merged(rows);
        let qos_change = rows.iter().find_map(|row| row.qos_change.clone());
        Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            pods: rows.iter().map(|row| row.pod.clone()).collect(),
            containers,
            qos_change: qos_change.filter(|_| patch.is_some()),
            patch,
        }
    }

    /// Number of findings of one severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        let findings = self.containers.iter().flat_map(|container| &container.findings);
        findings.filter(|merged| merged.finding.severity == severity).count()
    }
}

/// The reports by workload: those with most warnings first, then those with most findings.
#[must_use]
pub fn by_workload(rows: &[ContainerReport]) -> Vec<WorkloadReport> {
    let mut all: BTreeMap<(&str, &str, &str), Vec<ContainerReport>> = BTreeMap::new();
    for row in rows {
        let (kind, name) = match &row.workload {
            Some(workload) => (workload.kind.as_str(), workload.name.as_str()),
            None => ("Pod", row.pod.as_str()),
        };
        all.entry((&row.namespace, name, kind)).or_default().push(row.clone());
    }
    let reports = all.into_iter();
    let mut reports: Vec<_> = reports
        .map(|((namespace, name, kind), rows)| WorkloadReport::of(kind, namespace, name, &rows))
        .collect();
    let count = |report: &WorkloadReport| {
        [Severity::Warning, Severity::Info].map(|severity| report.count(severity))
    };
    reports.sort_by_key(|report| std::cmp::Reverse(count(report)));
    reports
}

/// Merges the reports of pods with the same template, by container. The second value is the patch
/// of the workload with all changes.
#[must_use]
pub fn merged(rows: &[ContainerReport]) -> (Vec<MergedContainer>, Option<Value>) {
    let mut by_container: BTreeMap<&str, Vec<&ContainerReport>> = BTreeMap::new();
    for row in rows {
        by_container.entry(&row.container).or_default().push(row);
    }
    let containers: Vec<MergedContainer> =
        by_container.into_values().map(|rows| container(&rows)).collect();
    let findings = containers.iter().flat_map(|container| &container.findings);
    let patch = merged_patches(findings.filter_map(|merged| merged.finding.patch.as_ref()));
    (containers, patch)
}

fn container(rows: &[&ContainerReport]) -> MergedContainer {
    let mut by_kind: BTreeMap<FindingKind, Vec<(&str, &Finding)>> = BTreeMap::new();
    for row in rows {
        for finding in &row.findings {
            by_kind.entry(finding.kind).or_default().push((&row.pod, finding));
        }
    }
    let findings = by_kind.into_values().filter_map(|found| finding(&found, rows.len()));
    let mut findings: Vec<_> = findings.collect();
    findings.sort_by_key(|merged| merged.finding.severity);
    MergedContainer {
        container: rows.first().map(|row| row.container.clone()).unwrap_or_default(),
        pods: rows.len(),
        pods_without_enough_history: rows
            .iter()
            .filter(|row| row.not_enough_history.is_some())
            .count(),
        findings,
        about: rows.first().map(|row| about(row)).unwrap_or_default(),
        injected: rows.iter().flat_map(|row| row.injected.iter().map(variable)).collect(),
        missing: rows.iter().find_map(|row| row.not_enough_history.clone()),
    }
}

/// Runtime and limits of a container, each after two spaces.
fn about(row: &ContainerReport) -> String {
    let runtime = row.runtime.as_ref().and_then(api::Runtime::in_words);
    let limit = row.limit_cores.map(|limit| format!("limit {limit}"));
    // The replay of a throttled window may also be too high: it is no bound.
    let advised = row.cpu.limit.map(|limit| {
        let doubt = if limit.is_lower_bound { " (may be too low)" } else { "" };
        format!("advised {}{doubt}", limit.cores)
    });
    let parts = [runtime, limit, advised].into_iter().flatten();
    parts.map(|part| format!("  {part}")).collect()
}

/// `GOMAXPROCS=2 (stale: now 1)`.
fn variable(injected: &Injected) -> String {
    let Injected { name, value, status, current } = injected;
    let now = match (status, current) {
        (InjectionStatus::Stale, Some(current)) => format!(": now {current}"),
        (InjectionStatus::Stale, None) => ": now unset".to_owned(),
        _ => String::new(),
    };
    format!("{name}={value} ({}{now})", status.as_str())
}

/// One kind of finding in some of `of` pods.
fn finding(found: &[(&str, &Finding)], of: usize) -> Option<MergedFinding> {
    let figure = |finding: &Finding| {
        let known = RANKED.iter().find_map(|name| finding.evidence.get(*name));
        known.copied().unwrap_or_default()
    };
    let (worst_pod, worst) =
        found.iter().max_by(|(_, a), (_, b)| figure(a).total_cmp(&figure(b)))?;
    let mut finding = (*worst).clone();
    let seen = ForPods { pods: found.len(), of };
    finding.patch = found.iter().filter_map(|(_, finding)| finding.patch.clone()).reduce(larger);
    if is_decrease(finding.kind) && seen.pods < of {
        finding.patch = None;
        finding.no_patch = Some(format!("only {} of {of} pods need less", seen.pods));
    }
    Some(MergedFinding { seen, worst_pod: (*worst_pod).to_owned(), finding })
}

/// Whether the change lowers a value that another pod of the workload may need.
fn is_decrease(kind: FindingKind) -> bool {
    kind == FindingKind::RequestAboveUse
}

/// Two patches of one kind as one: of each field, the larger quantity.
fn larger(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Object(mut a), Value::Object(b)) => {
            for (name, value) in b {
                let merged = match a.remove(&name) {
                    Some(other) => larger(other, value),
                    None => value,
                };
                a.insert(name, merged);
            }
            Value::Object(a)
        }
        // Pods with the same template: the lists have the same containers.
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            Value::Array(a.into_iter().zip(b).map(|(a, b)| larger(a, b)).collect())
        }
        (a, b) => match (quantity(&a), quantity(&b)) {
            (Some(number), Some(other)) if other > number => b,
            _ => a,
        },
    }
}

/// Value of a quantity such as `640m`, `2`, `512Mi` or `1500000`.
fn quantity(value: &Value) -> Option<f64> {
    let text = value.as_str()?;
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let factor = match suffix {
        "" | "B" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "Ki" | "KiB" => 1024.0,
        "Mi" | "MiB" => 1024.0 * 1024.0,
        "Gi" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use api::Severity;
    use serde_json::json;

    use super::*;

    fn row(pod: &str, findings: Vec<Finding>) -> ContainerReport {
        ContainerReport {
            namespace: "shop".into(),
            pod: pod.into(),
            container: "app".into(),
            findings,
            ..ContainerReport::default()
        }
    }

    fn found(kind: FindingKind, section: &str, cpu: &str, figure: f64) -> Finding {
        let resources = json!({ section: { "cpu": cpu } });
        let containers = json!([{ "name": "app", "resources": resources }]);
        Finding {
            kind,
            severity: Severity::Warning,
            summary: None,
            // The limit comes first by name, and says nothing about the pod.
            evidence: [("limitCores".to_owned(), 1.0), ("throttledShare".to_owned(), figure)]
                .into(),
            windows: 10,
            patch: Some(
                json!({ "spec": { "template": { "spec": { "containers": containers } } } }),
            ),
            no_patch: None,
            figures: Vec::new(),
            docs: String::new(),
        }
    }

    fn resources(patch: &Value) -> &Value {
        &patch["spec"]["template"]["spec"]["containers"][0]["resources"]
    }

    #[test]
    fn the_pod_that_needs_most_decides_the_limit() {
        let quota = |cpu, figure| found(FindingKind::ThrottledByOwnQuota, "limits", cpu, figure);
        let rows = [
            row("web-1", vec![quota("640m", 0.3)]),
            row("web-2", vec![quota("1", 0.2)]),
            row("web-3", Vec::new()),
        ];
        let (containers, patch) = merged(&rows);
        let [container] = &containers[..] else { panic!("{containers:?}") };
        let [finding] = &container.findings[..] else { panic!("{container:?}") };
        assert_eq!(finding.seen, ForPods { pods: 2, of: 3 });
        assert_eq!(finding.worst_pod, "web-1");
        assert_eq!(resources(&patch.unwrap())["limits"]["cpu"], "1");
    }

    #[test]
    fn a_request_is_lowered_only_if_all_pods_use_less() {
        let lower = |cpu| found(FindingKind::RequestAboveUse, "requests", cpu, 0.1);
        let some = [row("web-1", vec![lower("100m")]), row("web-2", Vec::new())];
        let (containers, patch) = merged(&some);
        assert_eq!(patch, None);
        let reason = containers[0].findings[0].finding.no_patch.as_deref();
        assert_eq!(reason, Some("only 1 of 2 pods need less"));
        let all = [row("web-1", vec![lower("100m")]), row("web-2", vec![lower("250m")])];
        let (_, patch) = merged(&all);
        assert_eq!(resources(&patch.unwrap())["requests"]["cpu"], "250m");
    }

    #[test]
    fn quantities_of_different_units_are_compared_by_value() {
        let value = |text: &str| quantity(&json!(text));
        assert_eq!(value("1500m"), Some(1.5));
        assert!(value("1Gi") > value("1000Mi") && value("1G") > value("900Mi"));
        assert_eq!(value("app"), None);
        assert_eq!(larger(json!("900m"), json!("1")), json!("1"));
        assert_eq!(larger(json!("app"), json!("app")), json!("app"));
    }

    #[test]
    fn changes_of_all_containers_are_one_patch() {
        let mut sidecar =
            row("web-1", vec![found(FindingKind::NoCpuRequest, "requests", "50m", 0.0)]);
        sidecar.container = "proxy".into();
        let patch = sidecar.findings[0].patch.as_mut().unwrap();
        patch["spec"]["template"]["spec"]["containers"][0]["name"] = json!("proxy");
        let app = row("web-1", vec![found(FindingKind::ThrottledByOwnQuota, "limits", "1", 0.3)]);
        let (containers, patch) = merged(&[app, sidecar]);
        assert_eq!(
            containers.iter().map(|c| c.container.as_str()).collect::<Vec<_>>(),
            ["app", "proxy"]
        );
        let patch = patch.unwrap();
        assert_eq!(patch["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 2);
    }
}
