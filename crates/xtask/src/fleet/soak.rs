//! `cargo xtask soak`: one agent for many ticks and container starts, whose memory, descriptors,
//! series and recording must stay. A week of plain files in virtual time, or hours of real cgroups
//! with a process each.

mod report;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use report::{READINGS, value};

use super::cgroups::{self, Cgroups, kernel_kib, own_cgroup};
use super::node::{Agent, ListedPod, pod_list};
use super::{FleetError, bound, http, wait_for};
use crate::{generated, process, workspace};

pub use report::{Reading, Report};

/// Limit of the recording: the least, so that it is full early.
const RECORDING: u64 = 1 << 20;

/// A run.
#[derive(Debug, Clone)]
pub struct SoakOptions {
    /// Program of the agent; without it, this checkout's is built. Not with plain files.
    pub agent: Option<PathBuf>,
    /// Whether the pods are cgroups with processes, and waits are traced; needs root.
    pub real: bool,
    /// Pods that exist at the same time, of two containers each.
    pub pods: usize,
    /// Container starts per second.
    pub starts: f64,
    /// Length of the run, of virtual time with plain files.
    pub length: Duration,
    /// File for the report.
    pub output: Option<PathBuf>,
}

/// Replaces pods, and prints a line of figures of the agent from time to time.
///
/// # Errors
/// A figure has grown, or the agent does not start or answer.
pub fn run(options: &SoakOptions) -> Result<(), FleetError> {
    if options.real { of_cgroups(options) } else { of_files(options) }
}

/// Runs the benchmark that drives the parts of the agent without waiting for their clock.
fn of_files(options: &SoakOptions) -> Result<(), FleetError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let absolute =
        |path: &PathBuf| std::path::absolute(path).map_err(|error| FleetError::io(path, error));
    let output = options.output.as_ref().map(absolute).transpose()?;
    let mut bench = Command::new(cargo);
    bench
        .args(["bench", "--package=advisor", "--bench=soak", "--"])
        .args([options.pods.to_string(), options.length.as_secs().to_string()])
        .arg(options.starts.to_string())
        .args(output)
        .current_dir(workspace::root());
    Ok(process::run(&mut bench)?)
}

fn of_cgroups(options: &SoakOptions) -> Result<(), FleetError> {
    let directory = tempfile::tempdir().map_err(|error| FleetError::io(Path::new("."), error))?;
    let program = match &options.agent {
        Some(program) => program.clone(),
        None => generated::build_agent()?,
    };
    let cgroups = Cgroups::create()?;
    let own = cgroups.add_counted("agent");
    let mut pods = Pods { cgroups: &cgroups, next: 0, present: VecDeque::new() };
    let list = Arc::new(Mutex::new(pods.fill(options.pods)?));
    let served = Arc::clone(&list);
    let kubelet = http::serve("application/json", move |_| {
        served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    })?;
    let history = directory.path().join("recording");
    let flags = [
        format!("--kubepods={}/kubepods", cgroups.name),
        "--sched-trace=on".to_owned(),
        format!("--kubelet-readonly-url=http://{kubelet}"),
        format!("--record={},{}MiB", history.display(), RECORDING >> 20),
        // Else a busy machine makes the samples rarer.
        "--cpu-budget=1000".to_owned(),
    ];
    let log = directory.path().join("agent.log");
    let agent = Agent::start_in(own.as_deref(), &program, "soak", &flags, &log)?;
    wait_for("page of the agent", || agent.page().is_ok())?;
    let SoakOptions { pods: count, starts, length, .. } = options;
    let about = format!(
        "{count} pods x 2 containers in cgroups, traced, {starts} container starts per second"
    );
    let mut report = Report::new(&about, RECORDING);
    let began = Instant::now();
    while report.readings() < READINGS as usize {
        let elapsed = began.elapsed();
        let wanted = (elapsed.as_secs_f64() * starts) as u64;
        if pods.started_since_fill(*count) < wanted {
            let new = pods.replace()?;
            *list.lock().unwrap_or_else(PoisonError::into_inner) = new;
        } else {
            thread::sleep(Duration::from_millis(5));
        }
        if elapsed >= *length / READINGS * (report.readings() as u32 + 1) {
            let page = agent.page()?;
            let ticks = value(&page, "cpuwarden_sample_duration_seconds_count") as u64;
            let kernel = own.as_deref().and_then(kernel_kib);
            let at = [elapsed.as_secs(), ticks, pods.started()];
            report.add(Reading::new(at, &page, kernel, &history));
        }
    }
    let (text, outcome) = report.end();
    if let Some(path) = &options.output {
        fs::write(path, &text).map_err(|error| FleetError::io(path, error))?;
    }
    outcome
}

