//! Agents that run as the chart's DaemonSet says, each on a node of plain files.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::super::network::API_SERVICE_ADDRESS;
use super::super::session::{Cluster, wait_until};
use super::super::{ClusterError, write};
use super::NAMESPACE;
use crate::fleet::node::PlainNode;
use crate::process;

const FIRST_PORT: usize = 20_000;
/// Maximum time for all agents to listen.
const START: Duration = Duration::from_secs(180);
/// Time between two agents of a rolling update.
const BETWEEN: Duration = Duration::from_secs(5);
/// Pods per node: the requests do not depend on it.
const PODS: usize = 5;
/// Names of the container's environment.
const KUBELET_URL: &str = "CPUWARDEN_KUBELET_READONLY_URL";
const HOST_CERTIFICATE: &str = "CPUWARDEN_KUBELET_HOST_CERTIFICATE";

/// Nodes with their kubelets. The counters move when told.
pub(super) struct Nodes {
    nodes: Vec<(PlainNode, String)>,
    directory: PathBuf,
    began: Instant,
}

impl Nodes {
    pub(super) fn create(directory: &Path, count: usize) -> Result<Self, ClusterError> {
        let new = |number| Ok(PlainNode::create(directory, number, PODS)?);
        let nodes = (0..count).map(new).collect::<Result<_, ClusterError>>()?;
        Ok(Self { nodes, directory: directory.to_owned(), began: Instant::now() })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|(node, _)| node.name.as_str())
    }

    /// Addresses of the agents.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        (0..self.nodes.len()).map(address)
    }

    /// Lets the kubelets answer, or not.
    pub(super) fn set_kubelets(&self, answer: bool) {
        for (node, _) in &self.nodes {
            node.kubelet_is_down.store(!answer, Ordering::Relaxed);
        }
    }

    /// Moves the counters for a while.
    pub(super) fn run_for(&self, length: Duration) -> Result<(), ClusterError> {
        let end = Instant::now() + length;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_secs(1));
            self.nodes.iter().try_for_each(|(node, _)| node.advance(self.began.elapsed()))?;
        }
        Ok(())
    }
}

/// Settings that the chart gives the agent's container.
pub(super) struct Container {
    environment: BTreeMap<String, String>,
    /// Whether the kubelet is a source of pods.
    uses_kubelet: bool,
    configuration: PathBuf,
    certificate: [PathBuf; 2],
}

impl Container {
    /// Reads the installed objects.
    pub(super) fn installed(cluster: &Cluster) -> Result<Self, ClusterError> {
        let namespace = format!("--namespace={NAMESPACE}");
        let get = |kind: &str| cluster.get(&[kind, "cpuwarden", &namespace]);
        let (daemon_set, map) = (get("daemonset")?, get("configmap")?);
        let text = map["data"]["cpuwarden.yaml"].as_str().unwrap_or_default();
        let configuration = cluster.work().join("cpuwarden.yaml");
        write(&configuration, text)?;
        Ok(Self {
            environment: environment(&daemon_set),
            uses_kubelet: !text.contains("podSource: apiserver"),
            configuration,
            certificate: ["crt", "key"].map(|kind| cluster.certificate("kube-apiserver", kind)),
        })
    }

    /// The environment with the places of a node. Variables that the chart does not set stay unset.
    fn on(&self, number: usize, nodes: &Nodes) -> BTreeMap<String, String> {
        let (node, kubelet) = &nodes.nodes[number];
        let path = |path: &Path| path.display().to_string();
        let mut environment = self.environment.clone();
        for (name, value) in [
            ("NODE_IP", "127.0.0.1".to_owned()),
            ("CPUWARDEN_NODE_NAME", node.name.clone()),
            ("CPUWARDEN_CONFIG", path(&self.configuration)),
            ("CPUWARDEN_LISTEN", address(number).to_string()),
            ("CPUWARDEN_CGROUP_ROOT", path(&node.root)),
            ("CPUWARDEN_RECORD", path(&node.root.join("recording"))),
            ("CPUWARDEN_TLS_CERT", path(&self.certificate[0])),
            ("CPUWARDEN_TLS_KEY", path(&self.certificate[1])),
        ] {
            environment.entry(name.to_owned()).and_modify(|placed| *placed = value);
        }
        let address = environment.get("NODE_IP").cloned().unwrap_or_default();
        for value in environment.values_mut() {
            *value = value.replace("$(NODE_IP)", &address);
        }
        // The kubelet of such a node has no certificate.
        environment.remove(HOST_CERTIFICATE);
        if self.uses_kubelet {
            environment.insert(KUBELET_URL.to_owned(), kubelet.clone());
        }
        environment.insert("KUBERNETES_SERVICE_HOST".to_owned(), API_SERVICE_ADDRESS.to_owned());
        environment.insert("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned());
        environment
    }
}

/// Environment of the agent's container; empty values where the node sets them.
fn environment(daemon_set: &Value) -> BTreeMap<String, String> {
    let container = &daemon_set["spec"]["template"]["spec"]["containers"][0];
    let of = |variable: &Value| {
        let value = variable["value"].as_str().unwrap_or_default();
        Some((variable["name"].as_str()?.to_owned(), value.to_owned()))
    };
    container["env"].as_array().into_iter().flatten().filter_map(of).collect()
}

/// Running agents; killed on drop.
pub(super) struct Agents(Vec<Child>);

impl Agents {
    /// Starts all at once. Returns when all listen.
    pub(super) fn start(
        program: &Path,
        container: &Container,
        nodes: &Nodes,
    ) -> Result<Self, ClusterError> {
        let mut agents = Self(Vec::new());
        for number in 0..nodes.nodes.len() {
            agents.0.push(start_agent(number, program, container, nodes)?);
        }
        wait_until("port of every agent", START, || {
            agents.check(nodes)?;
            Ok(nodes.addresses().all(|address| TcpStream::connect(address).is_ok()))
        })?;
        Ok(agents)
    }

