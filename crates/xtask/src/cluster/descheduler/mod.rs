//! `cargo xtask cluster descheduler`: which pods the real descheduler moves, and how many, if it
//! chooses nodes by PSI and by the agent's contention.
//!
//! API server, controller manager, scheduler, Prometheus and descheduler are real. The three nodes
//! are subtrees of this machine's cgroups: one with pods that only their own limits throttle, one
//! with two pods that need more than its CPU together, and one without load. An evicted pod ends,
//! and the scheduler chooses a node for its successor. What was measured before each run of the
//! descheduler, and its log, are in `target/descheduler` afterwards.

mod measures;
mod nodes;

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use super::network::HOST_ADDRESS;
use super::session::{Cluster, wait_until};
use super::{ClusterError, Release, binaries, ensure, pods, write};
use crate::{process, workspace};
use measures::{Measures, PROMETHEUS, Values};
use nodes::{Cgroups, Kubelet, NODES};

const API_SERVER: &str = "https://10.100.0.1";
/// Path of the service account's token in a pod.
const SERVICE_ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";
const TIMEOUT: Duration = Duration::from_secs(600);
/// Between the last change and the first sample that shows only what came after it.
const MARGIN: Duration = Duration::from_secs(20);
/// `targetThresholds` of the policy.
const THRESHOLD: f64 = 0.10;
/// Maximum number of runs of the descheduler by one query.
const ROUNDS: usize = 3;

/// What the descheduler chooses nodes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Pressure stall information
    Psi,
    /// The agent's contention
    Contention,
}

/// A query by which the descheduler chooses nodes.
struct Query {
    by: By,
    name: &'static str,
    text: &'static str,
    /// Window of its rate.
    window: Duration,
}

/// That of OpenShift's profile PrometheusCPUPSIPressure, but at most 1: the descheduler does nothing
/// while one value is above 1, as a rate of something that always grows is at times.
const PSI: Query = Query {
    by: By::Psi,
    name: "PSI",
    text: "clamp_max(rate(node_pressure_cpu_waiting_seconds_total[1m]), 1)",
    window: Duration::from_secs(60),
};
/// The query of the policy in the documentation.
const CONTENTION: Query = Query {
    by: By::Contention,
    name: "contention",
    text: "instance:cpuwarden_contention:ratio_rate5m",
    window: Duration::from_secs(300),
};

/// Two pods with a limit of 3 ms per 100 ms each, which always want more.
const LIMITED: &str = r#"{name: main, image: none, command: [sh, -c, "while :; do :; done"],
          resources: {requests: {cpu: 30m}, limits: {cpu: 30m}}}"#;
/// Two pods that need 60 ms of CPU time between pauses of 40 ms: too much for one CPU. Their weight is
/// that of the pods with a limit. With ten times the weight, each 3 ms of such a pod next to them take
/// up to 33 ms: contention, but not what is shown here.
const BUSY: &str = r#"{name: main, image: none, command: [perl, "-MTime::HiRes=clock,sleep", -e,
          "while (1) { $end = clock + 0.06; 1 while clock < $end; sleep 0.04 }"],
          resources: {requests: {cpu: 30m}}}"#;
/// What every node has: the agent's pod, for example.
const DAEMON: &str = r"{name: main, image: none, command: [sleep, infinity],
          resources: {requests: {cpu: 10m}}}";

/// What the descheduler did by one query.
struct Outcome {
    /// Evicted pods: name and node.
    evicted: Vec<(String, String)>,
    /// Whether no node is above the threshold in the end.
    is_calm: bool,
}

impl Outcome {
    /// By PSI pods move that are only throttled; by contention no other than contended ones, until
    /// the nodes are calm.
    fn check(&self, by: By) -> Result<(), ClusterError> {
        let from = |node: &str| self.evicted.iter().filter(|(_, from)| from == node).count();
        let expected = match by {
            By::Psi => from("throttled") > 0,
            By::Contention => {
                self.is_calm && from("contended") > 0 && from("contended") == self.evicted.len()
            }
        };
        ensure(expected, || format!("by {by:?}: calm {}, {:?}", self.is_calm, self.evicted))
    }
}

