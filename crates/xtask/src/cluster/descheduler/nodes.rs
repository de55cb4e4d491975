//! Nodes of this machine: a subtree of its cgroups and one CPU each, with a kubelet that starts the
//! containers of its pods as processes.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::session::Cluster;
use super::super::{ClusterError, ensure};
use crate::process;

/// A node, with the CPU of its pods.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) name: &'static str,
    cpu: usize,
}

/// The throttled node leaves most of its CPU to the idle one.
pub(super) const NODES: [Node; 3] = [
    Node { name: "throttled", cpu: 0 },
    Node { name: "contended", cpu: 1 },
    Node { name: "idle", cpu: 0 },
];

const MOUNT: &str = "/sys/fs/cgroup";
/// Hierarchies of cgroup v1 that a container is in, and the unified one, which has its PSI.
const HIERARCHIES: [&str; 5] = ["cpu", "cpuacct", "cpuset", "memory", "unified"];
/// Parent of all nodes in each hierarchy.
const ROOT: &str = "cpuwarden-descheduler";
/// `cpu.shares` of all nodes, the maximum: what else this machine does hardly delays their pods.
const ROOT_SHARES: &str = "262144";
/// Pause before the next watch.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum time for killed processes to leave their cgroup.
const REMOVAL: Duration = Duration::from_secs(10);

impl Node {
    /// Kubepods root, relative to each hierarchy.
    pub(super) fn kubepods(self) -> String {
        format!("{ROOT}/{}/kubepods", self.name)
    }

    /// Text of the PSI of all its pods.
    pub(super) fn pressure(self) -> io::Result<String> {
        fs::read_to_string(directory("unified", &self.kubepods()).join("cpu.pressure"))
    }

    fn register(self, cluster: &Cluster) -> Result<(), ClusterError> {
        let name = self.name;
        let labels = json!({"kubernetes.io/os": "linux", "kubernetes.io/hostname": name});
        let metadata = json!({"name": name, "labels": labels});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
        cluster.apply(&node.to_string())?;
        let resources = json!({"cpu": "1", "memory": "1Gi", "pods": "20"});
        let conditions = json!([{"type": "Ready", "status": "True", "reason": "Test"}]);
        let status =
            json!({"capacity": resources, "allocatable": resources, "conditions": conditions});
        patch_status(cluster, &["node", name], &status)
    }
}

/// The cgroups of all nodes. Removed on drop, with the processes in them.
#[derive(Debug)]
pub(super) struct Cgroups(());

impl Cgroups {
    /// Makes the cgroups of all nodes and registers the nodes.
    pub(super) fn create(cluster: &Cluster) -> Result<Self, ClusterError> {
        let missing = HIERARCHIES.iter().find(|name| !Path::new(MOUNT).join(name).is_dir());
        ensure(missing.is_none(), || {
            format!(
                "needs cgroup v1 and the unified hierarchy: no {MOUNT}/{}",
                missing.unwrap_or(&"")
            )
        })?;
        // Of a killed run.
        remove(ROOT)?;
        let this = Self(());
        for node in NODES {
            make(&format!("{}/burstable", node.kubepods()), node.cpu)?;
            make(&format!("{}/besteffort", node.kubepods()), node.cpu)?;
            node.register(cluster)?;
        }
        write("cpu", ROOT, "cpu.shares", ROOT_SHARES)?;
        Ok(this)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        if let Err(error) = remove(ROOT) {
            eprintln!("{}", process::error_chain(&error));
        }
    }
}

/// Kubelet of all nodes.
#[derive(Debug, Default)]
pub(super) struct Kubelet {
    watch: Mutex<Watch>,
    deleted: Mutex<Vec<(String, String)>>,
}

#[derive(Debug, Default)]
struct Watch {
    kubectl: Option<Child>,
    is_stopped: bool,
}

impl Watch {
    fn end(&mut self) {
        if let Some(mut kubectl) = self.kubectl.take() {
            let _ = kubectl.kill();
            let _ = kubectl.wait();
        }
    }
}

