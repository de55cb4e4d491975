//! Drives the parts of the agent, tick after tick, with a clock that is a second later each time.
//!
//! The sampler, the history and its recording, the verdicts, the advice and the page of metrics are
//! the agent's own. The trace's waits are made up, and nothing reads usage traces or garbage
//! collection. These clocks are the machine's, and pass slower than the ticks:
//!
//! - the time between two looks whether the recording's file was removed (10 s),
//! - the time of creation in the header of a recording's file,
//! - the CPU time that the sampler compares with its budget, which is unlimited here,
//! - reads between two ticks, of which there are none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use advisor::{Advisor, Judge};
use cgroupfs::{Hierarchy, raise_descriptor_limit};
use metrics::catalogue::{Preset, Selection};
use metrics::{AgentMetrics, Build, Exposition, Format};
use sampler::{DescriptorBudget, ExtraFiles, Sampler, SamplerConfig};
use snapshot::{NodeSnapshot, Published};
use timeline::recording::{LEAST_SIZE, Origin, Ring, RingConfig};
use timeline::{MAX_CONTAINERS, MAX_PAIRS, Timeline, TimelineConfig};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};
use xtask::fleet::{FleetError, KernelMemory, Reading, Report};

use crate::node::Node;

/// Ticks between two scrapes.
const SCRAPE: u64 = 15;
/// Number of readings in a run.
const READINGS: u64 = 240;
/// Real time after which the advice does not come any more: this process may be frozen.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A run.
pub(crate) struct Soak {
    /// Pods at the same time, of two containers each.
    pub(crate) pods: usize,
    /// Length, ticks.
    pub(crate) ticks: u64,
    /// Container starts per tick.
    pub(crate) starts: f64,
    /// Whether the kernel's memory is read, which moves the process to a cgroup of its own.
    pub(crate) is_kernel_counted: bool,
}

impl Soak {
    /// Runs it, with `each` after every tick. Returns the report.
    ///
    /// # Errors
    /// A figure has grown.
    pub(crate) fn run(&self, mut each: impl FnMut(u64)) -> (String, Result<(), FleetError>) {
        let directory = directory();
        let mut node = Node::create(&directory.path().join("cgroup"), self.pods);
        let mut agent = Parts::start(directory.path(), &node);
        let kernel = self.is_kernel_counted.then(KernelMemory::of_this_process).flatten();
        let Self { pods, starts, ticks, .. } = self;
        let about = format!(
            "{pods} pods x 2 containers of plain files, {starts} container starts per second of \
             virtual time"
        );
        let mut report = Report::new(&about, LEAST_SIZE);
        let first = node.started();
        for second in 1..=*ticks {
            while ((node.started() - first) as f64) < second as f64 * starts {
                node.replace(second);
            }
            agent.tick(&node, second);
            each(second);
            if second * READINGS / ticks > report.readings() as u64 {
                let page = agent.page();
                let kernel = kernel.as_ref().and_then(KernelMemory::kib);
                let at = [second, agent.snapshot.sequence, node.started()];
                report.add(Reading::new(at, &page, kernel, &agent.recording));
            }
        }
        report.end()
    }
}

/// A directory in memory, if there is one.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let in_memory = memory.is_dir().then(|| tempfile::tempdir_in(memory).ok()).flatten();
    in_memory.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// The parts of the agent.
struct Parts {
    sampler: Sampler,
    /// The latest snapshot, with the time of the virtual clock.
    snapshot: Arc<NodeSnapshot>,
    metrics: Arc<AgentMetrics>,
    exposition: Exposition,
    timeline: Timeline,
    ring: Ring,
    recording: PathBuf,
    /// Number of the last recorded frame.
    recorded: u64,
    judge: Judge,
    advice: Advice,
    began: (Instant, SystemTime),
}

