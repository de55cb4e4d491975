//! The kubectl plugin: `kubectl cpuwarden`, this program under the name `kubectl-cpuwarden`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use agent_client::{AgentClient, PartArgs, block_on, save};
use clap::{Args, Parser, Subcommand};
use console::Failure;
use pinning_commands::{PinRow, show_rows};
use serde::de::DeserializeOwned;

use crate::advise::advise;
use crate::cluster::Cluster;
use crate::{Kubectl, Resolved, Target};

/// Maximum time for an agent to answer, and to examine its node.
const TIMEOUT: Duration = Duration::from_secs(10);
const DOCTOR_TIMEOUT: Duration = Duration::from_secs(60);

const TARGETS: &str = "\
TARGET is NAME or pod/NAME, deploy/NAME, sts/NAME, ds/NAME, rs/NAME, job/NAME, or node/NAME. Its agents are found by
label and reached through the API server (pods/portforward in the agents' namespace), with your own kubeconfig.";

/// CPU throttling and contention of the pods of a cluster, as the agents on their nodes see them
#[derive(Debug, Parser)]
#[command(name = "kubectl-cpuwarden", bin_name = "kubectl cpuwarden", version = console::version(),
          after_help = TARGETS, disable_help_subcommand = true)]
pub struct Plugin {
    #[command(subcommand)]
    command: PluginCommand,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    /// Show live who is delayed on the node of a pod or on a node, by what and by whom
    Top {
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
    /// Show what the agent of a node, or of a pod's node, lacks there, with a remedy for each problem
    Doctor {
        /// Print the findings as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Show the pods with exclusive CPUs on a node, or on a pod's node
    Pins {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Copy the last minutes of a node, or of a pod's node, into a file for cpuwarden replay
    Snapshot {
        #[command(flatten)]
        part: PartArgs,
        #[command(flatten)]
        of: Of,
    },
}

/// The target, and the way to its agents.
#[derive(Debug, Args)]
pub(crate) struct Of {
    /// Pod, workload or node
    #[arg(value_name = "TARGET")]
    target: Target,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Namespace of the target [default: the one of the context]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Path of the kubeconfig [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The kubectl to run: path, or name in PATH
    #[arg(long, value_name = "FILE", default_value = "kubectl")]
    pub(crate) kubectl: PathBuf,
    /// Namespace of the agents
    #[arg(
        long,
        value_name = "NAME",
        env = "CPUWARDEN_AGENT_NAMESPACE",
        default_value = "cpuwarden"
    )]
    pub(crate) agent_namespace: String,
    /// Labels of the agents
    #[arg(long, value_name = "LABELS", default_value = "app.kubernetes.io/name=cpuwarden")]
    pub(crate) agent_selector: String,
    /// PEM file of the agents' certificate or its CA's [default: no verification of the agents'
    /// certificate, as the API server and the kubelet already ensure that the pod is the right one]
    #[arg(long, value_name = "FILE", requires = "server_name")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Required name in a certificate that a CA signed
    #[arg(long, value_name = "NAME", requires = "tls_cert")]
    pub(crate) server_name: Option<String>,
    /// File with a bearer token, for agents whose endpoint requires one
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl ClusterArgs {
    fn kubectl(&self) -> Kubectl {
        let option = |name: &str, value: Option<OsString>| {
            value.map(|value| {
                let mut option = OsString::from(format!("--{name}="));
                option.push(value);
                option
            })
        };
        let options = [
            option("context", self.context.clone().map(OsString::from)),
            option("kubeconfig", self.kubeconfig.clone().map(OsString::from)),
            option("namespace", self.namespace.clone().map(OsString::from)),
        ];
        Kubectl::new(self.kubectl.clone(), options.into_iter().flatten().collect())
    }
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
        PluginCommand::Top { once, of } => top(&of, once)?,
        PluginCommand::Advise { output, of } => advise(&of, output)?,
        PluginCommand::Doctor { json, of } => {
            let report: ::doctor::DoctorReport = get(&of, "/api/v1/doctor", DOCTOR_TIMEOUT)?;
            return doctor::show(&report, json);
        }
        PluginCommand::Pins { json, of } => {
            let rows: Vec<PinRow> = get(&of, "/api/v1/pins", TIMEOUT)?;
            show_rows(&rows, json)?;
        }
        PluginCommand::Snapshot { part, of } => {
            with_one(&of, TIMEOUT, |client| save(client, &part))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the JSON at a path of the target's agent.
fn get<T: DeserializeOwned>(of: &Of, path: &str, timeout: Duration) -> Result<T, Failure> {
    with_one(of, timeout, |client| block_on(client.get(path)))
}

/// Runs an action with the agent of the only node of a target.
fn with_one<T>(
    of: &Of,
    timeout: Duration,
    action: impl FnOnce(&AgentClient) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (resolved, cluster) = resolve(of)?;
    let agent = cluster.agent(one_node(&of.target, &resolved)?)?;
    action(&AgentClient::new(&agent.args)?.with_timeout(timeout))
}

/// The target as it is in the cluster, with the agents of its nodes.
pub(crate) fn resolve(of: &Of) -> Result<(Resolved, Cluster<'_>), Failure> {
    let kubectl = of.cluster.kubectl();
    let resolved = of.target.resolve(&kubectl)?;
    let cluster = Cluster::new(&of.cluster, kubectl, &resolved)?;
    Ok((resolved, cluster))
}

fn top(of: &Of, is_once: bool) -> Result<(), Failure> {
    use std::io::IsTerminal as _;
    let (resolved, cluster) = resolve(of)?;
    let node = one_node(&of.target, &resolved)?;
    let filter = match &resolved {
        Resolved::Pod(pod) => format!("{}/{}", pod.namespace, pod.name),
        Resolved::Workload(workload) => format!("{}/{}", workload.namespace, workload.name),
        Resolved::Node(_) => String::new(),
    };
    let agent = cluster.kept_agent(node)?;
    let is_once = is_once || !std::io::stdout().is_terminal();
    top_commands::show_agent(AgentClient::new(&agent.args)?, filter, is_once)
}

/// The node of the target.
///
/// # Errors
/// There are several; the message lists the pods by node.
fn one_node<'a>(target: &Target, resolved: &'a Resolved) -> Result<&'a str, Failure> {
    let nodes = resolved.nodes();
    match nodes.iter().copied().collect::<Vec<_>>()[..] {
        [node] => Ok(node),
        _ => {
            let pods = resolved.pods().iter().map(|pod| format!("{} on {}", pod.name, pod.node));
            let pods = pods.collect::<Vec<_>>().join(", ");
            Err(Failure::config(format!(
                "{target} runs on {} nodes, and this command shows one: name a pod or node/NAME; {pods}",
                nodes.len()
            )))
        }
    }
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

    #[test]
    fn a_target_on_several_nodes_is_rejected_with_its_pods() {
        let pod = |name: &str, node: &str| PodOnNode {
            namespace: "shop".into(),
            name: name.into(),
            uid: String::new(),
            node: node.into(),
        };
        let workload = |pods| {
            let (kind, namespace, name) = ("Deployment".into(), "shop".into(), "web".into());
            Resolved::Workload(Workload { kind, namespace, name, pods })
        };
        let target: Target = "deploy/web".parse().unwrap();
        let one = workload(vec![pod("web-1", "a"), pod("web-2", "a")]);
        assert_eq!(one_node(&target, &one).unwrap(), "a");
        let two = workload(vec![pod("web-1", "a"), pod("web-2", "b")]);
        let error = one_node(&target, &two).unwrap_err().to_string();
        assert!(error.contains("2 nodes") && error.ends_with("web-1 on a, web-2 on b"), "{error}");
    }
}
