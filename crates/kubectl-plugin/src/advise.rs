//! `kubectl cpuwarden advise`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use agent_client::{AdviceFormat, block_on, finding_line, no_change, qos_change, render};
use anyhow::Context as _;
use api::{AdviceReport, ContainerReport, patch_command};
use console::{Failure, output};
use serde::Serialize;
use serde_json::Value;

use crate::args::Of;
use crate::cluster::{Cluster, TIMEOUT, resolve};
use crate::per_node::answers;
use crate::{MergedContainer, Resolved, Workload, merged};

/// Advice for a workload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadAdvice<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    /// Number of nodes with pods of the workload.
    nodes: usize,
    /// Nodes whose agent did not answer.
    missing: usize,
    containers: Vec<MergedContainer>,
    /// Change of the pods' QoS class by the patches; `None` if they keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    qos_change: Option<String>,
    /// All changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Value>,
}

/// Prints the advice for a target.
///
/// # Errors
/// No agent of the target's nodes answers.
pub(crate) fn advise(of: &Of, format: AdviceFormat) -> Result<(), Failure> {
    let (resolved, cluster) = resolve(of)?;
    let (mut report, missing) = reports(&cluster, &resolved)?;
    let names: BTreeSet<(&str, &str)> =
        resolved.pods().iter().map(|pod| (pod.namespace.as_str(), pod.name.as_str())).collect();
    if !matches!(resolved, Resolved::Node(_)) {
        report.containers.retain(|row| names.contains(&(row.namespace.as_str(), row.pod.as_str())));
    }
    let text = match &resolved {
        Resolved::Workload(workload) => {
            let nodes = resolved.nodes().len();
            print(&of_workload(workload, nodes, missing, &report.containers), format)?
        }
        _ => render(&report, format)?,
    };
    output::show(&text);
    Ok(())
}

/// The reports of the agents of all nodes as one, and the number of nodes without one.
fn reports(cluster: &Cluster<'_>, resolved: &Resolved) -> Result<(AdviceReport, usize), Failure> {
    let answers = answers(cluster, resolved, TIMEOUT, |client, _| {
        block_on(client.get::<AdviceReport>("/api/v1/advice"))
    })?;
    let mut all = AdviceReport { objective: 0.0, containers: Vec::new() };
    for (_, report) in answers.found {
        all.objective = report.objective;
        all.containers.extend(report.containers);
    }
    Ok((all, answers.missing))
}

fn of_workload<'a>(
    workload: &'a Workload,
    nodes: usize,
    missing: usize,
    rows: &[ContainerReport],
) -> WorkloadAdvice<'a> {
    let (containers, patch) = merged(rows);
    let Workload { kind, namespace, name, .. } = workload;
    let qos_change = qos_change(rows).filter(|_| patch.is_some());
    WorkloadAdvice { kind, namespace, name, nodes, missing, containers, qos_change, patch }
}

fn print(advice: &WorkloadAdvice<'_>, format: AdviceFormat) -> Result<String, Failure> {
    Ok(match format {
        AdviceFormat::Table => table(advice),
        AdviceFormat::Json => {
            serde_json::to_string_pretty(advice).context("cannot print the advice")? + "\n"
        }
        AdviceFormat::Yaml => serde_saphyr::to_string(advice).context("cannot print the advice")?,
        AdviceFormat::Patch => match &advice.patch {
            Some(patch) => serde_saphyr::to_string(patch).context("cannot print the patch")?,
            None => String::new(),
        },
    })
}

fn table(advice: &WorkloadAdvice<'_>) -> String {
    let WorkloadAdvice { kind, namespace, name, nodes, missing, .. } = advice;
    let mut text = format!("{kind} {namespace}/{name} on {}", count(*nodes, "node"));
    if *missing > 0 {
        let _ = write!(text, ", {missing} without an answer");
    }
    text.push('\n');
    for container in &advice.containers {
        let _ = writeln!(text, "{}: {}", container.container, count(container.pods, "pod"));
        for merged in &container.findings {
            let finding = &merged.finding;
            let (seen, of, worst) = (merged.seen.pods, merged.seen.of, &merged.worst_pod);
            let place = format!(" in {seen} of {of}, most in {worst}:");
            let _ = writeln!(text, "  {}", finding_line(finding, &place));
            if let Some(reason) = no_change(finding) {
                let _ = writeln!(text, "    {reason}");
            }
        }
        if container.findings.is_empty() {
            let _ = writeln!(text, "  · nothing to change");
        }
        if container.pods_without_enough_history > 0 {
            let pods = count(container.pods_without_enough_history, "pod");
            let _ = writeln!(text, "  · more advice comes later: too little history of {pods}");
        }
    }
    if advice.containers.is_empty() {
        text.push_str("no agent has seen a container of this target yet\n");
    }
    if let Some(change) = &advice.qos_change {
        let _ = writeln!(text, "{change}");
    }
    let command =
        advice.patch.as_ref().and_then(|patch| patch_command(namespace, kind, name, patch));
    if let Some(command) = command {
        let _ = writeln!(text, "{command}");
    }
    text
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
