//! The agents of a target's nodes, each reached through a forwarded port.

use kubectl_plugin::{Agents, Error, Forward, Kubectl, Resolved, Scheme};

use super::ClusterArgs;
use crate::cli::AgentArgs;
use crate::exit::Failure;

/// The agents of a cluster.
pub(super) struct Cluster<'a> {
    args: &'a ClusterArgs,
    kubectl: Kubectl,
    agents: Agents,
}

/// The endpoint of an agent on this machine, while the value exists.
pub(super) struct Agent {
    /// Options of the connection.
    pub(super) args: AgentArgs,
    _forward: Forward,
}

impl<'a> Cluster<'a> {
    /// Lists the agents that a target needs.
    ///
    /// # Errors
    /// The user must not list the pods in the agents' namespace.
    pub(super) fn new(
        args: &'a ClusterArgs,
        kubectl: Kubectl,
        resolved: &Resolved,
    ) -> Result<Self, Failure> {
        let nodes = resolved.nodes();
        let only = nodes.first().copied().filter(|_| nodes.len() == 1);
        let agents = Agents::list(&kubectl, &args.agent_namespace, &args.agent_selector, only);
        Ok(Self { args, agents: agents?, kubectl })
    }

    /// Forwards a port to the agent of a node.
    ///
    /// # Errors
    /// No agent runs there, or the user must not forward ports to it.
    pub(super) fn agent(&self, node: &str) -> Result<Agent, Failure> {
        let pod = self.agents.on(node)?;
        let forward = Forward::start(&self.kubectl, pod)?;
        let ClusterArgs { tls_cert, server_name, token_file, .. } = self.args;
        let args = AgentArgs {
            address: forward.address(),
            tls_cert: tls_cert.clone(),
            server_name: server_name.clone(),
            insecure_skip_verify: tls_cert.is_none() && pod.scheme == Scheme::Https,
            token_file: token_file.clone(),
        };
        Ok(Agent { args, _forward: forward })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Start { .. } => Self::config(text),
            _ => Self::unavailable(text),
        }
    }
}
