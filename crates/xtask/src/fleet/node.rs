//! A node of plain files: a cgroup tree of its own, a kubelet's list, and a real agent.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::http::{self, free_address};
use super::{FleetError, bound};

/// Containers per pod.
pub(super) const CONTAINERS: usize = 2;
/// Period of the quotas.
const PERIOD_USEC: u64 = 100_000;
/// Workloads per node: their names are the same on all nodes.
const WORKLOADS: usize = 25;

/// A node, without its agent.
pub(crate) struct PlainNode {
    pub(crate) name: String,
    pub(crate) root: PathBuf,
    containers: Vec<Container>,
    /// Whether its kubelet answers nothing that can be read.
    pub(crate) kubelet_is_down: Arc<AtomicBool>,
}

/// A container whose counters move.
struct Container {
    cpu_stat: File,
    /// Share of one CPU.
    cores: f64,
    /// Share of the periods that are throttled.
    throttled: f64,
}

/// A pod of the kubelet's list.
pub(super) struct ListedPod<'a> {
    pub(super) uid: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Kind and name of the controller.
    pub(super) owner: (&'a str, &'a str),
    /// Names and IDs of the containers.
    pub(super) containers: &'a [(String, String)],
}

/// Text of a `PodList`.
pub(super) fn pod_list(pods: &[Value]) -> String {
    json!({ "kind": "PodList", "apiVersion": "v1", "items": pods }).to_string()
}

impl ListedPod<'_> {
    pub(super) fn object(&self) -> Value {
        let Self { uid, namespace, name, owner: (kind, owner), containers } = self;
        let specs = containers.iter().map(|(name, _)| {
            json!({ "name": name, "image": "registry.example/shop/app:1.2.3",
                    "resources": { "requests": { "cpu": "250m" }, "limits": { "cpu": "500m" } } })
        });
        let statuses = containers.iter().map(|(name, id)| {
            json!({ "name": name, "containerID": format!("containerd://{id}"), "state": { "running": {} },
                    "restartCount": 0, "image": "registry.example/shop/app:1.2.3", "imageID": "", "ready": true })
        });
        json!({
            "metadata": { "namespace": namespace, "name": name, "uid": uid, "ownerReferences": [
                { "apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "0", "controller": true }
            ] },
            "spec": { "containers": specs.collect::<Vec<_>>() },
            "status": { "phase": "Running", "qosClass": "Burstable", "containerStatuses": statuses.collect::<Vec<_>>() },
        })
    }
}

impl PlainNode {
    /// Creates the files of a node with this number of pods, and its kubelet. Returns the kubelet's
    /// URL.
    pub(crate) fn create(
        directory: &Path,
        number: usize,
        pods: usize,
    ) -> Result<(Self, String), FleetError> {
        let name = format!("node-{number}");
        let root = directory.join(&name);
        let (mut containers, mut listed) = (Vec::new(), Vec::new());
        write_cgroup(&root, false)?;
        for parent in ["kubepods", "kubepods/burstable"] {
            write_cgroup(&root.join(parent), false)?;
        }
        for pod in 0..pods {
            let uid = format!("00000000-0000-4000-8000-{number:06x}{pod:06x}");
            let path = root.join(format!("kubepods/burstable/pod{uid}"));
            write_cgroup(&path, true)?;
            let ids: Vec<(String, String)> = (0..CONTAINERS)
                .map(|container| {
                    (
                        format!("c{container}"),
                        format!("{:064x}", (number << 32) + (pod << 8) + container + 1),
                    )
                })
                .collect();
            for (at, (_, id)) in ids.iter().enumerate() {
                let path = path.join(id);
                write_cgroup(&path, true)?;
                let open = File::options().write(true).open(path.join("cpu.stat"));
                let cpu_stat = open.map_err(|error| FleetError::io(&path, error))?;
                let share = (pod * CONTAINERS + at) as f64 / (pods * CONTAINERS) as f64;
                containers.push(Container {
                    cpu_stat,
                    cores: share * 0.4,
                    // One container in five is throttled.
                    throttled: if share > 0.8 { share * share } else { 0.0 },
                });
            }
            let workload = format!("web-{}", pod % WORKLOADS);
            let pod_name = format!("{workload}-7d9c5b6f4-{number:x}x{pod:x}");
            let namespace = format!("team-{}", pod % 10);
            let (uid, name, containers) = (uid.as_str(), pod_name.as_str(), ids.as_slice());
            let owner = ("StatefulSet", workload.as_str());
            listed.push(ListedPod { uid, namespace: &namespace, name, owner, containers }.object());
        }
        let list = pod_list(&listed);
        let kubelet_is_down = Arc::new(AtomicBool::new(false));
        let is_down = Arc::clone(&kubelet_is_down);
        let answer =
            move || if is_down.load(Ordering::Relaxed) { String::new() } else { list.clone() };
        let kubelet = http::serve("application/json", move |_| answer())
            .map_err(|error| FleetError::io(&root, error))?;
        let node = Self { name, root, containers, kubelet_is_down };
        node.advance(Duration::ZERO)?;
        Ok((node, format!("http://{kubelet}")))
    }

    /// Sets the counters to this time.
    pub(crate) fn advance(&self, elapsed: Duration) -> Result<(), FleetError> {
        for container in &self.containers {
            // The same length at all times: a reader never sees a part of a number.
            let text = container.cpu_stat_at(elapsed);
            container
                .cpu_stat
                .write_all_at(text.as_bytes(), 0)
                .map_err(|error| FleetError::io(&self.root, error))?;
        }
        Ok(())
    }

