//! Advice as text.

use std::fmt::Write as _;

use anyhow::Context as _;
use api::{AdviceReport, Finding, Severity, figures_in_words, of_kind, patch_command};
use clap::ValueEnum;
use console::Failure;

use crate::merged::{MergedContainer, WorkloadReport, by_workload};

/// Output format of advice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum AdviceFormat {
    /// The findings by workload
    #[default]
    Table,
    /// JSON, as served by the API
    Json,
    /// The same as YAML
    Yaml,
    /// One strategic-merge patch per workload, as YAML documents
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

/// The findings by workload, those with warnings first, under their number. Workloads without
/// findings are only counted, unless there is one workload.
fn table(report: &AdviceReport) -> String {
    let workloads = by_workload(&report.containers);
    if let [only] = &workloads[..] {
        return workload_table(only, "");
    }
    let count = |severity| workloads.iter().map(|workload| workload.count(severity)).sum();
    let (warnings, others): (usize, usize) = (count(Severity::Warning), count(Severity::Info));
    let (with, without): (Vec<_>, Vec<_>) = workloads.iter().partition(|workload| {
        workload.count(Severity::Warning) + workload.count(Severity::Info) > 0
    });
    let mut text = match report.containers.len() {
        0 => return "no containers\n".to_owned(),
        containers => format!(
            "{} ({}) in {} of {}, {}\n",
            counted(warnings + others, "finding"),
            counted(warnings, "warning"),
            with.len(),
            counted(workloads.len(), "workload"),
            counted(containers, "container"),
        ),
    };
    for workload in with {
        let _ = write!(text, "\n{}", workload_table(workload, ""));
    }
    let lacking = without.iter().flat_map(|workload| &workload.containers);
    let lacking: usize = lacking.map(|container| container.pods_without_enough_history).sum();
    if !without.is_empty() {
        let so_far = match lacking {
            0 => String::new(),
            _ => format!(" so far: too little history of {}", counted(lacking, "container")),
        };
        let others = counted(without.len(), "workload");
        let _ = writeln!(text, "\nnothing to change in {others}{so_far}");
    }
    text
}

/// The findings of one workload; `place` follows its name.
#[must_use]
pub fn workload_table(workload: &WorkloadReport, place: &str) -> String {
    let WorkloadReport { kind, namespace, name, pods, containers, qos_change, patch } = workload;
    let only_pod = pods.first().filter(|pod| pods.len() == 1 && *pod != name);
    let pod = only_pod.map(|pod| format!(", pod {pod}")).unwrap_or_default();
    let mut text = format!("{kind} {namespace}/{name}{pod}{place}\n");
    for container in containers {
        let of_pods = match pods.len() {
            1 => String::new(),
            _ => format!("  {}", counted(container.pods, "pod")),
        };
        let _ = writeln!(text, "{}:{of_pods}{}", container.container, container.about);
        write_findings(&mut text, container);
    }
    if let Some(change) = qos_change {
        let _ = writeln!(text, "{}", in_another_class(change));
    }
    let command = patch.as_ref().and_then(|patch| patch_command(namespace, kind, name, patch));
    if let Some(command) = command {
        let _ = writeln!(text, "{command}");
    } else if patch.is_some() && kind == "Rollout" {
        text.push_str("kubectl patch would replace the containers of a Rollout: change its template, see -o patch\n");
    }
    text
}

