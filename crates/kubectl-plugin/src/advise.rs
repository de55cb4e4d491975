//! `kubectl cpuwarden advise`.

use std::collections::BTreeSet;

use agent_client::{
    AdviceFormat, FindingFilter, MergedContainer, NO_SUCH_FINDINGS, WorkloadReport, block_on,
    render, workload_table,
};
use anyhow::Context as _;
use api::{AdviceReport, ContainerReport, of_kind};
use console::{Failure, output};
use serde::Serialize;
use serde_json::Value;

use crate::args::Of;
use crate::cluster::{Cluster, TIMEOUT, resolve, resolve_namespace};
use crate::per_node::answers;
use crate::{Resolved, Workload};

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
    /// The same for the table.
    #[serde(skip)]
    report: WorkloadReport,
}

/// Prints the advice for a target; without one, for a namespace, or for the cluster.
///
/// # Errors
/// No agent of the target's nodes answers.
pub(crate) fn advise(
    of: &Of,
    all_namespaces: bool,
    findings: &FindingFilter,
    format: AdviceFormat,
) -> Result<(), Failure> {
    let (resolved, cluster) = match of.target.is_none() && !all_namespaces {
        true => resolve_namespace(of)?,
        false => resolve(of)?,
    };
    let (mut report, missing) = reports(&cluster, &resolved)?;
    let names: BTreeSet<(&str, &str)> =
        resolved.pods().iter().map(|pod| (pod.namespace.as_str(), pod.name.as_str())).collect();
    if !matches!(resolved, Resolved::Node(_) | Resolved::Cluster(_)) {
        report.containers.retain(|row| names.contains(&(row.namespace.as_str(), row.pod.as_str())));
    }
    let is_none_left = findings.apply(&mut report);
    let text = match &resolved {
        _ if is_none_left && format == AdviceFormat::Table => NO_SUCH_FINDINGS.to_owned(),
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
    let Workload { kind, namespace, name, .. } = workload;
    let report = WorkloadReport::of(kind, namespace, name, rows);
    let WorkloadReport { containers, qos_change, patch, .. } = report.clone();
    WorkloadAdvice { kind, namespace, name, nodes, missing, containers, qos_change, patch, report }
}

fn print(advice: &WorkloadAdvice<'_>, format: AdviceFormat) -> Result<String, Failure> {
    Ok(match format {
        AdviceFormat::Table => table(advice),
        AdviceFormat::Json => {
            serde_json::to_string_pretty(advice).context("cannot print the advice")? + "\n"
        }
        AdviceFormat::Yaml => serde_saphyr::to_string(advice).context("cannot print the advice")?,
        AdviceFormat::Patch => match &advice.patch {
            Some(patch) => serde_saphyr::to_string(&of_kind(advice.kind, patch))
                .context("cannot print the patch")?,
            None => String::new(),
        },
    })
}

fn table(advice: &WorkloadAdvice<'_>) -> String {
    let WorkloadAdvice { nodes, missing, report, .. } = advice;
    let silent = match missing {
        0 => String::new(),
        _ => format!(", {missing} without an answer"),
    };
    let mut text = workload_table(report, &format!(" on {}{silent}", count(*nodes, "node")));
    if report.containers.is_empty() {
        text.push_str("no agent has seen a container of this target yet\n");
    }
    text
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