    /// Starts its agent.
    pub(super) fn start_agent(
        &self,
        program: &Path,
        kubelet: &str,
        preset: &str,
    ) -> Result<Agent, FleetError> {
        let flags = [
            format!("--cgroup-root={}", self.root.display()),
            format!("--kubelet-readonly-url={kubelet}"),
            format!("--metrics={preset}"),
            "--sched-trace=off".to_owned(),
        ];
        Agent::start(program, &self.name, &flags, &self.root.join("agent.log"))
    }
}

impl Container {
    fn cpu_stat_at(&self, elapsed: Duration) -> String {
        let usec = elapsed.as_micros() as f64;
        let used = 1_000_000 + (usec * self.cores) as u64;
        let periods = 1000 + (usec as u64) / PERIOD_USEC;
        let throttled = (periods as f64 * self.throttled) as u64;
        let (user, system) = (used / 4 * 3, used - used / 4 * 3);
        format!(
            "usage_usec {used:014}\nuser_usec {user:014}\nsystem_usec {system:014}\n\
             nr_periods {periods:010}\nnr_throttled {throttled:010}\nthrottled_usec {:014}\n\
             nr_bursts 0\nburst_usec 0\n",
            throttled * PERIOD_USEC / 3
        )
    }
}

/// The files of one cgroup.
pub(super) fn write_cgroup(path: &Path, has_quota: bool) -> Result<(), FleetError> {
    let failed = |error| FleetError::io(path, error);
    fs::create_dir_all(path).map_err(failed)?;
    let quota = if has_quota { "50000 100000\n" } else { "max 100000\n" };
    let pressure = "some avg10=0.00 avg60=0.36 avg300=0.29 total=1313362\n\
                    full avg10=0.00 avg60=0.30 avg300=0.23 total=1084703\n";
    let stat = "usage_usec 0\nuser_usec 0\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\n\
                throttled_usec 0\nnr_bursts 0\nburst_usec 0\n";
    for (file, text) in [
        ("cgroup.controllers", "cpuset cpu io memory pids\n"),
        ("cgroup.procs", ""),
        ("cgroup.threads", ""),
        ("cgroup.type", "domain\n"),
        ("cgroup.subtree_control", "cpuset cpu io memory pids\n"),
        ("cpu.max", quota),
        ("cpu.max.burst", "0\n"),
        ("cpu.pressure", pressure),
        ("cpu.stat", stat),
        ("cpu.weight", "10\n"),
        ("cpuset.cpus", "\n"),
        ("cpuset.cpus.effective", "0-3\n"),
        ("cpuset.mems.effective", "0\n"),
        ("io.pressure", pressure),
        ("memory.current", "20889600\n"),
        ("memory.max", "134217728\n"),
        ("memory.pressure", pressure),
        ("pids.current", "1\n"),
    ] {
        fs::write(path.join(file), text).map_err(failed)?;
    }
    Ok(())
}

/// A running agent; killed when dropped.
pub(super) struct Agent {
    child: Child,
    pub(super) node: String,
    pub(super) address: SocketAddr,
}

impl Agent {
    pub(super) fn start(
        program: &Path,
        node: &str,
        flags: &[String],
        log: &Path,
    ) -> Result<Self, FleetError> {
        Self::start_in(None, program, node, flags, log)
    }

    /// As [`Agent::start`], in this cgroup from its first instruction on.
    pub(super) fn start_in(
        cgroup: Option<&Path>,
        program: &Path,
        node: &str,
        flags: &[String],
        log: &Path,
    ) -> Result<Self, FleetError> {
        let address = free_address().map_err(|error| FleetError::io(program, error))?;
        let mut command = bound("sh");
        let enter = r#"[ -z "$1" ] || echo $$ > "$1/cgroup.procs"; shift; exec "$@""#;
        command.args(["-c", enter, "sh"]).arg(cgroup.unwrap_or(Path::new(""))).arg(program);
        command
            .arg("run")
            .args(flags)
            .args([format!("--listen={address}"), format!("--node-name={node}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let log_file = File::create(log).map_err(|error| FleetError::io(log, error))?;
        let child = command.stderr(log_file).spawn();
        let child = child.map_err(|error| FleetError::io(program, error))?;
        Ok(Self { child, node: node.to_owned(), address })
    }

    /// The page of its metrics.
    pub(super) fn page(&self) -> io::Result<String> {
        http::get(self.address, "/metrics")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_grow_and_keep_their_length() {
        let directory = tempfile::tempdir().unwrap();
        let (node, _) = PlainNode::create(directory.path(), 1, 2).unwrap();
        let at = |seconds| node.containers[3].cpu_stat_at(Duration::from_secs(seconds));
        let used = |text: &str| -> u64 {
            text.lines().next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
        };
        assert_eq!(used(&at(600)) - used(&at(0)), 180_000_000, "0.3 cores");
        assert_eq!(at(0).len(), at(3_000_000).len());
        node.advance(Duration::from_secs(9)).unwrap();
        let path = node.root.join(format!(
            "kubepods/burstable/pod00000000-0000-4000-8000-000001000001/{:064x}",
            (1_u64 << 32) + (1 << 8) + 2
        ));
        assert_eq!(fs::read_to_string(path.join("cpu.stat")).unwrap(), at(9));
    }
}
