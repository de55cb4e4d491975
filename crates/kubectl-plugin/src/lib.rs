//! The kubectl plugin: its commands, the pods of a workload, the agents on their nodes, a forwarded
//! port, and advice for a workload from the reports of its pods.
//!
//! Every access to the cluster is a call of `kubectl`, with the user's own kubeconfig: its
//! contexts, credential plugins and proxies work as they do there. The rights needed are to get the
//! named object, to list pods in its namespace and in the agent's, and to create `pods/portforward`
//! in the agent's namespace.

mod advise;
mod agents;
mod args;
mod cluster;
mod command;
mod fleet;
mod forward;
mod kubectl;
mod per_node;
#[cfg(test)]
mod script;
mod target;
mod view;

pub use agents::{AgentPod, Agents, Scheme};
pub use command::{NAME, Plugin, is_plugin, run};
pub use forward::Forward;
pub use kubectl::{Error, Kubectl};
pub use target::{PodOnNode, Resolved, Target, Workload};
