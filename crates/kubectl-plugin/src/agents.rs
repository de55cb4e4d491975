//! The agents of a cluster.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kubectl::{Error, Kubectl};
use crate::target::{items, pod, text};

/// Name of the port and of the container in the chart.
const PORT_NAME: &str = "metrics";

/// Protocol of an agent's endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

/// The agent of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPod {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Port of the endpoint.
    pub port: u16,
    /// Protocol of the endpoint.
    pub scheme: Scheme,
}

/// The agents by node, from one list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    namespace: String,
    selector: String,
    by_node: BTreeMap<String, AgentPod>,
}

impl Agents {
    /// Lists the agents in a namespace. With `node`, only the one there.
    ///
    /// # Errors
    /// The user may not list pods there, or kubectl fails.
    pub fn list(
        kubectl: &Kubectl,
        namespace: &str,
        selector: &str,
        node: Option<&str>,
    ) -> Result<Self, Error> {
        let field = node.map(|node| format!("--field-selector=spec.nodeName={node}"));
        let mut arguments = vec!["pods", "--namespace", namespace, "--selector", selector];
        arguments.extend(field.as_deref());
        let list = kubectl.get(&arguments)?;
        Ok(Self {
            namespace: namespace.to_owned(),
            selector: selector.to_owned(),
            by_node: items(&list).iter().filter_map(agent).collect(),
        })
    }

    /// Names of the nodes with an agent.
    ///
    /// # Errors
    /// There is none.
    pub fn nodes(&self) -> Result<Vec<String>, Error> {
        if self.by_node.is_empty() {
            let Self { namespace, selector, .. } = self;
            return Err(Error::NoAgent(format!(
                "no running agent: no pod with label {selector} in namespace {namespace}; set \
                 --agent-namespace and --agent-selector if it is installed elsewhere"
            )));
        }
        Ok(self.by_node.keys().cloned().collect())
    }

    /// The agent on a node.
    ///
    /// # Errors
    /// There is none.
    pub fn on(&self, node: &str) -> Result<&AgentPod, Error> {
        self.by_node.get(node).ok_or_else(|| {
            let Self { namespace, selector, .. } = self;
            Error::NoAgent(format!(
                "no running agent on node {node}: no pod with label {selector} in namespace \
                 {namespace}; set --agent-namespace and --agent-selector if it is installed elsewhere"
            ))
        })
    }
}

/// A running agent with its node.
fn agent(object: &Value) -> Option<(String, AgentPod)> {
    let place = pod(object)?;
    if object["status"]["phase"] != "Running" || object["metadata"]["deletionTimestamp"].is_string()
    {
        return None;
    }
    let containers = object["spec"]["containers"].as_array()?;
    let (container, port) = containers.iter().find_map(|container| {
        let ports = container["ports"].as_array()?;
        let port = ports.iter().find(|port| port["name"] == PORT_NAME)?;
        Some((container, u16::try_from(port["containerPort"].as_u64()?).ok()?))
    })?;
    let probe = &container["readinessProbe"]["httpGet"]["scheme"];
    let scheme = if text(probe) == "HTTPS" { Scheme::Https } else { Scheme::Http };
    let agent = AgentPod { namespace: place.namespace, name: place.name, port, scheme };
    Some((place.node, agent))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(phase: &str, scheme: &str) -> Value {
        json!({
            "metadata": { "namespace": "cpuwarden", "name": "cpuwarden-x", "uid": "1" },
            "spec": {
                "nodeName": "a",
                "containers": [
                    { "name": "sidecar", "ports": [{ "name": "http", "containerPort": 80 }] },
                    {
                        "name": "cpuwarden",
                        "ports": [{ "name": "metrics", "containerPort": 9753 }],
                        "readinessProbe": { "httpGet": { "scheme": scheme } },
                    },
                ],
            },
            "status": { "phase": phase },
        })
    }

    #[test]
    fn the_port_and_the_protocol_come_from_the_pod() {
        let (node, found) = agent(&object("Running", "HTTPS")).unwrap();
        assert_eq!((node.as_str(), found.port, found.scheme), ("a", 9753, Scheme::Https));
        assert_eq!(agent(&object("Running", "HTTP")).unwrap().1.scheme, Scheme::Http);
    }

    #[test]
    fn an_agent_that_ends_or_has_not_started_is_left_out() {
        assert!(agent(&object("Pending", "HTTP")).is_none());
        let mut ending = object("Running", "HTTP");
        ending["metadata"]["deletionTimestamp"] = json!("2026-11-22T00:00:00Z");
        assert!(agent(&ending).is_none());
    }

    #[test]
    fn a_node_without_an_agent_is_reported_with_the_remedy() {
        let agents = Agents {
            namespace: "cpuwarden".into(),
            selector: "app=cpuwarden".into(),
            by_node: BTreeMap::new(),
        };
        let error = agents.on("b").unwrap_err().to_string();
        assert!(error.contains("node b") && error.contains("--agent-namespace"), "{error}");
    }
}