/// The kernel memory of this process, in a cgroup of its own until this is dropped.
pub struct KernelMemory {
    directory: PathBuf,
    /// Cgroup that the process came from.
    before: PathBuf,
    /// Removed after the process has left.
    _cgroups: Cgroups,
}

impl KernelMemory {
    /// Moves the process; `None` without root, or if the kernel does not count.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        let cgroups = Cgroups::create().ok()?;
        let directory = cgroups.add_counted("agent")?;
        let hierarchy = directory.ancestors().nth(2)?;
        let before = own_cgroup(hierarchy).ok()?;
        let before = hierarchy.join(before.trim_start_matches('/'));
        cgroups::enter(std::slice::from_ref(&directory), std::process::id()).ok()?;
        Some(Self { directory, before, _cgroups: cgroups })
    }

    /// The memory without what can be reclaimed, KiB.
    #[must_use]
    pub fn kib(&self) -> Option<f64> {
        kernel_kib(&self.directory)
    }
}

impl Drop for KernelMemory {
    fn drop(&mut self) {
        let _ = cgroups::enter(std::slice::from_ref(&self.before), std::process::id());
    }
}

/// The pods of the node, oldest first.
struct Pods<'a> {
    cgroups: &'a Cgroups,
    next: u64,
    present: VecDeque<Pod>,
}

struct Pod {
    number: u64,
    processes: Vec<Child>,
}

impl Drop for Pod {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Pods<'_> {
    /// Creates the first pods. Returns the kubelet's list.
    fn fill(&mut self, count: usize) -> Result<String, FleetError> {
        for _ in 0..count {
            self.add()?;
        }
        Ok(self.list())
    }

    /// Container starts so far.
    fn started(&self) -> u64 {
        2 * self.next
    }

    /// Container starts after the first pods.
    fn started_since_fill(&self, count: usize) -> u64 {
        self.started().saturating_sub(2 * count as u64)
    }

    /// Replaces the oldest pod. Returns the kubelet's list.
    fn replace(&mut self) -> Result<String, FleetError> {
        if let Some(oldest) = self.present.pop_front() {
            let path = path(oldest.number);
            drop(oldest);
            self.cgroups.remove(&path);
        }
        self.add()?;
        Ok(self.list())
    }

    fn add(&mut self) -> Result<(), FleetError> {
        let (number, path) = (self.next, path(self.next));
        let mut pod = Pod { number, processes: Vec::new() };
        for (_, id) in ids(number) {
            let directories = self.cgroups.add(&path.join(id))?;
            let sleep = bound("sleep").arg("infinity").stdin(Stdio::null()).spawn();
            let child = sleep.map_err(|error| FleetError::io(Path::new("sleep"), error))?;
            let id = child.id();
            pod.processes.push(child);
            cgroups::enter(&directories, id)?;
        }
        self.present.push_back(pod);
        self.next += 1;
        Ok(())
    }

    fn list(&self) -> String {
        let pods = self.present.iter().map(|Pod { number, .. }| {
            let (uid, name, ids) = (uid(*number), format!("web-{number:x}"), ids(*number));
            let (uid, name, containers) = (uid.as_str(), name.as_str(), ids.as_slice());
            ListedPod { uid, namespace: "shop", name, owner: ("Job", "web"), containers }.object()
        });
        pod_list(&pods.collect::<Vec<_>>())
    }
}

fn uid(pod: u64) -> String {
    format!("00000000-0000-4000-8000-{pod:012x}")
}

fn ids(pod: u64) -> [(String, String); 2] {
    [0, 1].map(|at| (format!("c{at}"), format!("{:064x}", 2 * pod + at + 1)))
}

/// Path of a pod's cgroup below the root.
fn path(pod: u64) -> PathBuf {
    format!("kubepods/burstable/pod{}", uid(pod)).into()
}
