//! `cargo xtask cluster audit`: what the agents of a fleet ask of the API server.
//!
//! The control plane is real, with an audit log of all requests. The agents run as the chart's
//! DaemonSet says: with its environment, configuration, service account and rights. Their nodes are
//! plain files; their kubelets do not have the token of an agent reviewed, as real ones do.

mod agents;
mod requests;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::session::{Cluster, wait_until};
use super::{ClusterError, Release, ensure, write};
use crate::{process, workspace};
use agents::{Agents, Container, Nodes};
use requests::{Request, counts, requests, second_of_day, spread};

/// Namespace and name of the release, and so of the service account.
const NAMESPACE: &str = "cpuwarden";
const USER: &str = "system:serviceaccount:cpuwarden:cpuwarden";
/// Files of the service account in a pod.
const SERVICE_ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";
/// Nodes and pods for which a rate is printed.
const FLEET: f64 = 4100.0;
const PODS_PER_NODE: usize = 50;
/// Namespace of the pods of the nodes.
const LOAD: &str = "load";
/// Length of the phases in which something fails or changes.
const FAULT: Duration = Duration::from_secs(60);
/// Length of a start: the first report of a node's condition comes within two minutes.
const START: Duration = Duration::from_secs(130);
const PATIENCE: Duration = Duration::from_secs(300);

/// A run.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// Number of agents.
    pub agents: usize,
    /// Length of the phase without events, and of the one after the restart.
    pub length: Duration,
    /// Only the case of this name.
    pub only: Option<String>,
}

/// Values of the chart, and what the agents may then ask.
struct Case {
    name: &'static str,
    values: &'static [&'static str],
    allowed: &'static [&'static str],
}

const CASES: [Case; 4] = [
    Case { name: "default", values: &[], allowed: &[] },
    Case {
        name: "auth",
        values: &["endpoint.auth=true", "endpoint.tls.secretName=tls"],
        allowed: &["create tokenreviews", "create subjectaccessreviews"],
    },
    Case {
        name: "apiserver",
        values: &["config.podSource=apiserver"],
        allowed: &["list pods", "watch pods"],
    },
    Case {
        name: "reports",
        values: &["events=true", "nodeCondition=true"],
        allowed: &["patch nodes/status", "create events", "patch events"],
    },
];

