//! Advice as text.

use std::fmt::Write as _;

use anyhow::Context as _;
use api::{
    AdviceReport, ContainerReport, Finding, Injected, InjectionStatus, Severity, pod_patch,
    pod_patch_command,
};
use clap::ValueEnum;
use console::Failure;

/// Output format of advice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum AdviceFormat {
    /// One line per finding
    #[default]
    Table,
    /// JSON, as served by the API
    Json,
    /// The same as YAML
    Yaml,
    /// One strategic-merge patch of the workload per container, as YAML documents
    Patch,
}

/// The advice in an output format.
///
/// # Errors
/// None that this program causes.
pub fn render(report: &AdviceReport, output: AdviceFormat) -> Result<String, Failure> {
    Ok(match output {
        AdviceFormat::Table => table(report),
        AdviceFormat::Json => {
            serde_json::to_string_pretty(report).context("cannot print the advice")? + "\n"
        }
        AdviceFormat::Yaml => serde_saphyr::to_string(report).context("cannot print the advice")?,
        AdviceFormat::Patch => patches(report).context("cannot print the patches")?,
    })
}

fn table(report: &AdviceReport) -> String {
    let mut text = String::new();
    for pod in report.containers.chunk_by(of_one_pod) {
        for row in pod {
            let _ = writeln!(text, "{}", headline(row));
            for finding in &row.findings {
                let _ = writeln!(text, "  {}", finding_line(finding, ""));
                if let Some(reason) = no_change(finding) {
                    let _ = writeln!(text, "    {reason}");
                }
            }
            if row.findings.is_empty() {
                let so_far = if row.not_enough_history.is_some() { " so far" } else { "" };
                let _ = writeln!(text, "  · nothing to change{so_far}");
            }
            for injected in &row.injected {
                let _ = writeln!(text, "  + {}", variable(injected));
            }
            if let Some(missing) = &row.not_enough_history {
                let _ = writeln!(text, "  · {missing}");
            }
        }
        if let Some(change) = qos_change(pod) {
            let _ = writeln!(text, "  {change}");
        }
        if let Some(command) = pod_patch_command(pod) {
            let _ = writeln!(text, "  {command}");
        }
    }
    if text.is_empty() { "no containers\n".to_owned() } else { text }
}

/// The reason of a finding without a change.
#[must_use]
pub fn no_change(finding: &Finding) -> Option<String> {
    let reason = finding.no_patch.as_ref().filter(|_| finding.patch.is_none())?;
    Some(format!("no change: {reason}"))
}

/// Change of the pod's QoS class by the patches; `None` if they keep it.
#[must_use]
pub fn qos_change(reports: &[ContainerReport]) -> Option<String> {
    let change = reports.iter().find_map(|report| report.qos_change.as_ref())?;
    Some(format!("the changes move the pod to another QoS class: {change}"))
}

fn of_one_pod(a: &ContainerReport, b: &ContainerReport) -> bool {
    (&a.namespace, &a.pod) == (&b.namespace, &b.pod)
}

fn headline(row: &ContainerReport) -> String {
    let mut text = format!("{}/{}/{}", row.namespace, row.pod, row.container);
    if let Some(workload) = &row.workload {
        let _ = write!(text, "  of {} {}", workload.kind, workload.name);
    }
    if let Some(runtime) = &row.runtime {
        let _ =
            write!(text, "  {}", runtime.version.as_deref().unwrap_or(runtime.language.as_str()));
        if let Some(parallelism) = runtime.parallelism {
            let _ = write!(text, " ×{parallelism}");
        }
    }
    if let Some(limit) = row.limit_cores {
        let _ = write!(text, "  limit {limit}");
    }
    if let Some(limit) = row.cpu.limit {
        // The replay of a throttled window may also be too high: it is no bound.
        let doubt = if limit.is_lower_bound { " (may be too low)" } else { "" };
        let _ = write!(text, "  advised {}{doubt}", limit.cores);
    }
    text
}

/// A finding on one line: its severity, its kind, what `place` says about where it was found, and
/// the figures behind it.
#[must_use]
pub fn finding_line(finding: &Finding, place: &str) -> String {
    let mark = if finding.severity == Severity::Warning { "!" } else { "·" };
    let summary = finding.summary.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    format!("{mark} {}{place}{summary}{}", finding.kind.as_str(), figures(finding))
}

