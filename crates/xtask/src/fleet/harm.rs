//! Nodes with one real contention: a workload that spins and one that waits for it, in real cgroups,
//! and on each node a real agent that traces them.
//!
//! One machine has one scheduler. All these agents see the same two pods, each under the names of
//! its own node, and each judges by itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::FleetError;
use super::http;
use super::node::{Agent, ListedPod, pod_list};

/// CPU shares (cgroup v1) and weight (v2) of the pods and the agents together: the load of the rest
/// of this machine must not be the cause.
const WEIGHTS: [(&str, &str); 2] = [("cpu.shares", "8192"), ("cpu.weight", "800")];

/// The root of the hierarchies.
const ROOT: &str = "/sys/fs/cgroup";
/// Work of a service: some milliseconds, then a pause. Both end with this process, `$1`.
const SERVICE: &str =
    "while [ -d /proc/$1 ]; do i=0; while [ $i -lt 8000 ]; do i=$((i+1)); done; sleep 0.02; done";
const SPIN: &str =
    "while [ -d /proc/$1 ]; do i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done; done";
const UIDS: [&str; 2] =
    ["8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0390", "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0391"];

/// The two pods; their processes and cgroups end when dropped.
pub(super) struct Harm {
    processes: Vec<Child>,
    /// Base directory in each hierarchy.
    bases: Vec<PathBuf>,
    name: String,
    /// Cgroup of this process and of the agents while the pods run, and its former one.
    agents: Option<(PathBuf, PathBuf)>,
}

fn id(pod: usize) -> String {
    format!("{:064x}", 0x39_0000 + pod)
}

impl Harm {
    /// Starts the pods.
    pub(super) fn start() -> Result<Self, FleetError> {
        let name = format!("cpuwarden-fleet-{}", std::process::id());
        let mut harm = Self { processes: Vec::new(), bases: Vec::new(), name, agents: None };
        let failed = |error| FleetError::io(Path::new(ROOT), error);
        for hierarchy in hierarchies().map_err(failed)? {
            harm.bases.push(hierarchy.join(&harm.name));
        }
        harm.weigh().map_err(failed)?;
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        for (pod, script, count) in [(0, SPIN, cpus), (1, SERVICE, 1)] {
            let path = format!("kubepods/burstable/pod{}/{}", UIDS[pod], id(pod));
            let directories = harm.bases.iter().map(|base| base.join(&path));
            let directories: Vec<PathBuf> = directories.collect();
            for directory in &directories {
                create(directory).map_err(|error| FleetError::io(directory, error))?;
            }
            for _ in 0..count {
                harm.spawn(script, &directories)?;
            }
        }
        Ok(harm)
    }

    /// Gives the pods their weight, and this process and its children a cgroup next to them: the
    /// agents get the CPU time that they need.
    fn weigh(&mut self) -> io::Result<()> {
        let weight = |base: &PathBuf| {
            let found = WEIGHTS.into_iter().find(|(file, _)| base.join(file).exists())?;
            Some((base.clone(), found))
        };
        for base in &self.bases {
            create(base)?;
        }
        let Some((base, (file, weight))) = self.bases.iter().find_map(weight) else {
            return Ok(());
        };
        fs::write(base.join(file), weight)?;
        let agents = base.join("agents");
        create(&agents)?;
        let hierarchy = base.parent().unwrap_or(Path::new(ROOT));
        let former = hierarchy.join(own_cgroup(hierarchy)?.trim_start_matches('/'));
        fs::write(agents.join("cgroup.procs"), std::process::id().to_string())?;
        self.agents = Some((agents, former));
        Ok(())
    }

    fn spawn(&mut self, script: &str, directories: &[PathBuf]) -> Result<(), FleetError> {
        let mut shell = Command::new("sh");
        let child = shell
            .args(["-c", script, "sh"])
            .arg(std::process::id().to_string())
            .stdin(Stdio::null())
            .spawn();
        let child = child.map_err(|error| FleetError::io(Path::new("sh"), error))?;
        let id = child.id().to_string();
        self.processes.push(child);
        for directory in directories {
            let file = directory.join("cgroup.procs");
            fs::write(&file, &id).map_err(|error| FleetError::io(&file, error))?;
        }
        Ok(())
    }

