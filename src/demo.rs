//! `cpuwarden demo`: shows the agent's main function on any machine, and cleans up afterwards.
//!
//! Runs the agent, as started by `run`, on the stage of the crate `demo`. On a terminal it opens the
//! view of `top`; elsewhere it prints a table of the time since the start.

use std::io::{self, IsTerminal as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use console::table;
use demo::{Kubelet, LEGEND, Paths, Stage, Table};
use kubelet::Pods;
use serde_json::json;
use snapshot::{NodeSnapshot, Published};
use top::{App, Live, Look, Update};
use top_commands::{Signals, advice, columns, show};

use crate::agent::Agent;
use crate::cli::{DEFAULT_ADDRESS, DemoArgs, DemoOutput};
use crate::config::{Config, MetricsPreset, Options, PodSourceName, SchedTraceMode, UiMode};
use crate::exit::Failure;
use crate::logging::{self, LogFilter, LogFormat};
use crate::{output, run};

/// Time of the single table, if standard output is not a terminal and no duration is given.
const ONE_TABLE_AFTER: Duration = Duration::from_secs(10);
/// Polling interval for a new snapshot; snapshots come once per second.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum width of the single table.
const WIDEST: usize = 100;

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
    let stage = Arc::new(Stage::set()?);
    let kubelet = Kubelet::start(stage.node_name(), stage.pod_list()).await?;
    let config = config(args, &stage, &kubelet)?;
    let mut agent = Agent::start(&config).await?;
    let timeline = agent.timeline().context("the agent of this process keeps no history")?;
    let table = Arc::new(Mutex::new(Table::default()));
    let following = {
        let (stage, table) = (Arc::clone(&stage), Arc::clone(&table));
        tokio::spawn(follow(agent.published(), move |snapshot| {
            stage.step(snapshot.sequence);
            table.lock().unwrap_or_else(PoisonError::into_inner).observe(snapshot);
        }))
    };
    let is_live = args.once.is_none() && io::stdout().is_terminal();
    let time = match args.time() {
        None if !is_live => Some(ONE_TABLE_AFTER),
        time => time,
    };
    let view = View { head: Head::new(args, &stage, agent.address()), pods: agent.pods().clone() };
    let advisor = agent.advisor().clone();
    let end = async {
        tokio::select! {
            () = sleep(time) => Ok(true),
            () = signals.any() => Ok(false),
            () = agent.failed() => {
                Err(anyhow!("the sampler's thread ended; its panic is in the log").into())
            }
        }
    };
    let outcome = if is_live {
        let updates = view.updates(advisor);
        show(App::new(Look::from_env()), Live::new(timeline, updates), async {
            end.await.map(drop)
        })
        .await
    } else {
        let is_complete = end.await;
        is_complete.and_then(|is_complete| {
            let table = table.lock().unwrap_or_else(PoisonError::into_inner);
            if is_complete { view.print(&table, args.output) } else { Ok(()) }
        })
    };
    following.abort();
    // The stage is removed when its last user is gone: here, before the process ends.
    let _ = following.await;
    agent.drain().await;
    outcome
}

/// Calls `each` with every snapshot, until the task is aborted.
async fn follow(published: Published<NodeSnapshot>, mut each: impl FnMut(&NodeSnapshot) + Send) {
    let mut seen = 0;
    loop {
        let snapshot = published.latest();
        if snapshot.sequence > seen {
            seen = snapshot.sequence;
            each(&snapshot);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

fn config(args: &DemoArgs, stage: &Stage, kubelet: &Kubelet) -> Result<Config, Failure> {
    let Paths { cgroup_root, proc_root, sys_root, kubepods } = stage.paths();
    let options = Options::default();
    let mut config = Config::resolve(Options {
        listen: free(args.listen),
        // A recording has no scheduler.
        sched_trace: if stage.is_real() { SchedTraceMode::Auto } else { SchedTraceMode::Off },
        metrics: MetricsPreset::Full,
        // Its history is the view's.
        ui: UiMode::On,
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
    Ok(config)
}

/// The requested address, with any free port if its port is in use.
fn free(wanted: SocketAddr) -> SocketAddr {
    match TcpListener::bind(wanted) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => SocketAddr::new(wanted.ip(), 0),
        // Free, or invalid in a way that the agent will report.
        _ => wanted,
    }
}

/// The stage and the address, above the table.
struct Head {
    stage: String,
    metrics: String,
    /// Command that shows the advice.
    advise: String,
}

impl Head {
    fn new(args: &DemoArgs, stage: &Stage, actual: SocketAddr) -> Self {
        let mut metrics = format!("metrics: http://{actual}/metrics");
        if args.listen.port() != 0 && args.listen != actual {
            metrics += &format!("  ({} is in use)", args.listen);
        }
        let mut advise = "cpuwarden advise".to_owned();
        if actual != DEFAULT_ADDRESS {
            advise += &format!(" --address {actual}");
        }
        Self { stage: stage.headline(), metrics, advise }
    }
}

/// Output of the demo.
struct View {
    head: Head,
    pods: Pods,
}

impl View {
    /// Problems with the names of the pods.
    fn errors(&self) -> Vec<String> {
        let errors = self.pods.status().into_iter().filter_map(|source| source.error);
        errors.map(|error| format!("pods: {error}")).collect()
    }

    /// Updates of the terminal view beside its frames.
    fn updates(self, advisor: advisor::Advisor) -> impl FnMut() -> Vec<Update> + Send + 'static {
        move || {
            let Head { stage, metrics, advise } = &self.head;
            let mut notes = vec![
                stage.clone(),
                format!("{metrics}; try next, in another terminal: {advise}"),
                "Ctrl-C or q ends the demo and removes its cgroups and processes".to_owned(),
            ];
            notes.extend(self.errors());
            vec![Update::Notes(notes), Update::Advice(advice(advisor.advice()))]
        }
    }

    /// Prints the changes since the start.
    fn print(&self, table: &Table, output: DemoOutput) -> Result<(), Failure> {
        let Head { stage, metrics, advise } = &self.head;
        let text = match output {
            DemoOutput::Json => {
                let errors = self.errors();
                let page = json!({ "stage": stage, "errors": errors, "rows": table.rows() });
                serde_json::to_string_pretty(&page).context("cannot print the table")? + "\n"
            }
            DemoOutput::Table => {
                let width = columns().min(WIDEST);
                let next = format!("next, while the demo runs in a terminal: {advise}");
                let mut head = vec![stage.clone(), metrics.clone(), next];
                head.extend(self.errors());
                let head = head.iter().map(|line| table::wrap(line, width));
                let legend = LEGEND.lines().map(|line| table::wrap(line, width));
                let (head, legend): (String, String) = (head.collect(), legend.collect());
                let table = table::render_within(&table.cells(), Table::NUMBERS, width);
                format!("{head}\n{table}\n{legend}\n")
            }
        };
        output::show(&text);
        Ok(())
    }
}
