//! `cargo xtask fleet`: many agents and one Prometheus on this machine, measured per node and per
//! series, to be multiplied.
//!
//! Real agents each have a cgroup tree of plain files, a kubelet and moving counters. On some of
//! them, one workload really slows another one. Beyond them, a replayer serves the pages of more
//! nodes from the page of a real agent, with names of their own and pods that are replaced.

mod cgroups;
mod harm;
mod http;
pub(crate) mod node;
mod plugin;
mod replay;
mod report;
mod server;
mod soak;
mod store;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harm::Harm;
use node::{Agent, PlainNode};
use plugin::Plugin;
use replay::Template;
use report::Longest;
use server::{Prometheus, Target};
use store::Store;

pub use soak::{KernelMemory, Reading, Report, SoakOptions, run as soak};

use crate::generated;
use crate::process::CommandError;

/// Maximum time for agents and Prometheus to start, and for a verdict.
const PATIENCE: Duration = Duration::from_secs(600);
/// Age of an agent whose page is replayed: its counters have moved.
const GROWN_UP: Duration = Duration::from_secs(30);
/// Time between two looks at Prometheus.
const LOOK: Duration = Duration::from_secs(5);

/// A run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of real agents.
    pub agents: usize,
    /// How many of them see a real contention; needs root and BTF.
    pub harmed: usize,
    /// Program of the agent with the plugin; without it, this checkout's is built.
    pub agent: Option<PathBuf>,
    /// Number of series to scrape; the replayer serves what the agents do not.
    pub series: usize,
    /// Preset of metrics.
    pub preset: String,
    /// Pods per node.
    pub pods: usize,
    /// Time in which every replayed pod is replaced once.
    pub lifetime: Duration,
    /// Length of the measurement.
    pub length: Duration,
    /// Resident memory at which Prometheus is ended, bytes.
    pub memory: u64,
    /// Program of VictoriaMetrics, to which Prometheus then sends what the documentation says.
    pub store: Option<PathBuf>,
    /// File for the report.
    pub output: Option<PathBuf>,
}