impl Parts {
    fn start(directory: &Path, node: &Node) -> Self {
        let metrics = Arc::new(AgentMetrics::new(Build { version: "0.1.0", revision: "soak" }));
        let config = SamplerConfig {
            hierarchy: Hierarchy::detect(&directory.join("cgroup")).unwrap(),
            kubepods: Vec::new(),
            proc_root: "/proc".into(),
            sys_root: "/sys".into(),
            interval: Duration::from_secs(1),
            cpu_budget_cores: f64::MAX,
            reconcile_interval: Duration::from_secs(60),
            descriptors: DescriptorBudget::from_limit(raise_descriptor_limit().soft),
            pod_labels: Vec::new(),
            extra: ExtraFiles::default(),
        };
        let sampler = Sampler::new(config, Box::new(node.names.clone())).unwrap();
        let name = "soak".to_owned();
        let recording = directory.join("recording");
        let ring = RingConfig::new(recording.clone(), LEAST_SIZE).thinned().without_sync();
        let origin = Origin { node: name.clone(), agent: "0.1.0".to_owned() };
        Self {
            sampler,
            snapshot: Arc::default(),
            advice: Advice::start(Arc::clone(&metrics)),
            metrics,
            exposition: Exposition::with_selection(50_000, Selection::preset(Preset::Standard)),
            timeline: Timeline::new(TimelineConfig {
                node: name,
                containers: MAX_CONTAINERS,
                pairs: MAX_PAIRS,
            }),
            ring: Ring::open(ring, origin).unwrap(),
            recording,
            recorded: 0,
            judge: Judge::default(),
            began: (Instant::now(), SystemTime::now()),
        }
    }

    /// Runs one tick, and what follows it in the agent.
    fn tick(&mut self, node: &Node, second: u64) {
        let passed = Duration::from_secs(second);
        let now = self.began.0 + passed;
        node.advance(second, now);
        self.sampler.waits().publish(node.waits(second, now));
        let before = Instant::now();
        self.sampler.tick(now);
        self.metrics.observe_tick(Duration::ZERO, before.elapsed());
        let mut snapshot = NodeSnapshot::clone(&self.sampler.published().latest());
        snapshot.taken = Some(self.began.1 + passed);
        self.snapshot = Arc::new(snapshot);
        self.timeline.observe(&self.snapshot);
        if let Some(judged) = self.judge.read(&self.snapshot, |_| false) {
            self.metrics.slowed().set(judged.rows);
            self.timeline.set_verdicts(judged.verdicts.clone());
            self.advice.advisor.verdicts().publish(judged.verdicts);
        }
        self.advice.follow(&self.snapshot);
        for frame in self.timeline.frames_after(&mut self.recorded) {
            self.ring.append(&frame).unwrap();
        }
        if second.is_multiple_of(SCRAPE) {
            self.exposition.render_compressed(&self.snapshot, &self.metrics, Format::Text);
            self.exposition.take_compressed();
        }
    }

    /// The page of metrics. The advice is answered, too.
    fn page(&mut self) -> String {
        assert!(!self.advice.advisor.advice().containers.is_empty());
        let page = self.exposition.render(&self.snapshot, &self.metrics, Format::Text);
        String::from_utf8(page.to_vec()).unwrap()
    }
}

/// The task of the advice.
struct Advice {
    runtime: Runtime,
    advisor: Advisor,
    published: Published<NodeSnapshot>,
    is_published: Arc<Notify>,
    /// One for each snapshot that it has taken.
    beats: mpsc::UnboundedReceiver<()>,
}

impl Advice {
    fn start(metrics: Arc<AgentMetrics>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let advisor = Advisor::new("/proc".into(), metrics, Duration::from_secs(300));
        let (published, is_published) = (Published::default(), Arc::new(Notify::new()));
        let (beat, beats) = mpsc::unbounded_channel();
        let follow = advisor.clone().follow(published.clone(), Arc::clone(&is_published), {
            move |_| beat.send(()).unwrap_or_default()
        });
        runtime.spawn(follow);
        Self { runtime, advisor, published, is_published, beats }
    }

    /// Gives it a snapshot and waits until it is taken.
    fn follow(&mut self, snapshot: &Arc<NodeSnapshot>) {
        self.published.replace(Arc::clone(snapshot));
        self.is_published.notify_one();
        let beat = async { tokio::time::timeout(PATIENCE, self.beats.recv()).await };
        self.runtime.block_on(beat).unwrap().unwrap();
    }
}
