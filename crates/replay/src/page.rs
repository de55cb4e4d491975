//! `cpuwarden replay --listen`: the page and the JSON API on a recording.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use api::{AdviceReport, CpuFrame, CpuWithOwner, KEPT, NodeTopology};
use console::{Failure, output, stderr};
use endpoint::{AgentStatus, Parts, Serving, Sources, Ui};
use kernel_text::CpuSet;
use metrics::{AgentMetrics, Build, Exposition};
use snapshot::Published;
use timeline::recording::{Origin, Recording};
use timeline::{MAX_CONTAINERS, MAX_PAIRS, Timeline, TimelineConfig};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use top::{Playback, Signals, Source as _, Update};

use crate::frames::Frames;

/// Maximum number of series at /metrics, where a replay has only those of its own process.
const SERIES: usize = 1000;
/// Length of the history of the page: the frames that a timeline keeps.
const HISTORY: Duration = Duration::from_secs(KEPT as u64);
/// Time between two polls for frames that are due.
const LOOK: Duration = Duration::from_millis(100);

/// Serves the page until SIGINT or SIGTERM.
///
/// # Errors
/// The address cannot be used.
pub(super) fn serve(recording: Recording, at: u64, address: SocketAddr) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let page = Page::start(recording, at, address)?;
        output::show(&format!("page of the recording: http://{}/ (Ctrl-C ends)\n", page.address()));
        signals.any().await;
        page.stop().await;
        Ok(())
    })
}

/// The page and the JSON API on a recording, at an address.
pub struct Page {
    address: SocketAddr,
    serving: Serving,
    playing: JoinHandle<()>,
}

impl Page {
    /// Serves first the ten minutes before `at`, then each second when it is due. Must be called
    /// inside a tokio runtime.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn start(recording: Recording, at: u64, address: SocketAddr) -> Result<Self, Failure> {
        let listener =
            endpoint::listen(address).map_err(|error| Failure::unavailable(error.to_string()))?;
        let address = listener.local_addr().context("cannot read the port")?;
        let origin = recording.origin(recording.position(at)).cloned().unwrap_or_default();
        let path = recording.path().to_owned();
        let timeline = Timeline::new(TimelineConfig {
            node: String::new(),
            containers: MAX_CONTAINERS,
            pairs: MAX_PAIRS,
        });
        let playback = Playback::new(Frames(recording), at).with_history(HISTORY);
        let mut player = Player { playback, timeline };
        player.play();
        let parts = parts(listener, views(&player.timeline, origin, path));
        let serving = Serving::start(parts).context("cannot start the endpoint's thread")?;
        let playing = tokio::spawn(async move {
            let mut look = interval(LOOK);
            look.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                look.tick().await;
                player.play();
            }
        });
        Ok(Self { address, serving, playing })
    }

    /// Address of the page.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the page.
    pub async fn stop(self) {
        self.playing.abort();
        self.serving.stop().await;
    }
}

/// Moves frames of the recording to the history when they are due.
struct Player {
    playback: Playback<Frames>,
    timeline: Timeline,
}

impl Player {
    fn play(&mut self) {
        for update in self.playback.updates() {
            match update {
                Update::Seek(frames) => frames.iter().for_each(|frame| self.timeline.add(frame)),
                Update::Frame(frame) => self.timeline.add(&frame),
                Update::Status(error) => stderr::say(error),
                _ => {}
            }
        }
    }
}

/// The endpoint has no agent.
struct NoAgent;

impl AgentStatus for NoAgent {}

/// An endpoint without an agent: it has no pods and no samples of its own.
fn parts(listener: TcpListener, ui: Ui) -> Parts {
    let metrics = AgentMetrics::new(Build { version: ui.version, revision: ui.revision });
    Parts {
        listener,
        identity: None,
        auth: None,
        cadvisor: false,
        allowed_hosts: Vec::new(),
        sources: Sources {
            published: Published::default(),
            metrics: Arc::new(metrics),
            advice: Arc::new(AdviceReport::default),
            status: Arc::new(NoAgent),
        },
        new_exposition: Box::new(|| Exposition::new(SERIES)),
        interval: Duration::from_secs(1),
        ui: Some(ui),
        beat: Box::new(|_| ()),
    }
}

fn views(timeline: &Timeline, origin: Origin, path: PathBuf) -> Ui {
    let of_topology = timeline.clone();
    Ui {
        timeline: timeline.clone(),
        is_replay: true,
        version: env!("CARGO_PKG_VERSION"),
        revision: console::REVISION,
        topology: Box::new(move || {
            let frame = of_topology.latest().context("no frame yet")?;
            Ok(topology(&frame.node.cpus))
        }),
        pins: Box::new(|| Err(anyhow!("a recording has no pins"))),
        doctor: Box::new(|| Err(anyhow!("a recording has no node to examine"))),
        origin,
        recorded: Some(path),
    }
}

/// The answer of `/api/v1/topology` from the CPUs of a frame. Recordings do not contain the owners
/// of CPUs.
fn topology(cpus: &[CpuFrame]) -> NodeTopology {
    let list = |cpus: &mut dyn Iterator<Item = u32>| cpus.collect::<CpuSet>().to_string();
    let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in cpus {
        nodes.entry(cpu.numa_node.unwrap_or_default()).or_default().push(cpu.cpu);
    }
    let cpu = |cpu: &CpuFrame| CpuWithOwner {
        cpu: cpu.cpu,
        core: cpu.core.unwrap_or(cpu.cpu),
        l3: cpu.llc,
        numa_node: cpu.numa_node.unwrap_or_default(),
        socket: cpu.socket.unwrap_or_default(),
        owner: "unknown".to_owned(),
        ..CpuWithOwner::default()
    };
    NodeTopology {
        online: list(&mut cpus.iter().map(|cpu| cpu.cpu)),
        numa_nodes: nodes
            .into_iter()
            .map(|(node, cpus)| (node, list(&mut cpus.into_iter())))
            .collect(),
        cpus: cpus.iter().map(cpu).collect(),
        ..NodeTopology::default()
    }
}
