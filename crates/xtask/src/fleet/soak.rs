//! `cargo xtask soak`: one agent for many ticks and container starts, whose memory, descriptors,
//! series and recording must stay. The pods are plain files, or cgroups with a process each.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::cgroups::{self, Cgroups, kernel_kib};
use super::node::{Agent, ListedPod, pod_list, write_cgroup};
use super::{FleetError, bound, http, wait_for};
use crate::generated;

/// Number of lines of the report.
const LINES: u32 = 20;
/// Time after which the agent has what it keeps: its history is ten minutes long.
const WARM: u64 = 630;
/// Growth of a figure from the first quarter after that to the last one, at which the run fails.
const MOST_GROWTH: f64 = 1.1;
/// Limit of the recording: full early, so that the oldest files are removed all the time.
const RECORDING: &str = "4MiB";
/// Names of the figures that must stay.
const STAYING: [&str; 5] = ["resident KiB", "kernel KiB", "descriptors", "series", "recording KiB"];

/// A run.
#[derive(Debug, Clone)]
pub struct SoakOptions {
    /// Program of the agent; without it, this checkout's is built.
    pub agent: Option<PathBuf>,
    /// Whether the pods are cgroups with processes, and waits are traced; needs root.
    pub real: bool,
    /// Pods that exist at the same time, of two containers each.
    pub pods: usize,
    /// Container starts per second.
    pub starts: f64,
    /// Time between the agent's samples.
    pub interval: Duration,
    /// Length of the run.
    pub length: Duration,
    /// File for the report.
    pub output: Option<PathBuf>,
}

/// Figures of the agent at one moment.
#[derive(Debug, Clone, Copy)]
struct Figures {
    seconds: u64,
    ticks: f64,
    starts: u64,
    /// As in [`STAYING`]; NaN if not known.
    staying: [f64; STAYING.len()],
}

/// Starts the agent, replaces pods, and prints a line of figures from time to time.
///
/// # Errors
/// A figure has grown, or the agent does not start or answer.
pub fn run(options: &SoakOptions) -> Result<(), FleetError> {
    let directory = tempfile::tempdir().map_err(|error| FleetError::io(Path::new("."), error))?;
    let program = match &options.agent {
        Some(program) => program.clone(),
        None => generated::build_agent()?,
    };
    // Without root, the kernel's memory is not known.
    let cgroups = if options.real { Some(Cgroups::create()?) } else { Cgroups::create().ok() };
    let own = cgroups.as_ref().and_then(|cgroups| cgroups.add_counted("agent"));
    let root = directory.path().join("node");
    let ground = match cgroups.as_ref().filter(|_| options.real) {
        Some(cgroups) => Ground::Real(cgroups),
        None => Ground::plain(root.clone())?,
    };
    let mut flags = match &ground {
        Ground::Plain(root) => {
            vec![format!("--cgroup-root={}", root.display()), "--sched-trace=off".to_owned()]
        }
        Ground::Real(cgroups) => {
            vec![format!("--kubepods={}/kubepods", cgroups.name), "--sched-trace=on".to_owned()]
        }
    };
    let mut pods = Pods { ground, next: 0, present: VecDeque::new() };
    let list = Arc::new(Mutex::new(pods.fill(options.pods)?));
    let served = Arc::clone(&list);
    let kubelet = http::serve("application/json", move |_| {
        served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    })?;
    let history = directory.path().join("recording");
    flags.extend([
        format!("--kubelet-readonly-url=http://{kubelet}"),
        format!("--sample-interval={}ms", options.interval.as_millis()),
        format!("--record={},{RECORDING}", history.display()),
        // Else a busy machine makes the samples rarer.
        "--cpu-budget=1000".to_owned(),
    ]);
    let log = directory.path().join("agent.log");
    let agent = Agent::start_in(own.as_deref(), &program, "soak", &flags, &log)?;
    wait_for("page of the agent", || agent.page().is_ok())?;
    let mut text = format!(
        "{} pods x 2 containers{}, {} container starts per second, a sample every {} ms\n\n\
         {:>8} {:>9} {:>9}",
        options.pods,
        if options.real { " in cgroups, traced" } else { " of plain files" },
        options.starts,
        options.interval.as_millis(),
        "seconds",
        "ticks",
        "starts",
    );
    STAYING.iter().for_each(|name| text += &format!(" {name:>13}"));
    println!("{text}");
    text.push('\n');
    let (began, line) = (Instant::now(), options.length / LINES);
    let mut lines = Vec::new();
    while began.elapsed() < options.length {
        let elapsed = began.elapsed();
        let wanted = (elapsed.as_secs_f64() * options.starts) as u64;
        if pods.started_since_fill(options.pods) < wanted {
            let new = pods.replace()?;
            *list.lock().unwrap_or_else(PoisonError::into_inner) = new;
        } else {
            thread::sleep(Duration::from_millis(5));
        }
        if elapsed >= line * (lines.len() as u32 + 1) {
            let kernel = own.as_deref().and_then(kernel_kib);
            let page = agent.page()?;
            let figures = figures(&page, elapsed, pods.started(), [kernel, size_kib(&history)]);
            // Also for a run that is ended before its time.
            print!("{figures}");
            let _ = write!(text, "{figures}");
            lines.push(figures);
        }
    }
    let end = quarters(&lines);
    text += &end;
    print!("{end}");
    if let Some(path) = &options.output {
        fs::write(path, &text).map_err(|error| FleetError::io(path, error))?;
    }
    grown(&lines).map_or(Ok(()), |what| Err(FleetError::Grown { what: what.to_owned() }))
}