impl Kubelet {
    /// Pods deleted so far: name and node.
    pub(super) fn deleted(&self) -> Vec<(String, String)> {
        locked(&self.deleted).clone()
    }

    /// Ends [`run`](Self::run).
    pub(super) fn stop(&self) {
        let mut watch = locked(&self.watch);
        watch.is_stopped = true;
        watch.end();
    }

    /// Starts and ends the containers of pods until it is stopped. Watches again after an error.
    pub(super) fn run(&self, cluster: &Cluster) {
        let mut running = HashMap::new();
        loop {
            match self.watch(cluster) {
                Ok(None) => return,
                Ok(Some(events)) => {
                    let mut lines = events.lines().map_while(Result::ok);
                    let failed =
                        lines.find_map(|line| self.apply(cluster, &line, &mut running).err());
                    if let Some(error) = failed {
                        eprintln!("kubelet: {}", process::error_chain(&error));
                    }
                }
                Err(error) => eprintln!("kubelet: {}", process::error_chain(&error)),
            }
            thread::sleep(RETRY);
        }
    }

    /// Begins a watch of the pods, with those that exist. `None` if it is stopped.
    fn watch(&self, cluster: &Cluster) -> Result<Option<BufReader<ChildStdout>>, ClusterError> {
        let mut watch = locked(&self.watch);
        watch.end();
        if watch.is_stopped {
            return Ok(None);
        }
        let mut kubectl = Command::new(cluster.program("kubectl"));
        kubectl.args(["get", "--raw", "/api/v1/pods?watch=true&timeoutSeconds=86400"]);
        kubectl.env("KUBECONFIG", cluster.kubeconfig()).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = kubectl.spawn().map_err(|source| process::start_error(&kubectl, source))?;
        Ok(watch.kubectl.insert(child).stdout.take().map(BufReader::new))
    }

    /// Applies an event of the watch. A pod that is to be deleted remains until the kubelet deletes
    /// it, so a new watch misses nothing.
    fn apply(
        &self,
        cluster: &Cluster,
        line: &str,
        running: &mut HashMap<String, Container>,
    ) -> Result<(), ClusterError> {
        let event: Value = serde_json::from_str(line)
            .map_err(|error| ClusterError::Unexpected(format!("{line}: {error}")))?;
        let pod = &event["object"];
        let node = NODES.into_iter().find(|node| pod["spec"]["nodeName"] == node.name);
        let (Some(node), Some(uid)) = (node, pod["metadata"]["uid"].as_str()) else {
            return Ok(());
        };
        let is_gone = event["type"] == "DELETED";
        let name = text(&pod["metadata"]["name"]);
        if is_gone || !pod["metadata"]["deletionTimestamp"].is_null() {
            if let Some(container) = running.remove(uid) {
                container.end()?;
                locked(&self.deleted).push((name.to_owned(), node.name.to_owned()));
            }
            if !is_gone {
                cluster.kubectl(&["delete", "pod", name, "--force", "--ignore-not-found"])?;
            }
            return Ok(());
        }
        if !running.contains_key(uid) {
            running.insert(uid.to_owned(), Container::start(node, pod)?);
        }
        if pod["status"]["phase"] == "Pending" { report_running(cluster, pod, uid) } else { Ok(()) }
    }
}

/// The only container of a pod.
struct Container {
    process: Child,
    /// The pod's cgroup.
    pod_path: String,
}

impl Container {
    fn start(node: Node, pod: &Value) -> Result<Self, ClusterError> {
        let uid = text(&pod["metadata"]["uid"]);
        let qos = text(&pod["status"]["qosClass"]).to_lowercase();
        let container = &pod["spec"]["containers"][0];
        let pod_path = format!("{}/{qos}/pod{uid}", node.kubepods());
        let path = format!("{pod_path}/{}", container_id(uid));
        make(&path, node.cpu)?;
        let milli = |resources: &Value| {
            let quantity = resources["cpu"].as_str()?.strip_suffix('m')?;
            quantity.parse::<u64>().ok()
        };
        let shares = milli(&container["resources"]["requests"]).unwrap_or(2) * 1024 / 1000;
        for path in [&pod_path, &path] {
            write("cpu", path, "cpu.shares", &shares.max(2).to_string())?;
        }
        if let Some(limit) = milli(&container["resources"]["limits"]) {
            write("cpu", &path, "cpu.cfs_quota_us", &(limit * 100).to_string())?;
        }
        let process = spawn(&path, &container["command"])?;
        Ok(Self { process, pod_path })
    }

