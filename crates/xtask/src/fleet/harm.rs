//! Nodes with one real contention: a workload that spins and one that waits for it, in real cgroups,
//! and on each node a real agent that traces them.
//!
//! One machine has one scheduler. All these agents see the same two pods, each under the names of
//! its own node, and each judges by itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::Value;

use super::cgroups::{self, Cgroups, own_cgroup};
use super::node::{Agent, ListedPod, pod_list};
use super::{FleetError, bound, http};

/// CPU shares (cgroup v1) and weight (v2) of the pods and the agents together: the load of the rest
/// of this machine must not be the cause.
const WEIGHTS: [(&str, &str); 2] = [("cpu.shares", "8192"), ("cpu.weight", "800")];

/// Work of a service: some milliseconds, then a pause.
const SERVICE: &str =
    "while :; do i=0; while [ $i -lt 8000 ]; do i=$((i+1)); done; sleep 0.02; done";
const SPIN: &str = "while :; do :; done";
const UIDS: [&str; 2] =
    ["8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0390", "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0391"];

/// The two pods; their processes and cgroups end when dropped, and the processes with this one.
pub(super) struct Harm {
    processes: Vec<Child>,
    cgroups: Cgroups,
    /// Cgroup of this process and of the agents while the pods run, and its former one.
    agents: Option<(PathBuf, PathBuf)>,
}

fn id(pod: usize) -> String {
    format!("{:064x}", 0x39_0000 + pod)
}

impl Harm {
    /// Starts the pods.
    pub(super) fn start() -> Result<Self, FleetError> {
        let mut harm = Self { processes: Vec::new(), cgroups: Cgroups::create()?, agents: None };
        harm.weigh().map_err(|error| FleetError::io(Path::new(&harm.cgroups.name), error))?;
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        for (pod, script, count) in [(0, SPIN, cpus), (1, SERVICE, 1)] {
            let path = format!("kubepods/burstable/pod{}/{}", UIDS[pod], id(pod));
            let directories = harm.cgroups.add(Path::new(&path))?;
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
        let Some((base, (file, weight))) = self.cgroups.bases.iter().find_map(weight) else {
            return Ok(());
        };
        fs::write(base.join(file), weight)?;
        let agents = base.join("agents");
        cgroups::create(&agents)?;
        let hierarchy = base.parent().unwrap_or(Path::new("/"));
        let former = hierarchy.join(own_cgroup(hierarchy)?.trim_start_matches('/'));
        fs::write(agents.join("cgroup.procs"), std::process::id().to_string())?;
        self.agents = Some((agents, former));
        Ok(())
    }

    fn spawn(&mut self, script: &str, directories: &[PathBuf]) -> Result<(), FleetError> {
        let mut shell = bound("sh");
        let child = shell.args(["-c", script]).stdin(Stdio::null()).spawn();
        let child = child.map_err(|error| FleetError::io(Path::new("sh"), error))?;
        let process = child.id();
        self.processes.push(child);
        cgroups::enter(directories, process)
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
            format!("--kubepods={}/kubepods", self.cgroups.name),
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
    }
}