impl std::fmt::Display for Figures {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seconds, ticks, starts, staying } = self;
        write!(formatter, "{seconds:>8} {ticks:>9} {starts:>9}")?;
        staying.iter().try_for_each(|figure| write!(formatter, " {figure:>13.0}"))?;
        writeln!(formatter)
    }
}

/// Where the pods' cgroups are.
enum Ground<'a> {
    /// Files below this directory.
    Plain(PathBuf),
    /// Cgroups of this machine, with a process in each container.
    Real(&'a Cgroups),
}

impl Ground<'_> {
    fn plain(root: PathBuf) -> Result<Self, FleetError> {
        for parent in ["", "kubepods", "kubepods/burstable"] {
            write_cgroup(&root.join(parent), false)?;
        }
        Ok(Self::Plain(root))
    }

    /// Creates a container's cgroup, with its process if it has one.
    fn add(&self, path: &Path) -> Result<Option<Child>, FleetError> {
        match self {
            Self::Plain(root) => write_cgroup(&root.join(path), true).map(|()| None),
            Self::Real(cgroups) => {
                let directories = cgroups.add(path)?;
                let sleep = bound("sleep").arg("infinity").stdin(Stdio::null()).spawn();
                let child = sleep.map_err(|error| FleetError::io(Path::new("sleep"), error))?;
                cgroups::enter(&directories, child.id())?;
                Ok(Some(child))
            }
        }
    }

    fn remove(&self, path: &Path) -> Result<(), FleetError> {
        match self {
            Self::Plain(root) => {
                let path = root.join(path);
                fs::remove_dir_all(&path).map_err(|error| FleetError::io(&path, error))
            }
            Self::Real(cgroups) => {
                cgroups.remove(path);
                Ok(())
            }
        }
    }
}

/// The pods of the node, oldest first.
struct Pods<'a> {
    ground: Ground<'a>,
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
            self.ground.remove(&path)?;
        }
        self.add()?;
        Ok(self.list())
    }

    fn add(&mut self) -> Result<(), FleetError> {
        let (number, path) = (self.next, path(self.next));
        if let Ground::Plain(root) = &self.ground {
            write_cgroup(&root.join(&path), true)?;
        }
        let mut processes = Vec::new();
        for (_, id) in ids(number) {
            processes.extend(self.ground.add(&path.join(id))?);
        }
        self.present.push_back(Pod { number, processes });
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

/// `others`: kernel memory and size of the recording, KiB.
fn figures(page: &str, elapsed: Duration, starts: u64, others: [Option<f64>; 2]) -> Figures {
    let value = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    let [kernel, recording] = others.map(|figure| figure.unwrap_or(f64::NAN));
    Figures {
        seconds: elapsed.as_secs(),
        ticks: value("cpuwarden_sample_duration_seconds_count"),
        starts,
        staying: [
            value("process_resident_memory_bytes") / 1024.0,
            kernel,
            value("process_open_fds"),
            page.lines().filter(|line| !line.starts_with('#')).count() as f64,
            recording,
        ],
    }
}

/// Size of the files of a directory, KiB.
fn size_kib(directory: &Path) -> Option<f64> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let sizes = entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len());
    Some(sizes.sum::<u64>() as f64 / 1024.0)
}