    /// Replaces one after another, each when the last one listens, as a rolling update does.
    pub(super) fn roll(
        &mut self,
        program: &Path,
        container: &Container,
        nodes: &Nodes,
    ) -> Result<(), ClusterError> {
        for number in 0..self.0.len() {
            terminate(&self.0[number]);
            let _ = self.0[number].wait();
            self.0[number] = start_agent(number, program, container, nodes)?;
            wait_until("port of the new agent", START, || {
                self.check(nodes)?;
                Ok(TcpStream::connect(address(number)).is_ok())
            })?;
            nodes.run_for(BETWEEN)?;
        }
        Ok(())
    }

    /// Fails if one has ended, with the end of its log.
    pub(super) fn check(&mut self, nodes: &Nodes) -> Result<(), ClusterError> {
        for (number, agent) in self.0.iter_mut().enumerate() {
            if let Ok(Some(status)) = agent.try_wait() {
                let log = nodes.directory.join(format!("agent-{number}.log"));
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let last = text.lines().last().unwrap_or_default();
                return Err(ClusterError::Unexpected(format!("agent {number}: {status}: {last}")));
            }
        }
        Ok(())
    }

    /// Ends all as the kubelet does, and waits.
    pub(super) fn stop(mut self) {
        self.0.iter().for_each(terminate);
        for agent in &mut self.0 {
            let _ = agent.wait();
        }
        self.0.clear();
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for agent in &mut self.0 {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

fn start_agent(
    number: usize,
    program: &Path,
    container: &Container,
    nodes: &Nodes,
) -> Result<Child, ClusterError> {
    let log = nodes.directory.join(format!("agent-{number}.log"));
    let file = File::options().append(true).create(true).open(&log);
    let mut command = Command::new(program);
    command.arg("run").env_clear().envs(container.on(number, nodes));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(file.map_err(ClusterError::io(log))?);
    Ok(command.spawn().map_err(|source| process::start_error(&command, source))?)
}

fn terminate(agent: &Child) {
    let _ = kill_process(Pid::from_child(agent), Signal::TERM);
}

fn address(number: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], (FIRST_PORT + number) as u16))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_has_the_variables_of_the_chart_in_the_places_of_its_node() {
        let directory = tempfile::tempdir().unwrap();
        let nodes = Nodes::create(directory.path(), 2).unwrap();
        let variables = json!([
            {"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            {"name": "CPUWARDEN_NODE_NAME", "valueFrom": {}},
            {"name": "CPUWARDEN_KUBELET_URL", "value": "https://$(NODE_IP):10250"},
            {"name": HOST_CERTIFICATE, "value": "/kubelet.crt"},
            {"name": "CPUWARDEN_LISTEN", "value": "[::]:9753"},
            {"name": "CPUWARDEN_METRICS_AUTH", "value": "true"},
        ]);
        let set = json!({"spec": {"template": {"spec": {"containers": [{"env": variables}]}}}});
        let mut container = Container {
            environment: environment(&set),
            uses_kubelet: true,
            configuration: "/cpuwarden.yaml".into(),
            certificate: ["/tls.crt".into(), "/tls.key".into()],
        };
        let on = container.on(1, &nodes);
        assert_eq!(on["CPUWARDEN_KUBELET_URL"], "https://127.0.0.1:10250");
        assert_eq!(on["CPUWARDEN_NODE_NAME"], "node-1");
        assert_eq!(on["CPUWARDEN_LISTEN"], "127.0.0.1:20001");
        assert_eq!(on["CPUWARDEN_METRICS_AUTH"], "true");
        assert_eq!(on[KUBELET_URL], nodes.nodes[1].1);
        assert!(!on.contains_key("CPUWARDEN_TLS_CERT") && !on.contains_key(HOST_CERTIFICATE));
        container.uses_kubelet = false;
        assert!(!container.on(1, &nodes).contains_key(KUBELET_URL));
    }
}
