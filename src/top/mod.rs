//! `cpuwarden top`: the terminal view of a running agent, or of this machine where none runs.

mod change;
mod local;
pub(crate) mod remote;
mod view;

use std::io::IsTerminal as _;
use std::net::TcpStream;
use std::time::Duration;

use advisor::Report;
use analysis::Severity;
use top::{Advice, Change};

use change::changed_fields;
#[cfg(feature = "demo")]
pub(crate) use view::{columns, show};

use crate::cli::{DEFAULT_ADDRESS, TopArgs};
use crate::client::AgentClient;
use crate::exit::Failure;

/// Time in which an agent of this machine accepts a connection.
const CONNECT: Duration = Duration::from_millis(500);

/// Shows the view until the user leaves or a signal comes; with `--once`, or if standard output is
/// not a terminal, prints one table.
///
/// # Errors
/// No agent answers at the address, or this process cannot measure by itself.
pub(crate) fn top(args: TopArgs) -> Result<(), Failure> {
    let is_once = args.once || !std::io::stdout().is_terminal();
    let runs_here = || TcpStream::connect_timeout(&DEFAULT_ADDRESS, CONNECT).is_ok();
    if args.address.is_some() || runs_here() {
        remote::top(AgentClient::new(&args.agent())?, String::new(), is_once)
    } else {
        local::top(args, is_once)
    }
}

/// Findings in the form of the view.
pub(crate) fn advice(report: Report) -> Vec<Advice> {
    let change = |finding: &analysis::Finding| Change {
        is_warning: finding.severity == Severity::Warning,
        finding: finding.kind.as_str().to_owned(),
        change: changed_fields(finding),
    };
    let advice = |row: advisor::ContainerReport| Advice {
        changes: row.findings.iter().map(change).collect(),
        pending: row.not_enough_history.unwrap_or_default(),
        namespace: row.namespace,
        pod: row.pod,
        container: row.container,
    };
    report.containers.into_iter().map(advice).collect()
}