/// A run that failed.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A file, a program or a connection.
    #[error("{}", path.display())]
    Io {
        /// Path of the file or program.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// Prometheus did not answer.
    #[error("Prometheus")]
    Prometheus(#[from] io::Error),
    /// The build of the agent.
    #[error(transparent)]
    Build(#[from] CommandError),
    /// A figure of the agent that must stay.
    #[error("the agent's {what} grew by more than a tenth")]
    Grown {
        /// The figure.
        what: String,
    },
    /// Something did not occur in time.
    #[error("after {PATIENCE:?}, still no {what}")]
    Late {
        /// What was waited for.
        what: String,
    },
    /// Prometheus needs too much memory.
    #[error("Prometheus has {0} MiB: use fewer --series")]
    Memory(u64),
    /// The plugin failed.
    #[error("kubectl cpuwarden fleet: {0}")]
    Plugin(String),
}

impl FleetError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

/// Starts the fleet, measures, and prints the report.
///
/// # Errors
/// Something does not start, answers too late, or needs too much memory.
pub fn run(options: &Options) -> Result<(), FleetError> {
    let directory = tempfile::tempdir().map_err(|error| FleetError::io(Path::new("."), error))?;
    let program = match &options.agent {
        Some(program) => program.clone(),
        None => generated::build_agent()?,
    };
    let harm = if options.harmed > 0 { Some(Harm::start()?) } else { None };
    let agents = Agents::start(options, directory.path(), &program, harm.as_ref())?;
    wait_for("verdict on every harmed node", || {
        agents.running[..options.harmed].iter().all(harm::is_named)
    })?;
    let mut text = String::new();
    if let Some(harm) = harm {
        let plugin = Plugin::create(directory.path(), &program, &agents.running)?;
        let (table, calls) = plugin.fleet(&[])?;
        text = format!("kubectl cpuwarden fleet, {calls} calls of kubectl\n\n{table}\n");
        // Its load is no part of what follows.
        drop(harm);
    }
    if options.series > 0 {
        text += &measure(options, directory.path(), &agents)?;
    }
    report::publish(&text, options.output.as_deref())
}

/// The real agents. The counters of their files move while the value exists.
struct Agents {
    running: Vec<Agent>,
    is_over: Arc<AtomicBool>,
    began: Instant,
}

impl Agents {
    fn start(
        options: &Options,
        directory: &Path,
        program: &Path,
        harm: Option<&Harm>,
    ) -> Result<Self, FleetError> {
        let (mut running, mut plain) = (Vec::new(), Vec::new());
        for number in 0..options.agents {
            let log = directory.join(format!("agent-{number}.log"));
            if let Some(harm) = harm.filter(|_| number < options.harmed) {
                running.push(harm.start_agent(program, number, &log)?);
                continue;
            }
            let (node, kubelet) = PlainNode::create(directory, number, options.pods)?;
            running.push(node.start_agent(program, &kubelet, &options.preset)?);
            plain.push(node);
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let began = Instant::now();
        thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_secs(1));
                // Fails only after the run, when the files are gone.
                if plain.iter().try_for_each(|node| node.advance(began.elapsed())).is_err() {
                    return;
                }
            }
        });
        let agents = Self { running, is_over, began };
        wait_for("page of every agent", || {
            agents.running.iter().all(|agent| {
                agent.page().is_ok_and(|page| {
                    page.contains("\ncpuwarden_container_cpu_usage_seconds_total{")
                })
            })
        })?;
        Ok(agents)
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Lets Prometheus scrape all nodes, and returns the report.
fn measure(options: &Options, directory: &Path, agents: &Agents) -> Result<String, FleetError> {
    let plain = &agents.running[options.harmed..];
    let Some(first) = plain.first() else {
        return Err(FleetError::Late { what: "agent with plain files".to_owned() });
    };
    thread::sleep(GROWN_UP.saturating_sub(agents.began.elapsed()));
    let template = Template::new(&first.page()?, agents.began.elapsed(), options.lifetime);
    let per_node = template.series();
    let replayed = (options.series / per_node).saturating_sub(plain.len());
    let began = Instant::now();
    let pages = http::serve("text/plain; version=0.0.4", move |path| {
        let node = path.trim_start_matches('/').parse().unwrap_or(0);
        template.page(node, began.elapsed())
    })?;
    let real = plain.iter().map(|agent| Target {
        node: agent.node.clone(),
        address: agent.address,
        path: "/metrics".to_owned(),
    });
    let more = (0..replayed).map(|number| Target {
        node: format!("replayed-{number}"),
        address: pages,
        path: format!("/{number}"),
    });
    let targets: Vec<Target> = real.chain(more).collect();
    let store = options.store.as_deref();
    let store = store.map(|program| Store::start(program, directory)).transpose()?;
    let remote_write = store.as_ref().map(Store::remote_write).transpose()?.unwrap_or_default();
    let prometheus = Prometheus::start(directory, &targets, &remote_write)?;
    wait_for("answer of Prometheus", || prometheus.is_ready())?;
    wait_for("scrape of every target", || {
        let up = prometheus.number("count(up)").ok().flatten();
        up.is_some_and(|up| up as usize >= targets.len())
    })?;
    let (start, mut longest) = (prometheus.cost()?, Longest::default());
    while start.at.elapsed() < options.length {
        thread::sleep(LOOK);
        longest.see(&prometheus.rule_groups()?);
        let resident = prometheus.cost()?.resident_bytes as u64;
        if resident > options.memory {
            return Err(FleetError::Memory(resident >> 20));
        }
    }
    let end = prometheus.cost()?;
    let nodes = [plain.len(), replayed];
    let text = report::report(options, &prometheus, nodes, [start, end], &longest)?;
    let names = store.as_ref().map(Store::names).transpose()?.unwrap_or_default();
    Ok(text + &report::stored(&names))
}

/// A program that the kernel kills with the thread that starts it: it never outlives a killed run.
fn bound(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Waits for a condition.
fn wait_for(what: &str, is_so: impl Fn() -> bool) -> Result<(), FleetError> {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > PATIENCE {
            return Err(FleetError::Late { what: what.to_owned() });
        }
        thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_program_ends_with_the_one_that_started_it() {
        let started = thread::spawn(|| {
            let mut shell = bound("sh");
            let mut child =
                shell.args(["-c", "echo; exec sleep 600"]).stdout(Stdio::piped()).spawn().unwrap();
            // Before that the kernel does not know of the bond.
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
            child
        });
        let status = started.join().unwrap().wait().unwrap();
        assert_eq!(status.signal(), Some(9));
    }
}