/// The figures behind a finding, each after two spaces.
fn figures(finding: &Finding) -> String {
    let mut text = String::new();
    for (name, figure) in &finding.evidence {
        let figure = (figure * 1000.0).round() / 1000.0;
        let _ = write!(text, "  {name}={figure}");
    }
    text
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

/// One document per pod with changes, under a comment that names the pod: kubectl applies only the
/// first document of a file.
fn patches(report: &AdviceReport) -> Result<String, serde_saphyr::SerializeError> {
    let mut text = String::new();
    for pod in report.containers.chunk_by(of_one_pod) {
        let Some(patch) = pod_patch(pod) else { continue };
        let (namespace, name) = (&pod[0].namespace, &pod[0].pod);
        let change = qos_change(pod).map_or(String::new(), |change| format!("# {change}\n"));
        let patch = serde_saphyr::to_string(&patch)?;
        let _ = write!(text, "---\n# {namespace}/{name}\n{change}{patch}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::{CpuAdvice, FindingKind, LimitAdvice, Workload};
    use serde_json::{Value, json};

    use super::*;

    fn row(namespace: &str, pod: &str, container: &str) -> ContainerReport {
        let patched = json!({ "name": container, "resources": { "limits": { "cpu": "2" } } });
        let finding = Finding {
            kind: FindingKind::ThrottledByOwnQuota,
            severity: Severity::Warning,
            summary: None,
            evidence: BTreeMap::new(),
            windows: 0,
            patch: Some(json!({ "spec": { "template": { "spec": { "containers": [patched] } } } })),
            no_patch: None,
            docs: String::new(),
        };
        ContainerReport {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
            workload: Some(Workload { kind: "Deployment".into(), name: "cart".into() }),
            not_enough_history: Some(
                "not enough history: 0 s of 24 h; limits from 5 min, lower requests from 24 h"
                    .into(),
            ),
            findings: vec![finding],
            ..ContainerReport::default()
        }
    }

    #[test]
    fn the_table_shows_missing_advice() {
        let text =
            table(&AdviceReport { objective: 0.01, containers: vec![row("shop", "cart", "app")] });
        let missing =
            "  · not enough history: 0 s of 24 h; limits from 5 min, lower requests from 24 h";
        assert!(text.lines().any(|line| line == missing), "{text}");
    }

    #[test]
    fn the_table_names_the_workload_and_the_command_that_changes_it() {
        let mut rows = vec![row("shop", "cart-1", "app"), row("shop", "cart-1", "it's")];
        let text = table(&AdviceReport { objective: 0.01, containers: rows.clone() });
        assert!(text.starts_with("shop/cart-1/app  of Deployment cart"), "{text}");
        let commands: Vec<&str> = text.lines().filter(|line| line.contains("kubectl")).collect();
        let [command] = commands[..] else { panic!("{text}") };
        let (head, patch) = command.split_once(" --patch ").unwrap();
        assert_eq!(head, "  kubectl --namespace shop patch deployment cart");
        let patch = patch.trim_matches('\'').replace(r"'\''", "'");
        let patch: Value = serde_json::from_str(&patch).unwrap();
        assert_eq!(patch["spec"]["template"]["spec"]["containers"][1]["name"], "it's");
        for row in &mut rows {
            row.workload = Some(Workload { kind: "Job".into(), name: "once".into() });
        }
        let text = table(&AdviceReport { objective: 0.01, containers: rows });
        assert!(!text.contains("kubectl"), "a Job's template cannot be changed: {text}");
    }

    #[test]
    fn a_limit_in_doubt_is_no_bound() {
        let headline = |is_lower_bound| {
            let limit = LimitAdvice { cores: 0.05, is_lower_bound, ..LimitAdvice::default() };
            let cpu = CpuAdvice { limit: Some(limit), ..CpuAdvice::default() };
            headline(&ContainerReport { cpu, ..row("shop", "cart", "app") })
        };
        assert!(headline(true).ends_with("  advised 0.05 (may be too low)"), "{}", headline(true));
        assert!(headline(false).ends_with("  advised 0.05"), "{}", headline(false));
    }

    #[test]
    fn a_reason_and_another_qos_class_are_said() {
        let mut reported = row("shop", "cart", "app");
        reported.qos_change = Some("BestEffort to Burstable".to_owned());
        let mut without = reported.findings[0].clone();
        (without.patch, without.no_patch) = (None, Some("not yet".to_owned()));
        reported.findings.push(without);
        let report = AdviceReport { objective: 0.01, containers: vec![reported] };
        let text = table(&report);
        let change = "the changes move the pod to another QoS class: BestEffort to Burstable";
        assert!(text.contains(&format!("\n  {change}\n")), "{text}");
        assert_eq!(text.matches("    no change: not yet\n").count(), 1, "{text}");
        let patches = patches(&report).unwrap();
        assert!(patches.starts_with(&format!("---\n# shop/cart\n# {change}\n")), "{patches}");
    }

    #[test]
    fn a_container_without_findings_is_reported_as_such() {
        let mut without_findings = row("shop", "cart", "app");
        without_findings.findings.clear();
        let text = table(&AdviceReport { objective: 0.01, containers: vec![without_findings] });
        assert!(text.contains("· nothing to change so far"), "{text}");
    }

    #[test]
    fn the_table_shows_injected_variables_with_their_status() {
        let injected = |status, current: Option<&str>| Injected {
            name: "GOMAXPROCS".to_owned(),
            value: "2".to_owned(),
            status,
            current: current.map(str::to_owned),
        };
        let cases = [
            (injected(InjectionStatus::Observed, None), "  + GOMAXPROCS=2 (observed)"),
            (injected(InjectionStatus::Injected, None), "  + GOMAXPROCS=2 (injected)"),
            (injected(InjectionStatus::Stale, Some("1")), "  + GOMAXPROCS=2 (stale: now 1)"),
            (injected(InjectionStatus::Stale, None), "  + GOMAXPROCS=2 (stale: now unset)"),
        ];
        let all = cases.iter().map(|(injected, _)| injected.clone()).collect();
        let row = ContainerReport { injected: all, ..row("shop", "cart", "app") };
        let text = table(&AdviceReport { objective: 0.01, containers: vec![row] });
        for (_, line) in cases {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_pods_patches_are_one_document_for_kubectl_reads_no_second() {
        let rows = [("bank", "cart", "app"), ("shop", "cart", "app"), ("shop", "cart", "proxy")];
        let containers =
            rows.map(|(namespace, pod, container)| row(namespace, pod, container)).into();
        let text = patches(&AdviceReport { objective: 0.01, containers }).unwrap();
        let documents: Vec<_> = text.split("---\n").skip(1).collect();
        let heads: Vec<_> =
            documents.iter().filter_map(|document| document.lines().next()).collect();
        assert_eq!(heads, ["# bank/cart", "# shop/cart"]);
        let patch: Value = serde_saphyr::from_str(documents[1]).unwrap();
        let containers = patch["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.iter().map(|one| &one["name"]).collect::<Vec<_>>(), ["app", "proxy"]);
    }
}