/// Runs the cases. Prints the requests of each phase.
pub(super) fn run(
    release: Release,
    agent: &Path,
    tests: &Path,
    options: &AuditOptions,
) -> Result<ExitCode, ClusterError> {
    let is_wanted = |case: &&Case| options.only.as_deref().is_none_or(|only| only == case.name);
    ensure(CASES.iter().any(|case| is_wanted(&case)), || {
        format!("no such case; there are {}", CASES.map(|case| case.name).join(", "))
    })?;
    let cluster = Cluster::without_node(release, tests)?;
    let nodes = Nodes::create(cluster.work(), options.agents)?;
    println!("Kubernetes {release}, {} agents", options.agents);
    for case in CASES.iter().filter(is_wanted) {
        Run { cluster: &cluster, nodes: &nodes, agent, options, case }.run()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A case that runs.
struct Run<'a> {
    cluster: &'a Cluster,
    nodes: &'a Nodes,
    agent: &'a Path,
    options: &'a AuditOptions,
    case: &'a Case,
}

impl Run<'_> {
    fn run(&self) -> Result<(), ClusterError> {
        self.install()?;
        let is_about_objects = ["apiserver", "reports"].contains(&self.case.name);
        if is_about_objects {
            self.create_objects()?;
        }
        let _prometheus = match self.case.name {
            "auth" => Some(self.scrape()?),
            _ => None,
        };
        println!(
            "\n{} {}\n\n| phase | seconds | requests of the agents | API server, cores | its memory, MiB |\n\
             |---|---|---|---|---|",
            self.case.name,
            self.case.values.join(",")
        );
        let before = self.log()?.len();
        if is_about_objects {
            self.phase("without agents", || self.nodes.run_for(FAULT))?;
            self.phase("without agents, all pods change", || self.change_pods())?;
        }
        let container = Container::installed(self.cluster)?;
        let start = || Agents::start(self.agent, &container, self.nodes);
        let length = self.options.length;
        let mut agents = self.started("start", start)?;
        self.phase("nothing occurs", || self.nodes.run_for(length))?;
        if is_about_objects {
            self.phase("all pods change", || self.change_pods())?;
        }
        self.nodes.set_kubelets(false);
        self.phase("no kubelet answers", || self.nodes.run_for(FAULT))?;
        self.nodes.set_kubelets(true);
        self.phase("new token of the agents", || {
            write_service_account(self.cluster)?;
            self.nodes.run_for(FAULT)
        })?;
        agents.check(self.nodes)?;
        self.phase("rolling update, one agent after another", || {
            agents.roll(self.agent, &container, self.nodes)
        })?;
        agents.stop();
        agents = self.started("restart of all at once", start)?;
        self.phase("after the restart", || self.nodes.run_for(length))?;
        agents.check(self.nodes)?;
        agents.stop();
        self.check(before)
    }

    /// Starts the agents in a phase, and prints when their requests came.
    fn started(
        &self,
        name: &str,
        start: impl Fn() -> Result<Agents, ClusterError>,
    ) -> Result<Agents, ClusterError> {
        let (earlier, second, began) = (self.log()?.len(), second_of_day(), Instant::now());
        let mut agents = None;
        self.phase(name, || {
            agents = Some(start()?);
            self.nodes.run_for(START.saturating_sub(began.elapsed()))
        })?;
        let requests = self.requests_since(earlier)?;
        for what in counts(&requests).into_keys() {
            let of = requests.iter().filter(|request| request.what == what);
            let seconds = of.map(|request| request.seconds_after(second)).collect();
            println!("| | | {what}: {} | | |", spread(seconds));
        }
        agents.ok_or_else(|| ClusterError::Unexpected("no agents".to_owned()))
    }

    /// Prints the requests of a phase, and what the API server needed.
    fn phase(
        &self,
        name: &str,
        run: impl FnOnce() -> Result<(), ClusterError>,
    ) -> Result<(), ClusterError> {
        let (earlier, cost, began) = (self.log()?.len(), self.cost()?, Instant::now());
        run()?;
        let seconds = began.elapsed().as_secs_f64();
        let (after, requests) = (self.cost()?, self.requests_since(earlier)?);
        let of_fleet = FLEET / (self.options.agents as f64 * seconds);
        let numbers = counts(&requests).into_iter().map(|(what, count)| {
            format!("{what}: {count}, of {FLEET} {:.1} per second", count as f64 * of_fleet)
        });
        let numbers = numbers.collect::<Vec<_>>().join("; ");
        println!(
            "| {name} | {seconds:.0} | {} | {:.2} | {:.0} |",
            if numbers.is_empty() { "0" } else { &numbers },
            (after.cpu_seconds - cost.cpu_seconds) / seconds,
            after.resident_mib,
        );
        // A pipe shows each phase when it ends.
        let _ = std::io::stdout().flush();
        Ok(())
    }

    fn log(&self) -> Result<Vec<Request>, ClusterError> {
        Ok(requests(&self.cluster.audit_log()?))
    }

    /// Requests of the agents after this number of requests of all users.
    fn requests_since(&self, earlier: usize) -> Result<Vec<Request>, ClusterError> {
        let of_agents = |request: &Request| request.user == USER;
        Ok(self.log()?.into_iter().skip(earlier).filter(of_agents).collect())
    }

    /// Prints the requests of all users, and fails on one of the agents that the case excludes.
    fn check(&self, before: usize) -> Result<(), ClusterError> {
        let all: Vec<_> = self.log()?.into_iter().skip(before).collect();
        let (of_agents, others): (Vec<_>, Vec<_>) =
            all.iter().partition(|request| request.user == USER);
        println!("\nRequests of {USER}: {}; of all other users: {}", of_agents.len(), others.len());
        let found = counts(of_agents);
        for (what, count) in &found {
            println!("- {what}: {count}");
        }
        let wrong: Vec<_> = found.keys().filter(|what| !self.case.allowed.contains(what)).collect();
        ensure(wrong.is_empty(), || format!("{}: {wrong:?}", self.case.name))?;
        ensure(self.case.allowed.is_empty() || !found.is_empty(), || {
            format!("{}: no request at all", self.case.name)
        })
    }

    /// Installs the chart, and gives the agents the files of its service account.
    fn install(&self) -> Result<(), ClusterError> {
        let chart = workspace::root().join("deploy/chart/cpuwarden").display().to_string();
        let mut arguments = vec!["upgrade", "--install", "cpuwarden", &chart];
        arguments.extend(["--create-namespace", "--namespace", NAMESPACE]);
        for value in ["image.repository=localhost/cpuwarden"].iter().chain(self.case.values) {
            arguments.extend(["--set", value]);
        }
        self.cluster.helm(&arguments)?;
        if !Path::new(SERVICE_ACCOUNT).exists() {
            // Only in this mount namespace.
            process::run(Command::new("mount").args(["-t", "tmpfs", "cpuwarden-audit", "/run"]))?;
        }
        write_service_account(self.cluster)
    }

    /// Makes the nodes and their pods, unless they are there. No kubelet runs the pods.
    fn create_objects(&self) -> Result<(), ClusterError> {
        if self.cluster.kubectl(&["get", "namespace", LOAD]).is_ok() {
            return Ok(());
        }
        self.cluster.kubectl(&["create", "namespace", LOAD])?;
        self.cluster.kubectl(&["create", "serviceaccount", "app", "--namespace", LOAD])?;
        let nodes = self
            .nodes
            .names()
            .map(|name| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        let pods = self
            .nodes
            .names()
            .flat_map(|node| (0..PODS_PER_NODE).map(move |pod| pod_of(node, pod)));
        for objects in [nodes.collect::<Vec<_>>(), pods.collect()] {
            let path = self.cluster.work().join("objects.json");
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            write(&path, list.to_string())?;
            self.cluster.kubectl(&["create", "--filename", &path.display().to_string()])?;
        }
        Ok(())
    }

    /// Changes every pod once.
    fn change_pods(&self) -> Result<(), ClusterError> {
        let label = format!("changed={}", second_of_day() as u64);
        let arguments = ["label", "pods", "--all", "--namespace", LOAD, "--overwrite", &label];
        // On a busy machine a connection is lost.
        wait_until("changed pods", PATIENCE, || Ok(self.cluster.kubectl(&arguments).is_ok()))?;
        Ok(())
    }

    fn cost(&self) -> Result<Cost, ClusterError> {
        let page = self.cluster.kubectl(&["get", "--raw", "/metrics"])?;
        let value = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
        };
        Ok(Cost {
            cpu_seconds: value("process_cpu_seconds_total"),
            resident_mib: value("process_resident_memory_bytes") / f64::from(1 << 20),
        })
    }

    /// Starts a Prometheus that scrapes the agents with a token, as a PodMonitor of the chart.
    fn scrape(&self) -> Result<Prometheus, ClusterError> {
        for arguments in [
            "create serviceaccount prometheus --namespace=default",
            "create clusterrolebinding prometheus --clusterrole=cpuwarden-cpuwarden-reader \
             --serviceaccount=default:prometheus",
        ] {
            self.cluster.kubectl(&arguments.split_whitespace().collect::<Vec<_>>())?;
        }
        let directory = self.cluster.work().join("prometheus");
        let token =
            self.cluster.kubectl(&["create", "token", "prometheus", "--namespace=default"])?;
        write(&directory.join("token"), token.trim())?;
        let targets: Vec<_> =
            self.nodes.addresses().map(|address| format!("\"{address}\"")).collect();
        let text = format!(
            "global: {{scrape_interval: 15s}}\nscrape_configs:\n  - job_name: cpuwarden\n    scheme: https\n    \
             authorization: {{credentials_file: token}}\n    tls_config: {{insecure_skip_verify: true}}\n    \
             static_configs: [{{targets: [{}]}}]\n",
            targets.join(", ")
        );
        write(&directory.join("prometheus.yaml"), text)?;
        let mut command = Command::new("prometheus");
        command.args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data"]);
        command.args(["--web.listen-address=127.0.0.1:9090", "--log.level=error"]);
        command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|source| process::start_error(&command, source))?;
        Ok(Prometheus(child))
    }
}

