//! One tick: find, name, read, count, publish.

mod ledger;
mod life;
mod lookup;
mod names;
mod node;
mod pod_sandboxes;
mod reads;
mod rechecks;
mod rows;
mod schedule;

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use cgroup_tree::{KubepodsTree, TreeOptions};
use cgroupfs::Hierarchy;
use kubepods::PodNames;
use snapshot::{NodeGc, NodeSnapshot, NodeWaits, Published};

use crate::budget::DescriptorBudget;
use crate::bulk::BulkSource;
use crate::missing::MissingContainers;
use crate::naming::ExportedLabel;
use crate::publish::SnapshotPublisher;
use crate::slow::ExtraFiles;
use crate::tree::SampledTree;
use crate::wake::{Wake, Wakeup};
use ledger::Ledger;
use lookup::NameLookup;
use node::NodeState;
use reads::ReadState;
use schedule::Schedule;

/// Configuration of the sampler.
#[derive(Debug, Clone)]
pub struct SamplerConfig {
    /// The cgroup hierarchies.
    pub hierarchy: Hierarchy,
    /// The kubepods roots as paths below the cpu mount; if empty, they are searched for.
    /// Not used with a shared tree, which has its own.
    pub kubepods: Vec<String>,
    /// `/proc` of the node.
    pub proc_root: PathBuf,
    /// `/sys` of the node.
    pub sys_root: PathBuf,
    /// Time between ticks.
    pub interval: Duration,
    /// CPU time that the sampler's thread may use, cores; above it the interval is doubled.
    pub cpu_budget_cores: f64,
    /// Time between walks that find what inotify missed.
    pub reconcile_interval: Duration,
    /// Descriptors that may be kept.
    pub descriptors: DescriptorBudget,
    /// Labels of pods in the identities of their containers. The pods must have them.
    pub pod_labels: Vec<ExportedLabel>,
    /// Files that are read in addition.
    pub extra: ExtraFiles,
}

/// State of the sampler. It lives on one thread; consumers read what it [`Published`].
pub struct Sampler {
    tree: SampledTree,
    wake: Wake,
    schedule: Schedule,
    reader: ReadState,
    names: NameLookup,
    missing: MissingContainers,
    ledger: Ledger,
    node: NodeState,
    publisher: SnapshotPublisher,
}

impl Sampler {
    /// Creates a sampler that has read nothing yet, with a tree of its own.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(config: SamplerConfig, names: Box<dyn PodNames>) -> io::Result<Self> {
        let options = TreeOptions {
            named_roots: config.kubepods.clone(),
            reports: true,
            ..TreeOptions::default()
        };
        let hierarchy = &config.hierarchy;
        let tree = KubepodsTree::new(hierarchy.cpu.clone(), hierarchy.version, options);
        Self::on(&tree, config, names)
    }

    /// Creates a sampler that has read nothing yet, on a shared tree of the cpu controller's
    /// hierarchy.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn on(
        tree: &Arc<KubepodsTree>,
        config: SamplerConfig,
        names: Box<dyn PodNames>,
    ) -> io::Result<Self> {
        // Required resources first.
        let wake = Wake::new()?;
        let tree = SampledTree::new(config.hierarchy.clone(), tree, config.descriptors)?;
        wake.on_tree(tree.as_fd())?;
        Ok(Self {
            wake,
            schedule: Schedule::new(&config),
            reader: ReadState::new(&config.proc_root, config.extra),
            missing: MissingContainers::default(),
            ledger: Ledger::default(),
            node: NodeState::new(&config, &tree.hierarchy),
            names: NameLookup::new(names, config.proc_root, config.pod_labels),
            publisher: SnapshotPublisher::default(),
            tree,
        })
    }

    /// The tree that the sampler reads.
    #[must_use]
    pub fn tree(&self) -> &Arc<KubepodsTree> {
        self.tree.shared()
    }

    /// Handle through which consumers read the snapshots.
    #[must_use]
    pub fn published(&self) -> Published<NodeSnapshot> {
        self.publisher.published()
    }

    /// Slot for the waits that the next snapshot publishes.
    #[must_use]
    pub fn waits(&self) -> Published<NodeWaits> {
        self.publisher.waits()
    }

    /// Slot for the garbage collection that the next snapshot publishes.
    #[must_use]
    pub fn gc(&self) -> Published<NodeGc> {
        self.publisher.gc()
    }

    /// Collects the counters of all cgroups from the source that will arrive here, and from the
    /// files until then.
    pub fn collect_from(&mut self, arriving: Receiver<BulkSource>) {
        self.reader.bulk.expect(arriving);
    }

    /// Time between ticks.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.schedule.governor.interval()
    }

    /// Whether some listed container has no cgroup, but not for long enough to be reported.
    #[must_use]
    pub fn awaits_missing(&self) -> bool {
        self.missing.awaits_report()
    }

    /// Makes [`Sampler::wait`] break when `stop` becomes readable.
    ///
    /// # Errors
    /// Fails if epoll does.
    pub(crate) fn stop_when_readable(&self, stop: &OwnedFd) -> io::Result<()> {
        self.wake.on_stop(stop)
    }

    /// Waits for the deadline, handling events meanwhile; breaks if the sampler must stop.
    pub(crate) fn wait(&mut self, deadline: Instant) -> ControlFlow<()> {
        loop {
            let now = Instant::now();
            if deadline <= now {
                return ControlFlow::Continue(());
            }
            self.publish_new(now);
            let poll = self.names.lookups.awaited.polling_interval(&self.schedule.timing);
            let poll = poll.map(|interval| now + interval);
            let until =
                [self.read_again(now), poll].into_iter().flatten().fold(deadline, Instant::min);
            let left = until.saturating_duration_since(now);
            let wakeups = self.wake.wait(left);
            let stop = wakeups.contains(&Some(Wakeup::Stop));
            let now = Instant::now();
            for wakeup in wakeups.into_iter().flatten() {
                match wakeup {
                    Wakeup::Tree => self.poll(now),
                    Wakeup::Exit(id) => self.read_last(id, now),
                    Wakeup::Stop => {}
                }
            }
            if stop {
                return ControlFlow::Break(());
            }
        }
    }

    /// Runs one tick at `now`.
    pub fn tick(&mut self, now: Instant) {
        let began = Instant::now();
        self.schedule.begin_tick(now);
        // Before a walk: the counters of a cgroup that has emptied may be about to disappear.
        self.poll(now);
        let due = self.schedule.is_walk_due(now);
        if due {
            // What failed because descriptors were unavailable; the walk opens other files.
            self.node.probe.open_missing();
        }
        let walked = self.reconcile(due, now);
        if walked {
            self.node.probe.read_slow();
            self.show_busy_sandboxes(now);
        }
        self.rename(now);
        self.find_pod_sandboxes();
        self.seek_missing(now);
        self.watch_exits(walked);
        self.schedule.read_at = Some(now + began.elapsed());
        self.read_all(now);
        self.read_slow(now);
        self.scan_tasks(now);
        if self.schedule.ends_window(now) {
            self.ledger.close_windows();
        }
        let is_interval_new = self.schedule.govern(now);
        let missing = self.names.source.missing();
        // The first tick walks, so it determines them.
        let is_source_new = self.reader.bulk.differs(&self.node.features);
        if walked || is_interval_new || is_source_new || missing != self.names.missing {
            self.names.missing = missing;
            self.update_features();
        }
        if walked || !self.node.is_weight_rule_shown {
            self.node.detect_weight_rule(&self.ledger.containers);
        }
        self.publish(now);
    }
}