    fn end(mut self) -> Result<(), ClusterError> {
        remove(&self.pod_path)?;
        let _ = self.process.wait();
        Ok(())
    }
}

/// Starts a program in a cgroup: a shell enters the cgroup and becomes the program.
fn spawn(path: &str, words: &Value) -> Result<Child, ClusterError> {
    let script =
        r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]);
    command.args(HIERARCHIES.map(|hierarchy| directory(hierarchy, path).join("cgroup.procs")));
    let words = words.as_array().into_iter().flatten().filter_map(Value::as_str);
    command.arg("--").args(words).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().map_err(|source| process::start_error(&command, source).into())
}

fn report_running(cluster: &Cluster, pod: &Value, uid: &str) -> Result<(), ClusterError> {
    let ready = ["Initialized", "ContainersReady", "Ready", "PodScheduled"]
        .map(|kind| json!({"type": kind, "status": "True"}));
    let container = json!({
        "name": pod["spec"]["containers"][0]["name"],
        "image": pod["spec"]["containers"][0]["image"],
        "imageID": "none",
        "containerID": format!("containerd://{}", container_id(uid)),
        "ready": true,
        "started": true,
        "restartCount": 0,
        "state": {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}},
    });
    let status = json!({"phase": "Running", "conditions": ready, "containerStatuses": [container]});
    patch_status(cluster, &["pod", text(&pod["metadata"]["name"])], &status)
}

fn patch_status(cluster: &Cluster, what: &[&str], status: &Value) -> Result<(), ClusterError> {
    let patch = json!({"status": status}).to_string();
    let options = ["--subresource=status", "--type=merge", "--patch", &patch];
    cluster.kubectl(&[&["patch"], what, &options].concat()).map(drop)
}

/// 64 hexadecimal digits, as containerd's.
fn container_id(uid: &str) -> String {
    uid.replace('-', "").repeat(2)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn directory(hierarchy: &str, path: &str) -> PathBuf {
    Path::new(MOUNT).join(hierarchy).join(path)
}

/// Makes a cgroup with its parents, all on this CPU below the node.
fn make(path: &str, cpu: usize) -> Result<(), ClusterError> {
    for hierarchy in HIERARCHIES {
        let directory = directory(hierarchy, path);
        fs::create_dir_all(&directory).map_err(ClusterError::io(directory))?;
    }
    let names: Vec<_> = path.split('/').collect();
    for depth in 1..=names.len() {
        let parent = names[..depth].join("/");
        let cpus = if depth == 1 { "0-1".to_owned() } else { cpu.to_string() };
        write("cpuset", &parent, "cpuset.cpus", &cpus)?;
        write("cpuset", &parent, "cpuset.mems", "0")?;
    }
    Ok(())
}

fn write(hierarchy: &str, path: &str, file: &str, text: &str) -> Result<(), ClusterError> {
    let path = directory(hierarchy, path).join(file);
    fs::write(&path, text).map_err(ClusterError::io(path))
}

/// Kills all processes in a cgroup and removes it with all below it.
fn remove(path: &str) -> Result<(), ClusterError> {
    let deadline = Instant::now() + REMOVAL;
    for hierarchy in HIERARCHIES {
        let directory = directory(hierarchy, path);
        loop {
            let _ = fs::write(self::directory("unified", path).join("cgroup.kill"), "1");
            match remove_once(&directory) {
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                done => break done.map_err(ClusterError::io(directory))?,
            }
        }
    }
    Ok(())
}

fn remove_once(directory: &Path) -> io::Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(directory)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_once(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}
