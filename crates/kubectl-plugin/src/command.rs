//! The kubectl plugin: `kubectl cpuwarden`, this program under the name `kubectl-cpuwarden`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use agent_client::{FindingFilter, PartArgs};
use api::{DoctorReport, PinRow};
use clap::{Parser, Subcommand};
use console::{Failure, show_doctor, show_pins};

use crate::advise::advise;
use crate::args::Of;
use crate::cluster::TIMEOUT;
use crate::fleet::{FleetArgs, fleet};
use crate::per_node;
use crate::view::top;

/// Name of the plugin, as users type it.
pub const NAME: &str = "kubectl cpuwarden";
/// Maximum time for an agent to examine its node.
const DOCTOR_TIMEOUT: Duration = Duration::from_secs(60);

const TARGETS: &str = "\
TARGET is NAME or pod/NAME, deploy/NAME, sts/NAME, ds/NAME, rs/NAME, job/NAME, cronjob/NAME, namespace/NAME, or node/NAME.
Without it, advise is about the namespace (-A: all), the other commands about all nodes. The agents are found by label and reached through the API server (pods/portforward in the agents' namespace), with your own kubeconfig.";

/// CPU throttling and contention of the pods of a cluster, as the agents on their nodes see them
#[derive(Debug, Parser)]
#[command(name = "kubectl-cpuwarden", bin_name = NAME, version = console::version(),
          after_help = TARGETS, disable_help_subcommand = true)]
pub struct Plugin {
    #[command(subcommand)]
    command: PluginCommand,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    /// Show live who is slowed on the node of a pod or on a node, by what and by whom
    Top {
        /// Node to show, of several [default: the one with most pods of the target; without a target,
        /// the one with most slowed pods]
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
        /// Print one table as plain text and exit [default if standard output is not a terminal]
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Show advice for a pod, for a workload from all its pods, or for all workloads of a namespace, a
    /// node or the cluster
    Advise {
        /// Output format: patch prints one strategic-merge patch per workload
        #[arg(short, long, value_enum, default_value_t)]
        output: agent_client::AdviceFormat,
        /// All workloads of the cluster
        #[arg(short = 'A', long, conflicts_with = "target")]
        all_namespaces: bool,
        #[command(flatten)]
        findings: FindingFilter,
        #[command(flatten)]
        of: Of,
    },
    /// Show the workloads that are slowed most over all nodes, those that slow others most, and those
    /// that CPU limits cost most
    Fleet(FleetArgs),
    /// Show what the agents of a pod's or a workload's nodes, or of a node, lack there, with a
    /// remedy for each problem
    Doctor {
        /// Print the findings as JSON; of a workload, an object with those of each node
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Show the pods with exclusive CPUs on a node, or on the nodes of a pod or a workload
    Pins {
        /// Print JSON; of a workload, an object with the pods of each node
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Copy the last minutes of a node, or of a pod's node, into a file for cpuwarden replay; of a
    /// workload on several nodes, into a file for each, with the node's name before the extension
    Snapshot {
        #[command(flatten)]
        part: PartArgs,
        #[command(flatten)]
        of: Of,
    },
}

/// Whether this program was started as the plugin.
#[must_use]
pub fn is_plugin() -> bool {
    let program = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    program
        .file_stem()
        .is_some_and(|name| name == "kubectl-cpuwarden" || name == "kubectl_cpuwarden")
}

/// Runs a command of the plugin.
///
/// # Errors
/// The target or an agent is not found, the user's rights do not suffice, or an agent does not
/// answer.
pub fn run(plugin: Plugin) -> Result<ExitCode, Failure> {
    match plugin.command {
        PluginCommand::Top { once, node, of } => top(&of, node.as_deref(), once)?,
        PluginCommand::Advise { output, all_namespaces, findings, of } => {
            advise(&of, all_namespaces, &findings, output)?;
        }
        PluginCommand::Fleet(args) => fleet(&args)?,
        PluginCommand::Doctor { json, of } => {
            let show = |report: &DoctorReport, json| show_doctor(report, json).map(drop);
            let reports = per_node::show(&of, "/api/v1/doctor", DOCTOR_TIMEOUT, json, show)?;
            let codes = reports.iter().map(|(_, report)| report.worst.exit_code());
            return Ok(ExitCode::from(codes.max().unwrap_or_default()));
        }
        PluginCommand::Pins { json, of } => {
            let show = |rows: &Vec<PinRow>, json| show_pins(rows, json);
            per_node::show(&of, "/api/v1/pins", TIMEOUT, json, show)?;
        }
        PluginCommand::Snapshot { part, of } => per_node::snapshot(&of, &part)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Plugin::command().debug_assert();
    }
}