/// Means of the first and the last quarter of the lines after the start; `None` if there are none.
fn ends(lines: &[Figures]) -> Option<[[f64; STAYING.len()]; 2]> {
    let warm = &lines[lines.iter().position(|line| line.seconds >= WARM)?..];
    let quarter = warm.len().div_ceil(4);
    let mean = |lines: &[Figures]| {
        let mut mean = [0.0; STAYING.len()];
        for (at, mean) in mean.iter_mut().enumerate() {
            *mean = lines.iter().map(|line| line.staying[at]).sum::<f64>() / lines.len() as f64;
        }
        mean
    };
    Some([mean(&warm[..quarter]), mean(&warm[warm.len() - quarter..])])
}

/// Text of [`ends`].
fn quarters(lines: &[Figures]) -> String {
    let Some(ends) = ends(lines) else { return String::new() };
    let of = |(name, figures): (&str, [f64; STAYING.len()])| {
        let figures = figures.map(|figure| format!(" {figure:>13.0}")).concat();
        format!("{name:<28}{figures}\n")
    };
    let names = ["mean of the first quarter", "mean of the last quarter"];
    format!("\nAfter {WARM} s:\n{}", names.into_iter().zip(ends).map(of).collect::<String>())
}

/// The first figure that is larger in the last quarter than in the first.
fn grown(lines: &[Figures]) -> Option<&'static str> {
    let [first, last] = ends(lines)?;
    let mut figures = STAYING.into_iter().zip(first.into_iter().zip(last));
    figures.find(|(_, (first, last))| *last > MOST_GROWTH * first).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines with these sizes, 300 s apart; the first is at 0 s.
    fn lines(sizes: &[f64]) -> Vec<Figures> {
        let line = |(at, &size): (u64, &f64)| Figures {
            seconds: at * 300,
            ticks: 0.0,
            starts: 0,
            staying: [size, f64::NAN, 40.0, 1000.0, size],
        };
        (0..).zip(sizes).map(line).collect()
    }

    #[test]
    fn growth_after_the_start_is_reported() {
        let of = |sizes: &[f64]| grown(&lines(sizes));
        assert_eq!(of(&[5.0, 9.0, 9.5, 10.0, 10.0, 10.0, 10.5, 10.5, 10.9]), None);
        assert_eq!(of(&[10.0, 10.0, 10.0, 10.0, 11.5, 11.5]), Some("resident KiB"));
        assert_eq!(of(&[5.0, 9.0]), None, "too short");
        let text = quarters(&lines(&[5.0, 9.0, 9.0, 10.0, 10.0, 10.0, 11.0, 11.0]));
        assert!(text.contains("first quarter") && text.contains("NaN"), "{text}");
        assert!(text.contains(" 10 ") && text.contains(" 11 "), "{text}");
    }

    #[test]
    fn a_pod_is_replaced_with_its_files_and_in_the_list() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        let ground = Ground::plain(root.clone()).unwrap();
        let mut pods = Pods { ground, next: 0, present: VecDeque::new() };
        let list = pods.fill(2).unwrap();
        let of = |pod| root.join(path(pod));
        assert!(list.contains(&uid(0)) && of(0).join(&ids(0)[1].1).join("cpu.stat").exists());
        let list = pods.replace().unwrap();
        assert!(!list.contains(&uid(0)) && !of(0).exists());
        assert!(list.contains(&uid(2)) && pods.started() == 6 && pods.started_since_fill(2) == 2);
    }
}
