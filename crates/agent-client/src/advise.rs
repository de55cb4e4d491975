//! `cpuwarden advise`: prints the advice of a running agent.

use api::{AdviceReport, ContainerReport, FindingKind, Severity};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use console::{Failure, output};

use crate::args::AgentArgs;
use crate::client::{AgentClient, block_on};
use crate::render::{AdviceFormat, render};

/// Options of `cpuwarden advise`.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// Only containers of this namespace
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub namespace: Option<String>,
    /// Only containers of this pod
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub pod: Option<String>,
    /// Only containers of this workload, such as web or Deployment/web
    #[arg(long, value_name = "[KIND/]NAME", value_parser = NonEmptyStringValueParser::new())]
    pub workload: Option<String>,
    /// Findings to show.
    #[command(flatten)]
    pub findings: FindingFilter,
    /// Output format: patch prints one strategic-merge patch per workload
    #[arg(short, long, value_enum, default_value_t)]
    pub output: AdviceFormat,
    /// Options of the connection.
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// Findings to show.
#[derive(Debug, Clone, Default, Args)]
pub struct FindingFilter {
    /// Only findings of these kinds, separated by commas
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    pub kind: Vec<FindingKind>,
    /// Only warnings
    #[arg(long)]
    pub warnings: bool,
}

fn kind(text: &str) -> Result<FindingKind, String> {
    let found = FindingKind::ALL.into_iter().find(|kind| kind.as_str() == text);
    found.ok_or_else(|| {
        let known = FindingKind::ALL.map(FindingKind::as_str).join(", ");
        format!("no such kind; the kinds are {known}")
    })
}

impl FindingFilter {
    /// Removes the other findings, and then the containers without any.
    pub fn apply(&self, report: &mut AdviceReport) {
        if self.kind.is_empty() && !self.warnings {
            return;
        }
        for row in &mut report.containers {
            row.findings.retain(|finding| {
                let is_of_kind = self.kind.is_empty() || self.kind.contains(&finding.kind);
                is_of_kind && (!self.warnings || finding.severity == Severity::Warning)
            });
        }
        report.containers.retain(|row| !row.findings.is_empty());
    }
}

/// Prints a running agent's advice.
///
/// # Errors
/// No agent answers at the address, the answer is not advice, or no container is of the namespace,
/// pod and workload.
pub fn advise(args: &AdviseArgs) -> Result<(), Failure> {
    let client = AgentClient::new(&args.agent)?;
    let mut report: AdviceReport = block_on(client.get("/api/v1/advice"))?;
    select(args, &mut report.containers)?;
    args.findings.apply(&mut report);
    output::show(&render(&report, args.output)?);
    Ok(())
}

/// Keeps the containers of the namespace, the pod and the workload.
fn select(args: &AdviseArgs, rows: &mut Vec<ContainerReport>) -> Result<(), Failure> {
    let is_wanted =
        |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    let is_of_workload = |row: &ContainerReport| {
        let Some(wanted) = &args.workload else { return true };
        let Some(workload) = &row.workload else { return false };
        match wanted.split_once('/') {
            Some((kind, name)) => {
                kind.eq_ignore_ascii_case(&workload.kind) && name == workload.name
            }
            None => *wanted == workload.name,
        }
    };
    rows.retain(|row| {
        is_wanted(&args.namespace, &row.namespace)
            && is_wanted(&args.pod, &row.pod)
            && is_of_workload(row)
    });
    let named = [("namespace", &args.namespace), ("pod", &args.pod), ("workload", &args.workload)];
    let named: Vec<_> = named
        .into_iter()
        .filter_map(|(what, name)| Some(format!("{what} {}", name.as_deref()?)))
        .collect();
    if rows.is_empty() && !named.is_empty() {
        let named = named.join(", ");
        let error =
            format!("no running container of {named} on this agent's node; names are exact");
        return Err(Failure::unavailable(error));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::process::Command;

    use api::ContainerReport;
    use clap::ValueEnum as _;

    use super::*;
    use crate::args::ConnectionArgs;

    /// Answers each request with the advice.
    fn serve(listener: &TcpListener, report: &AdviceReport) {
        let body = serde_json::to_string(report).unwrap();
        for stream in listener.incoming().map(Result::unwrap) {
            let request = BufReader::new(&stream).lines().map(Result::unwrap);
            request.take_while(|line| !line.is_empty()).for_each(drop);
            let length = body.len();
            write!(&stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        }
    }

    #[test]
    fn control_characters_in_a_pods_name_do_not_reach_the_terminal() {
        let container = ContainerReport {
            namespace: "shop".into(),
            pod: "cart\x1b[2J".into(),
            qos_change: Some("\u{9b}2J".into()),
            ..ContainerReport::default()
        };
        let report = AdviceReport { objective: 0.01, containers: vec![container] };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, &report));
        let printed = Command::new(std::env::current_exe().unwrap())
            .args(["advise::tests::print_advice", "--exact", "--ignored", "--nocapture"])
            .env("AGENT", address.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8(printed.stdout).unwrap();
        assert!(printed.status.success() && text.contains("shop/cart\u{fffd}[2J\n"), "{text:?}");
        assert!(!text.contains(['\x1b', '\u{9b}']), "{text:?}");
    }

    /// Runs in a process of its own.
    #[test]
    #[ignore = "started by another test"]
    fn print_advice() {
        let address = std::env::var("AGENT").unwrap().parse().unwrap();
        let connection = ConnectionArgs::default();
        let agent = AgentArgs { address, tls_cert: None, connection };
        let mut args = AdviseArgs {
            namespace: None,
            pod: None,
            workload: None,
            findings: FindingFilter::default(),
            output: AdviceFormat::Table,
            agent,
        };
        for output in AdviceFormat::value_variants() {
            args.output = *output;
            advise(&args).unwrap();
        }
    }
}
