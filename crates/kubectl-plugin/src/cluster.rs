//! The agents of a target's nodes, each reached through a forwarded port.

use agent_client::{AgentArgs, ConnectionArgs};
use console::Failure;

use crate::command::ClusterArgs;
use crate::{Agents, Forward, Kubectl, Resolved, Scheme};

/// The agents of a cluster.
pub(crate) struct Cluster<'a> {
    args: &'a ClusterArgs,
    kubectl: Kubectl,
    agents: Agents,
}

/// The endpoint of an agent on this machine, while the value exists.
pub(crate) struct Agent {
    /// Options of the connection.
    pub(crate) args: AgentArgs,
    forward: Forward,
}

impl<'a> Cluster<'a> {
    /// Lists the agents that a target needs.
    ///
    /// # Errors
    /// The user must not list the pods in the agents' namespace.
    pub(crate) fn new(
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
    pub(crate) fn agent(&self, node: &str) -> Result<Agent, Failure> {
        let pod = self.agents.on(node)?;
        let forward = Forward::start(&self.kubectl, pod)?;
        let ClusterArgs { tls_cert, server_name, token_file, .. } = self.args;
        let args = AgentArgs {
            address: forward.address().into(),
            tls_cert: tls_cert.clone(),
            connection: ConnectionArgs {
                server_name: server_name.clone(),
                insecure_skip_verify: tls_cert.is_none() && pod.scheme == Scheme::Https,
                token_file: token_file.clone(),
            },
        };
        Ok(Agent { args, forward })
    }

    /// As [`Cluster::agent`], for a view that stays open: when the agent's pod ends, the port is
    /// forwarded to the next one on the node.
    ///
    /// # Errors
    /// See [`Cluster::agent`].
    pub(crate) fn kept_agent(&self, node: &str) -> Result<Agent, Failure> {
        let agent = self.agent(node)?;
        let ClusterArgs { agent_namespace, agent_selector, .. } = self.args;
        let (namespace, selector) = (agent_namespace.clone(), agent_selector.clone());
        let node = node.to_owned();
        agent.forward.keep(self.kubectl.clone(), move |kubectl| {
            Agents::list(kubectl, &namespace, &selector, Some(&node))?.on(&node).cloned()
        });
        Ok(agent)
    }
}
