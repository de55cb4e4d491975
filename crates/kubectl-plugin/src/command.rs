//! The kubectl plugin: `kubectl cpuwarden`, this program under the name `kubectl-cpuwarden`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use agent_client::{AgentClient, PartArgs};
use api::{DoctorReport, PinRow};
use clap::{Parser, Subcommand};
use console::{Failure, show_doctor, show_pins, stderr};
use top::Shown;

use crate::advise::advise;
use crate::args::Of;
use crate::cluster::{TIMEOUT, resolve};
use crate::{Resolved, Target, per_node};

/// Name of the plugin, as users type it.
pub const NAME: &str = "kubectl cpuwarden";
/// Maximum time for an agent to examine its node.
const DOCTOR_TIMEOUT: Duration = Duration::from_secs(60);

const TARGETS: &str = "\
TARGET is NAME or pod/NAME, deploy/NAME, sts/NAME, ds/NAME, rs/NAME, job/NAME, or node/NAME. Its agents are found by
label and reached through the API server (pods/portforward in the agents' namespace), with your own kubeconfig.";

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
        /// Node to show, of a workload on several nodes [default: the one with most of its pods]
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
        /// Print one table as plain text and exit [default if standard output is not a terminal]
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Show advice for a pod, for a workload from all its pods, or for all pods of a node
    Advise {
        /// Output format: patch prints one strategic-merge patch of the workload
        #[arg(short, long, value_enum, default_value_t)]
        output: agent_client::AdviceFormat,
        #[command(flatten)]
        of: Of,
    },
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
        PluginCommand::Advise { output, of } => advise(&of, output)?,
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

fn top(of: &Of, wanted: Option<&str>, is_once: bool) -> Result<(), Failure> {
    use std::io::IsTerminal as _;
    let (resolved, cluster) = resolve(of)?;
    let (node, note) = node_to_show(&of.target, &resolved, wanted)?;
    let agent = cluster.kept_agent(node)?;
    let is_once = is_once || !std::io::stdout().is_terminal();
    let mut shown = shown(&resolved);
    match note {
        Some(note) if is_once => stderr::say(note),
        note => shown.notes.extend(note),
    }
    top::show_agent(AgentClient::new(&agent.args)?, shown, is_once)
}

/// The pods of the target, by their exact names.
fn shown(resolved: &Resolved) -> Shown {
    let label = match resolved {
        Resolved::Pod(pod) => format!("{}/{}", pod.namespace, pod.name),
        Resolved::Workload(workload) => format!("{}/{}", workload.namespace, workload.name),
        Resolved::Node(_) => return Shown::default(),
    };
    let pods = resolved.pods().iter().map(|pod| (pod.namespace.clone(), pod.name.clone()));
    Shown { label, pods: Some(pods.collect()), notes: Vec::new() }
}

/// The node of a target: the wanted one, or the one with most pods of the target. If there are
/// several nodes, also a sentence that names them.
///
/// # Errors
/// The target is not on the wanted node.
fn node_to_show<'a>(
    target: &Target,
    resolved: &'a Resolved,
    wanted: Option<&str>,
) -> Result<(&'a str, Option<String>), Failure> {
    let mut pods: BTreeMap<&str, usize> =
        resolved.nodes().into_iter().map(|node| (node, 0)).collect();
    resolved.pods().iter().for_each(|pod| *pods.entry(&pod.node).or_default() += 1);
    let counted: Vec<String> =
        pods.iter().map(|(node, count)| format!("{node} ({count})")).collect();
    let nodes = counted.join(", ");
    // On a tie, the first by name.
    let most = || pods.iter().rev().max_by_key(|(_, count)| **count);
    let chosen = match wanted {
        Some(wanted) => pods.get_key_value(wanted),
        None => most(),
    };
    let Some((node, count)) = chosen else {
        let wanted = wanted.unwrap_or_default();
        return Err(Failure::config(format!(
            "--node: {target} is not on node {wanted}; its nodes, with the number of pods: {nodes}"
        )));
    };
    let note = format!(
        "{target} is on {} nodes; this is {node} with {count} of its {} pods; --node shows another: {nodes}",
        pods.len(),
        resolved.pods().len(),
    );
    Ok((*node, (pods.len() > 1).then_some(note)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PodOnNode, Workload};
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Plugin::command().debug_assert();
    }

    fn pod(name: &str, node: &str) -> PodOnNode {
        PodOnNode {
            namespace: "shop".into(),
            name: name.into(),
            uid: String::new(),
            node: node.into(),
        }
    }

    fn workload(pods: Vec<PodOnNode>) -> Resolved {
        let (kind, namespace, name) = ("Deployment".into(), "shop".into(), "web".into());
        Resolved::Workload(Workload { kind, namespace, name, pods })
    }

    #[test]
    fn the_node_with_most_pods_of_a_workload_is_shown_or_the_wanted_one() {
        let target: Target = "deploy/web".parse().unwrap();
        let one = workload(vec![pod("web-1", "a"), pod("web-2", "a")]);
        assert_eq!(node_to_show(&target, &one, None).unwrap(), ("a", None));

        let more = workload(vec![pod("web-1", "a"), pod("web-2", "b"), pod("web-3", "b")]);
        let (node, note) = node_to_show(&target, &more, None).unwrap();
        let expected = "deploy/web is on 2 nodes; this is b with 2 of its 3 pods; --node shows another: a (1), b (2)";
        assert_eq!((node, note.as_deref()), ("b", Some(expected)));
        assert_eq!(node_to_show(&target, &more, Some("a")).unwrap().0, "a");
        let error = node_to_show(&target, &more, Some("c")).unwrap_err().to_string();
        assert!(error.starts_with("--node: deploy/web is not on node c"), "{error}");
        assert!(error.ends_with("a (1), b (2)"), "{error}");

        let equal = workload(vec![pod("web-1", "b"), pod("web-2", "a")]);
        assert_eq!(node_to_show(&target, &equal, None).unwrap().0, "a");
        let node = Resolved::Node("n1".to_owned());
        assert_eq!(node_to_show(&target, &node, None).unwrap(), ("n1", None));
    }

    #[test]
    fn the_view_shows_the_pods_of_the_target_by_their_exact_names() {
        let name = |name: &str| ("shop".to_owned(), name.to_owned());
        let one = shown(&Resolved::Pod(pod("web-1", "a")));
        assert_eq!((one.label.as_str(), one.pods), ("shop/web-1", Some(vec![name("web-1")])));
        let all = shown(&workload(vec![pod("web-1", "a"), pod("web-2", "b")]));
        let names = Some(vec![name("web-1"), name("web-2")]);
        assert_eq!((all.label.as_str(), all.pods), ("shop/web", names));
        assert_eq!(shown(&Resolved::Node("a".to_owned())).pods, None);
    }
}
