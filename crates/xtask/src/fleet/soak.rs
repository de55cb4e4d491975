//! `cargo xtask soak`: one agent on plain files for many ticks and container starts, whose memory,
//! descriptors and series must stay.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::node::{Agent, ListedPod, pod_list, write_cgroup};
use super::{FleetError, http, report, wait_for};
use crate::generated;

/// Number of lines of the report.
const LINES: u32 = 20;
/// Lines before the agent has what it keeps: its history is ten minutes long.
const WARM_LINES: usize = 6;
/// Growth of a figure after that, at which the run fails.
const MOST_GROWTH: f64 = 1.1;

/// A run.
#[derive(Debug, Clone)]
pub struct SoakOptions {
    /// Program of the agent; without it, this checkout's is built.
    pub agent: Option<PathBuf>,
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
    resident_kib: f64,
    descriptors: f64,
    series: f64,
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
    let root = directory.path().join("node");
    for parent in ["", "kubepods", "kubepods/burstable"] {
        write_cgroup(&root.join(parent), false)?;
    }
    let mut pods = Pods { root: root.clone(), next: 0, present: VecDeque::new() };
    let list = Arc::new(Mutex::new(pods.fill(options.pods)?));
    let served = Arc::clone(&list);
    let kubelet = http::serve("application/json", move |_| {
        served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    })?;
    let history = directory.path().join("recording");
    let flags = [
        format!("--cgroup-root={}", root.display()),
        format!("--kubelet-readonly-url=http://{kubelet}"),
        format!("--sample-interval={}ms", options.interval.as_millis()),
        format!("--record={},64Mi", history.display()),
        "--sched-trace=off".to_owned(),
    ];
    let log = directory.path().join("agent.log");
    let agent = Agent::start(&program, "soak", &flags, &log)?;
    wait_for("page of the agent", || agent.page().is_ok())?;
    let mut text = format!(
        "{} pods x 2 containers, {} container starts per second, a sample every {} ms\n\n\
         {:>8} {:>9} {:>9} {:>12} {:>5} {:>7} {:>14}\n",
        options.pods,
        options.starts,
        options.interval.as_millis(),
        "seconds",
        "ticks",
        "starts",
        "resident KiB",
        "fds",
        "series",
        "recording KiB",
    );
    let (began, line) = (Instant::now(), options.length / LINES);
    let mut lines = Vec::new();
    while began.elapsed() < options.length {
        let elapsed = began.elapsed();
        let wanted = (elapsed.as_secs_f64() * options.starts) as u64;
        if pods.started() < wanted {
            let new = pods.replace()?;
            *list.lock().unwrap_or_else(PoisonError::into_inner) = new;
        } else {
            thread::sleep(Duration::from_millis(5));
        }
        if elapsed >= line * (lines.len() as u32 + 1) {
            let figures = figures(&agent, elapsed, pods.started())?;
            let _ = writeln!(
                text,
                "{:>8} {:>9} {:>9} {:>12} {:>5} {:>7} {:>14}",
                figures.seconds,
                figures.ticks,
                figures.starts,
                figures.resident_kib,
                figures.descriptors,
                figures.series,
                size_kib(&history),
            );
            lines.push(figures);
        }
    }
    report::publish(&text, options.output.as_deref())?;
    grown(&lines).map_or(Ok(()), |what| Err(FleetError::Grown { what: what.to_owned() }))
}

/// The pods of the node, oldest first.
struct Pods {
    root: PathBuf,
    next: u64,
    present: VecDeque<u64>,
}

impl Pods {
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

    /// Replaces the oldest pod. Returns the kubelet's list.
    fn replace(&mut self) -> Result<String, FleetError> {
        if let Some(oldest) = self.present.pop_front() {
            let path = self.path(oldest);
            fs::remove_dir_all(&path).map_err(|error| FleetError::io(&path, error))?;
        }
        self.add()?;
        Ok(self.list())
    }

    fn add(&mut self) -> Result<(), FleetError> {
        let path = self.path(self.next);
        write_cgroup(&path, true)?;
        for (_, id) in ids(self.next) {
            write_cgroup(&path.join(id), true)?;
        }
        self.present.push_back(self.next);
        self.next += 1;
        Ok(())
    }

    fn path(&self, pod: u64) -> PathBuf {
        self.root.join(format!("kubepods/burstable/pod{}", uid(pod)))
    }

    fn list(&self) -> String {
        let pods = self.present.iter().map(|pod| {
            let (uid, name, ids) = (uid(*pod), format!("web-{pod:x}"), ids(*pod));
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

fn figures(agent: &Agent, elapsed: Duration, starts: u64) -> Result<Figures, FleetError> {
    let page = agent.page()?;
    let value = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    Ok(Figures {
        seconds: elapsed.as_secs(),
        ticks: value("cpuwarden_sample_duration_seconds_count"),
        starts,
        resident_kib: value("process_resident_memory_bytes") / 1024.0,
        descriptors: value("process_open_fds"),
        series: page.lines().filter(|line| !line.starts_with('#')).count() as f64,
    })
}

/// Size of the files of a directory.
fn size_kib(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum::<u64>()
        >> 10
}

/// The first figure that is larger at the end than when the agent was warm.
fn grown(lines: &[Figures]) -> Option<&'static str> {
    let (warm, end) = (lines.get(WARM_LINES)?, lines.last()?);
    let sizes = [
        ("resident memory", warm.resident_kib, end.resident_kib),
        ("descriptors", warm.descriptors, end.descriptors),
        ("series", warm.series, end.series),
    ];
    let found = sizes.into_iter().find(|(_, warm, end)| *end > MOST_GROWTH * warm);
    found.map(|(name, ..)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_after_the_start_is_reported() {
        let line = |resident_kib: f64| Figures {
            seconds: 0,
            ticks: 0.0,
            starts: 0,
            resident_kib,
            descriptors: 40.0,
            series: 1000.0,
        };
        let of = |sizes: &[f64]| grown(&sizes.iter().map(|size| line(*size)).collect::<Vec<_>>());
        assert_eq!(of(&[5.0, 9.0, 9.0, 9.0, 9.0, 9.0, 10.0, 10.0, 10.5]), None);
        assert_eq!(of(&[10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 11.5]), Some("resident memory"));
    }

    #[test]
    fn a_pod_is_replaced_with_its_files_and_in_the_list() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        let mut pods = Pods { root, next: 0, present: VecDeque::new() };
        let list = pods.fill(2).unwrap();
        assert!(
            list.contains(&uid(0)) && pods.path(0).join(&ids(0)[1].1).join("cpu.stat").exists()
        );
        let list = pods.replace().unwrap();
        assert!(!list.contains(&uid(0)) && !pods.path(0).exists());
        assert!(list.contains(&uid(2)) && pods.started() == 6);
    }
}