/// Deschedules by one query after the other, in this namespace. Prints a table, and checks it.
pub(super) fn run(
    release: Release,
    agent: &Path,
    tests: &Path,
    only: Option<By>,
) -> Result<ExitCode, ClusterError> {
    let cluster = Cluster::without_node(release, tests)?;
    let _cgroups = Cgroups::create(&cluster)?;
    let kubelet = Kubelet::default();
    thread::scope(|scope| {
        scope.spawn(|| kubelet.run(&cluster));
        let done = Experiment::start(&cluster, &kubelet, agent)
            .and_then(|experiment| experiment.run(only));
        kubelet.stop();
        done
    })?;
    Ok(ExitCode::SUCCESS)
}

struct Experiment<'a> {
    cluster: &'a Cluster,
    kubelet: &'a Kubelet,
    measures: Measures,
    descheduler: PathBuf,
}

impl<'a> Experiment<'a> {
    fn start(
        cluster: &'a Cluster,
        kubelet: &'a Kubelet,
        agent: &Path,
    ) -> Result<Self, ClusterError> {
        let token = service_account(cluster)?;
        let measures = Measures::start(cluster, agent, &token)?;
        cluster.apply(&workload("DaemonSet", "daemon", "", DAEMON))?;
        Ok(Self { cluster, kubelet, measures, descheduler: binaries::descheduler()? })
    }

    fn run(&self, only: Option<By>) -> Result<(), ClusterError> {
        println!(
            "descheduler {}, Kubernetes {}. Each cell: PSI, contention, pods\n\n\
             | by | run | throttled | contended | idle | evicted |\n|---|---|---|---|---|---|",
            binaries::DESCHEDULER,
            self.cluster.release()
        );
        for query in [&PSI, &CONTENTION] {
            if only.is_none_or(|by| by == query.by) {
                self.outcome(query)?.check(query.by)?;
            }
        }
        Ok(())
    }

    /// Starts the pods of two nodes and runs the descheduler until it evicts none.
    fn outcome(&self, query: &Query) -> Result<Outcome, ClusterError> {
        self.place("limited", "throttled", LIMITED)?;
        self.place("busy", "contended", BUSY)?;
        self.await_pods(NODES.len() + 4)?;
        let mut outcome = Outcome { evicted: Vec::new(), is_calm: false };
        for run in 1..=ROUNDS {
            thread::sleep(query.window + MARGIN);
            let observed = self.observe(query)?;
            let mut values = observed.query.iter().flatten();
            outcome.is_calm = values.all(|&value| value <= THRESHOLD);
            let cells = observed.cells();
            let (evicted, log) = self.deschedule(query)?;
            let raw = format!("{}: {}\n{observed}\n{log}", query.name, query.text);
            let name = format!("descheduler/{}-{run}.txt", query.name.to_lowercase());
            write(&workspace::target_dir().join(name), raw)?;
            let names: Vec<_> = evicted
                .iter()
                .map(|(pod, node)| format!("{} from {node}", workload_of(pod)))
                .collect();
            let names = if names.is_empty() { "none".into() } else { names.join(", ") };
            println!("| {} | {run} | {cells} | {names} |", query.name);
            if evicted.is_empty() {
                break;
            }
            outcome.evicted.extend(evicted);
        }
        self.cluster.kubectl(&["delete", "deployment", "--all"])?;
        self.await_pods(NODES.len())?;
        Ok(outcome)
    }