    /// Starts the agent of a node.
    pub(super) fn start_agent(
        &self,
        program: &Path,
        number: usize,
        log: &Path,
    ) -> Result<Agent, FleetError> {
        let ids = [0, 1].map(|pod| [("main".to_owned(), id(pod))]);
        let names = [format!("report-{number}"), format!("cart-{number}")];
        let pods = [
            ListedPod {
                uid: UIDS[0],
                namespace: "batch",
                name: &names[0],
                owner: ("Job", "report"),
                containers: &ids[0],
            },
            ListedPod {
                uid: UIDS[1],
                namespace: "shop",
                name: &names[1],
                owner: ("StatefulSet", "cart"),
                containers: &ids[1],
            },
        ];
        let list = pod_list(&pods.map(|pod| pod.object()));
        let kubelet = http::serve("application/json", move |_| list.clone())
            .map_err(|error| FleetError::io(log, error))?;
        let flags = [
            format!("--kubepods={}/kubepods", self.name),
            format!("--kubelet-readonly-url=http://{kubelet}"),
            "--sched-trace=on".to_owned(),
            "--sched-trace-budget=1".to_owned(),
            "--cpu-budget=1000".to_owned(),
        ];
        Agent::start(program, &format!("node-{number}"), &flags, log)
    }
}

/// Whether an agent has named the culprit.
pub(super) fn is_named(agent: &Agent) -> bool {
    let Ok(text) = http::get(agent.address, "/api/v1/frame") else { return false };
    let frame: Value = serde_json::from_str(&text).unwrap_or_default();
    let mut verdicts = frame["verdicts"].as_array().into_iter().flatten();
    verdicts.any(|verdict| {
        verdict["victim"]["namespace"] == "shop" && verdict["culprits"][0]["name"] == "report"
    })
}

/// The mounted hierarchies: one for cgroup v2.
fn hierarchies() -> io::Result<Vec<PathBuf>> {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let path = entry.path();
        // `cpu` may be a link to `cpu,cpuacct`.
        if entry.file_type()?.is_dir() && path.join("cgroup.procs").exists() {
            found.push(path);
        }
    }
    Ok(found)
}

/// The cgroup of this process in a hierarchy.
fn own_cgroup(hierarchy: &Path) -> io::Result<String> {
    let text = fs::read_to_string("/proc/self/cgroup")?;
    let name = hierarchy.file_name().unwrap_or_default().to_string_lossy();
    let of = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_it = controllers.is_empty() && hierarchy == Path::new(ROOT)
            || controllers.split(',').any(|one| name.split(',').any(|named| named == one));
        is_it.then(|| path.to_owned())
    };
    Ok(text.lines().find_map(of).unwrap_or_default())
}

/// Creates a cgroup and its parents. A cpuset of cgroup v1 begins empty, and takes no process.
fn create(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        create(parent)?;
        fs::create_dir(directory)?;
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let text = fs::read_to_string(parent.join(file)).unwrap_or_default();
            if directory.join("cpuset.cpu_exclusive").exists() && !text.trim().is_empty() {
                fs::write(directory.join(file), text)?;
            }
        }
    }
    Ok(())
}

/// Removes a cgroup and those below it.
fn remove(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let children = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    children.for_each(|child| remove(&child.path()));
    let _ = fs::remove_dir(directory);
}

impl Drop for Harm {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        if let Some((agents, former)) = &self.agents {
            let processes = fs::read_to_string(agents.join("cgroup.procs")).unwrap_or_default();
            for process in processes.lines() {
                let _ = fs::write(former.join("cgroup.procs"), process);
            }
        }
        // A shell's `sleep` outlives it for a moment.
        for base in &self.bases {
            for _ in 0..50 {
                remove(base);
                if !base.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}