/// A running Prometheus; killed on drop.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Resources that the API server has used.
struct Cost {
    cpu_seconds: f64,
    resident_mib: f64,
}

fn pod_of(node: &str, number: usize) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("{node}-{number}"), "namespace": LOAD},
        "spec": {
            "nodeName": node,
            "serviceAccountName": "app",
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {"name": "app", "image": "registry.example/shop/app:1.2.3"},
                {"name": "log", "image": "registry.example/shop/log:1.2.3"},
            ],
        },
    })
}

/// Writes the files that a pod has of its service account, with a new token.
fn write_service_account(cluster: &Cluster) -> Result<(), ClusterError> {
    let directory = PathBuf::from(SERVICE_ACCOUNT);
    let namespace = format!("--namespace={NAMESPACE}");
    let token = cluster.kubectl(&["create", "token", "cpuwarden", &namespace])?;
    let authority = cluster.certificate("ca", "crt");
    let authority = fs::read(&authority).map_err(ClusterError::io(authority))?;
    write(&directory.join("ca.crt"), authority)?;
    write(&directory.join("namespace"), NAMESPACE)?;
    // The kubelet replaces it in one step.
    let (new, path) = (directory.join("token.new"), directory.join("token"));
    write(&new, token.trim())?;
    fs::rename(&new, &path).map_err(ClusterError::io(path))
}
