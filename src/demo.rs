//! `cpuwarden demo`: shows the agent's main function on any machine, and cleans up afterwards.
//!
//! Runs the agent, as started by `run`, on the stage of the crate `demo`, and shows a table of its
//! samples.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use demo::{Kubelet, LEGEND, Paths, Screen, Stage, Table};
use kubelet::Pods;
use snapshot::{NodeSnapshot, Published};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::agent::Agent;
use crate::cli::DemoArgs;
use crate::config::{Config, LogFormat, MetricsPreset, Options, PodSourceName, SchedTraceMode};
use crate::exit::Failure;
use crate::logging::{self, LogFilter};
use crate::{run, table};

/// Polling interval for a new sample; samples come once per second.
const LOOK: Duration = Duration::from_millis(50);
/// Time of the single table, if standard output is not a terminal and no duration is given.
const ONE_TABLE_AFTER: Duration = Duration::from_secs(10);

/// Runs the demo until its duration is over or a signal comes.
///
/// # Errors
/// Any failure to start the agent or the embedded kubelet, or an early end of the agent.
pub(crate) fn demo(args: &DemoArgs) -> Result<(), Failure> {
    // The page itself reports problems with the pods.
    logging::install(&LogFilter::errors(), LogFormat::Text);
    run::runtime()?.block_on(play(args))
}

async fn play(args: &DemoArgs) -> Result<(), Failure> {
    // Before anything is created that must be removed.
    let mut signals = Signals::new()?;
    let mut stage = Stage::set()?;
    let kubelet = Kubelet::start(stage.node_name(), stage.pod_list()).await?;
    let Paths { cgroup_root, proc_root, sys_root, kubepods } = stage.paths();
    let options = Options::default();
    let mut config = Config::resolve(Options {
        listen: free(args.listen),
        sched_trace: SchedTraceMode::Off,
        metrics: MetricsPreset::Full,
        cgroup_root: cgroup_root.unwrap_or(options.cgroup_root),
        proc_root: proc_root.unwrap_or(options.proc_root),
        sys_root: sys_root.unwrap_or(options.sys_root),
        kubepods,
        pod_source: PodSourceName::Kubelet,
        kubelet_url: kubelet.url(),
        kubelet_ca_file: Some(kubelet.ca_file()),
        kubelet_token_file: Some(kubelet.token_file()),
        node_name: Some(stage.node_name().to_owned()),
        ..options
    })?;
    // The machine's own kubelet must not interfere.
    config.pods.pod_resources_socket = None;
    let mut agent = Agent::start(&config).await?;
    let screen = Screen::new(args.once.is_none());
    let head = head(&stage, args.listen, agent.address());
    let show = Show { head, pods: agent.pods().clone(), time: time(args, &screen), screen };
    let published = agent.published();
    let outcome = tokio::select! {
        outcome = show.run(&published, &mut stage) => outcome,
        () = signals.any() => Ok(()),
        () = agent.failed() => Err(anyhow!("the sampler's thread ended; its panic is in the log")),
    };
    agent.drain().await;
    Ok(outcome?)
}

/// The requested address, with any free port if its port is in use.
fn free(wanted: SocketAddr) -> SocketAddr {
    match TcpListener::bind(wanted) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => SocketAddr::new(wanted.ip(), 0),
        // Free, or invalid in a way that the agent will report.
        _ => wanted,
    }
}

/// Duration of the demo; `None` means until a signal.
fn time(args: &DemoArgs, screen: &Screen) -> Option<Duration> {
    let said = args.once.map(Duration::from_secs).or(args.duration.map(|span| span.0));
    if screen.is_live() { said } else { said.or(Some(ONE_TABLE_AFTER)) }
}

fn head(stage: &Stage, wanted: SocketAddr, actual: SocketAddr) -> String {
    let mut head = format!("{}\nmetrics: http://{actual}/metrics", stage.headline());
    if wanted.port() != 0 && wanted != actual {
        head += &format!("  ({wanted} is in use)");
    }
    head
}

/// Display of the demo, and its duration.
struct Show {
    head: String,
    pods: Pods,
    screen: Screen,
    time: Option<Duration>,
}

impl Show {
    /// Follows the samples; draws each on a terminal, else only the last one.
    async fn run(
        mut self,
        published: &Published<NodeSnapshot>,
        stage: &mut Stage,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut table = Table::default();
        let mut seen = 0;
        while self.time.is_none_or(|time| began.elapsed() < time) {
            let snapshot = published.latest();
            if snapshot.sequence > seen {
                seen = snapshot.sequence;
                stage.step(seen);
                table.observe(&snapshot);
                if self.screen.is_live() {
                    self.draw(&table)?;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        if self.screen.is_live() { Ok(()) } else { self.draw(&table) }
    }

    fn draw(&mut self, table: &Table) -> anyhow::Result<()> {
        let errors = self.pods.status().into_iter().filter_map(|source| source.error);
        let errors: String = errors.map(|error| format!("\npods: {error}")).collect();
        let table = table::render_with(&table.cells(), Table::NUMBERS);
        let page = format!("{}{errors}\n\n{table}\n{LEGEND}", self.head);
        self.screen.draw(&page).context("cannot write to standard output")
    }
}

/// Signals that end the demo early.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("cannot handle signals");
        Ok(Self([
            on(SignalKind::interrupt())?,
            on(SignalKind::terminate())?,
            on(SignalKind::hangup())?,
        ]))
    }

    async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