    /// Starts two pods on a node that may move later.
    fn place(&self, name: &str, node: &str, container: &str) -> Result<(), ClusterError> {
        let others = NODES.map(|one| one.name);
        let others: Vec<_> = others.into_iter().filter(|&other| other != node).collect();
        self.cluster.kubectl(&[&["cordon"], &others[..]].concat())?;
        self.cluster.apply(&workload("Deployment", name, "replicas: 2, ", container))?;
        wait_until("scheduled pods", TIMEOUT, || {
            let pods = self.cluster.get(&["pods", "--selector", &format!("app={name}")])?;
            let on_node = pods::items(&pods).filter(|pod| pod["spec"]["nodeName"] == node);
            Ok(on_node.count() == 2)
        })?;
        self.cluster.kubectl(&[&["uncordon"], &others[..]].concat()).map(drop)
    }

    /// Waits until this number of pods run and no other pod exists.
    fn await_pods(&self, count: usize) -> Result<(), ClusterError> {
        let settled = wait_until("running pods", TIMEOUT, || {
            // On a busy machine requests time out.
            let Ok(pods) = self.cluster.get(&["pods"]) else { return Ok(false) };
            let is_running = |pod: &serde_json::Value| {
                pod["status"]["phase"] == "Running"
                    && pod["metadata"]["deletionTimestamp"].is_null()
            };
            Ok(pods::items(&pods).count() == count && pods::items(&pods).all(is_running))
        });
        settled.map(drop)
    }

    /// Runs the descheduler once, as in a pod. Returns the pods that it evicted, and its log.
    fn deschedule(&self, query: &Query) -> Result<(Vec<(String, String)>, String), ClusterError> {
        let before = self.kubelet.deleted().len();
        let policy = self.cluster.work().join("policy.yaml");
        write(&policy, policy_with(query)?)?;
        let mut command = Command::new(&self.descheduler);
        command.arg("--policy-config-file").arg(policy);
        // Without an interval it runs once.
        command.args(["--descheduling-interval=0", "--v=1"]);
        command.env("KUBERNETES_SERVICE_HOST", HOST_ADDRESS).env("KUBERNETES_SERVICE_PORT", "443");
        let path = self.cluster.work().join("descheduler.log");
        command.stderr(File::create(&path).map_err(ClusterError::io(&path))?);
        process::run(&mut command)?;
        // Its exit status does not report a plugin's error.
        let log = fs::read_to_string(&path).map_err(ClusterError::io(&path))?;
        let error = log.lines().find(|line| line.contains("finished with error"));
        ensure(error.is_none(), || error.unwrap_or_default().to_owned())?;
        self.await_pods(NODES.len() + 4)?;
        Ok((self.kubelet.deleted().split_off(before), log))
    }

    fn observe(&self, query: &Query) -> Result<Observed, ClusterError> {
        let window = query.window.as_secs();
        let psi = format!("rate(node_pressure_cpu_waiting_seconds_total[{window}s])");
        let contention = format!(
            "label_replace(rate(cpuwarden_node_contention_seconds_total{{bound=\"lower\"}}[{window}s]), \
             \"instance\", \"$1\", \"node\", \"(.+)\")"
        );
        let pods = self.cluster.get(&["pods"])?;
        let pods = NODES.map(|node| {
            let here = pods::items(&pods).filter(|pod| pod["spec"]["nodeName"] == node.name);
            let names = here.filter_map(|pod| pod["metadata"]["name"].as_str());
            let mut names: Vec<_> = names.filter(|name| workload_of(name) != "daemon").collect();
            names.sort_unstable();
            names.into_iter().map(str::to_owned).collect()
        });
        Ok(Observed {
            query: self.measures.ask(query.text)?,
            psi: self.measures.ask(&psi)?,
            contention: self.measures.ask(&contention)?,
            pods,
        })
    }
}

/// Values of the nodes before a run of the descheduler.
struct Observed {
    /// Values of the policy's query.
    query: Values,
    psi: Values,
    contention: Values,
    /// Names of the pods, without the daemons.
    pods: [Vec<String>; NODES.len()],
}