fn write_findings(text: &mut String, container: &MergedContainer) {
    for merged in &container.findings {
        let (finding, seen) = (&merged.finding, merged.seen);
        let place = match seen.of {
            1 => String::new(),
            of => format!(" in {} of {of}, most in {}", seen.pods, merged.worst_pod),
        };
        let _ = writeln!(text, "  {}", finding_line(finding, &place));
        if let Some(reason) = no_change(finding) {
            let _ = writeln!(text, "    {reason}");
        }
    }
    let lacking = container.pods_without_enough_history;
    if container.findings.is_empty() {
        let so_far = if lacking > 0 { " so far" } else { "" };
        let _ = writeln!(text, "  · nothing to change{so_far}");
    }
    for variable in &container.injected {
        let _ = writeln!(text, "  + {variable}");
    }
    match (&container.missing, container.pods) {
        (Some(missing), 1) => drop(writeln!(text, "  · {missing}")),
        (Some(_), _) => {
            let pods = counted(lacking, "pod");
            let _ = writeln!(text, "  · more advice comes later: too little history of {pods}");
        }
        (None, _) => {}
    }
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The reason of a finding without a change.
#[must_use]
pub(crate) fn no_change(finding: &Finding) -> Option<String> {
    let reason = finding.no_patch.as_ref().filter(|_| finding.patch.is_none())?;
    Some(format!("no change: {reason}"))
}

fn in_another_class(change: &str) -> String {
    format!("the changes move the pod to another QoS class: {change}")
}

/// A finding on one line: its severity, its kind, what `place` says about where it was found, and
/// the figures behind it.
#[must_use]
pub(crate) fn finding_line(finding: &Finding, place: &str) -> String {
    let mark = if finding.severity == Severity::Warning { "!" } else { "·" };
    let figures = figures_in_words(&finding.evidence).join(", ");
    let said = finding.summary.clone().into_iter().chain(Some(figures));
    let said: Vec<_> = said.filter(|text| !text.is_empty()).collect();
    let colon = if said.is_empty() { "" } else { ": " };
    format!("{mark} {}{place}{colon}{}", finding.kind.as_str(), said.join("; "))
}

/// One document per workload with changes, under a comment that names it: kubectl applies only the
/// first document of a file.
fn patches(report: &AdviceReport) -> Result<String, serde_saphyr::SerializeError> {
    let mut text = String::new();
    for workload in by_workload(&report.containers) {
        let Some(patch) = &workload.patch else { continue };
        let WorkloadReport { kind, namespace, name, qos_change, .. } = &workload;
        let change = qos_change.as_deref().map(in_another_class);
        let change = change.map(|change| format!("# {change}\n")).unwrap_or_default();
        let patch = serde_saphyr::to_string(&of_kind(kind, patch))?;
        let _ = write!(text, "---\n# {kind} {namespace}/{name}\n{change}{patch}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::{
        ContainerReport, CpuAdvice, FindingKind, Injected, InjectionStatus, LimitAdvice, Workload,
    };
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
            figures: Vec::new(),
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
        assert!(text.starts_with("Deployment shop/cart, pod cart-1\napp:"), "{text}");
        let commands: Vec<&str> = text.lines().filter(|line| line.contains("kubectl")).collect();
        let [command] = commands[..] else { panic!("{text}") };
        let (head, patch) = command.split_once(" --patch ").unwrap();
        assert_eq!(head, "kubectl --namespace shop patch deployment cart");
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
        let line = |is_lower_bound| {
            let limit = LimitAdvice { cores: 0.05, is_lower_bound, ..LimitAdvice::default() };
            let cpu = CpuAdvice { limit: Some(limit), ..CpuAdvice::default() };
            let row = ContainerReport { cpu, ..row("shop", "cart", "app") };
            let text = table(&AdviceReport { objective: 0.01, containers: vec![row] });
            text.lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(line(true), "app:  advised 0.05 (may be too low)");
        assert_eq!(line(false), "app:  advised 0.05");
    }

    #[test]
    fn findings_are_grouped_by_workload_and_counted() {
        let mut rows: Vec<_> =
            ["cart-1", "cart-2", "cart-3"].map(|pod| row("shop", pod, "app")).into();
        rows[2].findings.clear();
        let mut idle = row("shop", "idle", "app");
        (idle.workload, idle.not_enough_history) = (None, None);
        idle.findings.clear();
        let mut info = row("shop", "web-1", "app");
        info.workload = Some(Workload { kind: "StatefulSet".into(), name: "web".into() });
        info.findings[0].severity = Severity::Info;
        rows.splice(0..0, [idle, info]);
        let text = table(&AdviceReport { objective: 0.01, containers: rows });
        let head: Vec<_> = text.lines().take(5).collect();
        let expected = [
            "2 findings (1 warning) in 2 of 3 workloads, 5 containers",
            "",
            "Deployment shop/cart",
            "app:  3 pods",
            "  ! throttled-by-own-quota in 2 of 3, most in cart-2",
        ];
        assert_eq!(head, expected, "{text}");
        assert!(text.contains("\nStatefulSet shop/web, pod web-1\n"), "{text}");
        assert!(text.ends_with("\n\nnothing to change in 1 workload\n"), "{text}");
    }

    #[test]
    fn a_finding_is_said_in_words() {
        let mut finding = row("shop", "cart", "app").findings.remove(0);
        finding.evidence =
            [("throttledShare".to_owned(), 0.32), ("limitCores".to_owned(), 0.2)].into();
        let line = finding_line(&finding, "");
        assert_eq!(
            line,
            "! throttled-by-own-quota: limit 0.2 cores, throttled 32 % of the periods"
        );
        finding.summary = Some("slowed".to_owned());
        assert!(finding_line(&finding, " in 1 of 2").contains(" in 1 of 2: slowed; limit"));
    }

    #[test]
    fn a_reason_and_another_qos_class_are_said() {
        let mut reported = row("shop", "cart", "app");
        reported.qos_change = Some("BestEffort to Burstable".to_owned());
        let mut without = reported.findings[0].clone();
        (without.patch, without.no_patch) = (None, Some("not yet".to_owned()));
        without.kind = FindingKind::RequestAboveUse;
        reported.findings.push(without);
        let report = AdviceReport { objective: 0.01, containers: vec![reported] };
        let text = table(&report);
        let change = "the changes move the pod to another QoS class: BestEffort to Burstable";
        assert!(text.contains(&format!("\n{change}\n")), "{text}");
        assert_eq!(text.matches("    no change: not yet\n").count(), 1, "{text}");
        let patches = patches(&report).unwrap();
        assert!(
            patches.starts_with(&format!("---\n# Deployment shop/cart\n# {change}\n")),
            "{patches}"
        );
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
    fn a_workloads_patches_are_one_document_for_kubectl_reads_no_second() {
        let rows = [("bank", "cart", "app"), ("shop", "cart", "app"), ("shop", "cart", "proxy")];
        let containers =
            rows.map(|(namespace, pod, container)| row(namespace, pod, container)).into();
        let text = patches(&AdviceReport { objective: 0.01, containers }).unwrap();
        let documents: Vec<_> = text.split("---\n").skip(1).collect();
        let heads: Vec<_> =
            documents.iter().filter_map(|document| document.lines().next()).collect();
        assert_eq!(
            heads,
            ["# Deployment shop/cart", "# Deployment bank/cart"],
            "most warnings first"
        );
        let patch: Value = serde_saphyr::from_str(documents[0]).unwrap();
        let containers = patch["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.iter().map(|one| &one["name"]).collect::<Vec<_>>(), ["app", "proxy"]);
    }
}
