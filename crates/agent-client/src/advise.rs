//! `cpuwarden advise`: prints the advice of a running agent.

use api::{AdviceReport, ContainerReport, FindingKind, Severity};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use console::{Failure, nearest, output};

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

/// The table if a filter leaves no finding.
pub const NO_SUCH_FINDINGS: &str = "no such findings\n";

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
    /// Removes the other findings, and then the containers without any. Returns whether it
    /// removed all containers.
    pub fn apply(&self, report: &mut AdviceReport) -> bool {
        if self.kind.is_empty() && !self.warnings || report.containers.is_empty() {
            return false;
        }
        for row in &mut report.containers {
            row.findings.retain(|finding| {
                let is_of_kind = self.kind.is_empty() || self.kind.contains(&finding.kind);
                is_of_kind && (!self.warnings || finding.severity == Severity::Warning)
            });
        }
        report.containers.retain(|row| !row.findings.is_empty());
        report.containers.is_empty()
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
    let is_none_left = args.findings.apply(&mut report);
    output::show(&match args.output {
        AdviceFormat::Table if is_none_left => NO_SUCH_FINDINGS.to_owned(),
        output => render(&report, output)?,
    });
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
    let meant = meant(args, rows);
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
        let remedy =
            meant.map_or_else(|| ELSEWHERE.to_owned(), |name| format!("did you mean {name}?"));
        return Err(Failure::unavailable(format!(
            "no running container of {named} on this agent's node; {remedy}"
        )));
    }
    Ok(())
}

/// Remedy for names of which nothing runs on the node.
const ELSEWHERE: &str = "names are exact: cpuwarden advise without them lists all of this node, and kubectl cpuwarden advise finds the \
                         node of a pod";

/// The namespace or pod on the node that is probably meant by one that is not there.
fn meant(args: &AdviseArgs, rows: &[ContainerReport]) -> Option<String> {
    let near = |wanted: &Option<String>, name: fn(&ContainerReport) -> &str| {
        let wanted = wanted.as_deref()?;
        let is_there = rows.iter().any(|row| name(row) == wanted);
        nearest(wanted, rows.iter().map(name)).filter(|_| !is_there).map(str::to_owned)
    };
    near(&args.namespace, |row| &row.namespace).or_else(|| near(&args.pod, |row| &row.pod))
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
        let mut args = args(&std::env::var("AGENT").unwrap());
        for output in AdviceFormat::value_variants() {
            args.output = *output;
            advise(&args).unwrap();
        }
    }
    fn args(address: &str) -> AdviseArgs {
        let connection = ConnectionArgs::default();
        let agent = AgentArgs { address: address.parse().unwrap(), tls_cert: None, connection };
        AdviseArgs {
            namespace: None,
            pod: None,
            workload: None,
            findings: FindingFilter::default(),
            output: AdviceFormat::Table,
            agent,
        }
    }

    fn rows() -> Vec<ContainerReport> {
        let row = |namespace: &str, pod: &str| ContainerReport {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: "app".to_owned(),
            ..ContainerReport::default()
        };
        vec![row("shop", "checkout-0"), row("bank", "ledger-0")]
    }

    #[test]
    fn a_pod_that_is_not_on_the_node_is_an_error_that_says_what_to_do() {
        let selected = |namespace: Option<&str>, pod: &str| {
            let (namespace, pod) = (namespace.map(str::to_owned), Some(pod.to_owned()));
            let args = AdviseArgs { namespace, pod, ..args("127.0.0.1:1") };
            let mut rows = rows();
            select(&args, &mut rows).map(|()| rows.len()).map_err(|failure| failure.to_string())
        };
        assert_eq!(selected(None, "checkout-0"), Ok(1));
        let error = selected(None, "nosuch").unwrap_err();
        assert!(error.starts_with("no running container of pod nosuch on this agent's node; "));
        assert!(error.contains("cpuwarden advise without them lists all of this node"), "{error}");
        assert!(error.contains("kubectl cpuwarden advise finds the node"), "{error}");
        let mistyped = selected(None, "chekout-0").unwrap_err();
        assert!(mistyped.ends_with("; did you mean checkout-0?"), "{mistyped}");
        let mistyped = selected(Some("shp"), "checkout-0").unwrap_err();
        assert!(mistyped.ends_with("; did you mean shop?"), "{mistyped}");
        // Both are there, but not together.
        let error = selected(Some("bank"), "checkout-0").unwrap_err();
        assert!(error.contains("of namespace bank, pod checkout-0 on this"), "{error}");
        assert!(!error.contains("did you mean"), "{error}");
    }

    #[test]
    fn a_filter_that_leaves_nothing_is_told_from_no_containers() {
        let calm = FindingFilter { warnings: true, ..FindingFilter::default() };
        let report = |containers| AdviceReport { objective: 0.01, containers };
        let mut full = report(rows());
        assert!(calm.apply(&mut full) && full.containers.is_empty());
        assert!(!calm.apply(&mut report(Vec::new())), "there were no containers");
        let mut unfiltered = report(rows());
        assert!(!FindingFilter::default().apply(&mut unfiltered));
        assert_eq!(unfiltered.containers.len(), 2);
    }
}