impl Observed {
    /// Cells of a row: PSI, contention and workloads of each node.
    fn cells(&self) -> String {
        let cells = (0..NODES.len()).map(|at| {
            let percent = |values: &Values| {
                values[at].map_or("no value".to_owned(), |value| format!("{:.0} %", value * 100.0))
            };
            let names: Vec<_> = self.pods[at].iter().map(|pod| workload_of(pod)).collect();
            let names = if names.is_empty() { "none".into() } else { names.join(" + ") };
            format!("{}, {}, {names}", percent(&self.psi), percent(&self.contention))
        });
        cells.collect::<Vec<_>>().join(" | ")
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..).zip(NODES).try_for_each(|(at, node)| {
            let value =
                |values: &Values| values[at].map_or("none".into(), |value| value.to_string());
            let [query, psi, contention] = [&self.query, &self.psi, &self.contention].map(value);
            let pods =
                if self.pods[at].is_empty() { "none".into() } else { self.pods[at].join(" ") };
            writeln!(
                f,
                "{}: query {query}, PSI {psi}, contention {contention}, pods {pods}",
                node.name
            )
        })
    }
}

/// Makes the service account of the descheduler and the agents, and puts its files where a pod has
/// them. Returns the path of the token.
fn service_account(cluster: &Cluster) -> Result<PathBuf, ClusterError> {
    for arguments in [
        "create serviceaccount descheduler --namespace=kube-system",
        "create clusterrolebinding descheduler --clusterrole=cluster-admin \
         --serviceaccount=kube-system:descheduler",
    ] {
        cluster.kubectl(&arguments.split_whitespace().collect::<Vec<_>>())?;
    }
    let token = "create token descheduler --namespace=kube-system --duration=24h";
    let token = cluster.kubectl(&token.split_whitespace().collect::<Vec<_>>())?;
    // Only in this mount namespace.
    process::run(Command::new("mount").args(["-t", "tmpfs", "cpuwarden-descheduler", "/run"]))?;
    let directory = Path::new(SERVICE_ACCOUNT);
    let authority = cluster.certificate("ca", "crt");
    let authority = fs::read(&authority).map_err(ClusterError::io(authority))?;
    write(&directory.join("ca.crt"), authority)?;
    write(&directory.join("token"), token.trim())?;
    Ok(directory.join("token"))
}

/// The upstream policy of the documentation, with this query and this Prometheus.
fn policy_with(query: &Query) -> Result<String, ClusterError> {
    let page = workspace::root().join("deploy/docs/waiting.md");
    let text = fs::read_to_string(&page).map_err(ClusterError::io(page))?;
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let policy = blocks.into_iter().find(|block| block.contains("kind: DeschedulerPolicy"));
    let policy = policy.unwrap_or_default();
    let replaced = policy
        .replace("http://prometheus-operated.monitoring:9090", PROMETHEUS)
        .replace(CONTENTION.text, query.text);
    ensure(replaced.contains(PROMETHEUS) && replaced.contains(query.text), || {
        format!("the policy of deploy/docs/waiting.md has another form: {policy}")
    })?;
    Ok(replaced)
}

/// Manifest of a workload with one container. `fields`: further fields of its specification.
fn workload(kind: &str, name: &str, fields: &str, container: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}}}
spec: {{{fields}selector: {{matchLabels: {{app: {name}}}}}, template: {{
  metadata: {{labels: {{app: {name}}}}},
  spec: {{terminationGracePeriodSeconds: 1, containers: [{container}]}}}}}}
"
    )
}

/// Name of the workload of a pod.
fn workload_of(pod: &str) -> &str {
    pod.split('-').next().unwrap_or(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_of_the_documentation_takes_each_query() {
        for query in [&PSI, &CONTENTION] {
            let policy = policy_with(query).unwrap();
            assert!(policy.contains(&format!("{{query: \"{}\"}}", query.text)), "{policy}");
            assert!(policy.contains(&format!("{{MetricResource: {:.0}}}", THRESHOLD * 100.0)));
        }
    }
}
