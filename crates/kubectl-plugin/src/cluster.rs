//! The agents of a target's nodes, each reached through a forwarded port.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use agent_client::{AgentArgs, AgentClient, ConnectionArgs};
use console::Failure;

use crate::args::{ClusterArgs, Of};
use crate::target::namespace;
use crate::{Agents, Forward, Kubectl, Resolved, Scheme};

/// Maximum time for an agent to answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// Number of agents that are asked at the same time.
pub(crate) const AT_ONCE: usize = 8;

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

/// The target as it is in the cluster, with the agents of its nodes. Without a target, all nodes.
pub(crate) fn resolve(of: &Of) -> Result<(Resolved, Cluster<'_>), Failure> {
    let Some(target) = &of.target else { return resolve_all(&of.cluster) };
    let kubectl = of.cluster.kubectl();
    let resolved = target.resolve(&kubectl)?;
    let cluster = Cluster::new(&of.cluster, kubectl, &resolved)?;
    Ok((resolved, cluster))
}

/// All nodes with an agent.
pub(crate) fn resolve_all(args: &ClusterArgs) -> Result<(Resolved, Cluster<'_>), Failure> {
    let cluster = Cluster::of_all(args, args.kubectl())?;
    Ok((Resolved::Cluster(cluster.agents.nodes()?), cluster))
}

/// The same for the namespace of the options or of the context, in the place of a target.
pub(crate) fn resolve_namespace(of: &Of) -> Result<(Resolved, Cluster<'_>), Failure> {
    let kubectl = of.cluster.kubectl();
    let name = match &of.cluster.namespace {
        Some(name) => name.clone(),
        None => kubectl.namespace()?,
    };
    let resolved = namespace(&kubectl, name)?;
    let cluster = Cluster::new(&of.cluster, kubectl, &resolved)?;
    Ok((resolved, cluster))
}

impl<'a> Cluster<'a> {
    /// Lists the agents that a target needs.
    ///
    /// # Errors
    /// The user may not list the pods in the agents' namespace.
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

    fn of_all(args: &'a ClusterArgs, kubectl: Kubectl) -> Result<Self, Failure> {
        let agents = Agents::list(&kubectl, &args.agent_namespace, &args.agent_selector, None)?;
        Ok(Self { args, agents, kubectl })
    }

    /// Forwards a port to the agent of a node.
    ///
    /// # Errors
    /// No agent runs there, or the user may not forward ports to it.
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

    /// Asks the agent of each node, several at the same time; the answers are in the order of the
    /// nodes. `timeout` is the maximum time of an answer.
    pub(crate) fn ask<T: Send>(
        &self,
        nodes: &BTreeSet<&str>,
        timeout: Duration,
        question: impl Fn(&AgentClient, &str) -> Result<T, Failure> + Sync,
    ) -> Vec<Result<T, Failure>> {
        let ask = |node: &str| {
            let agent = self.agent(node)?;
            question(&AgentClient::new(&agent.args)?.with_timeout(timeout), node)
        };
        let nodes: Vec<&str> = nodes.iter().copied().collect();
        let answers = |some: &[&str]| {
            thread::scope(|scope| {
                let asked: Vec<_> = some.iter().map(|node| scope.spawn(|| ask(node))).collect();
                let answers = asked
                    .into_iter()
                    .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
                answers.collect::<Vec<_>>()
            })
        };
        nodes.chunks(AT_ONCE).flat_map(answers).collect()
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
