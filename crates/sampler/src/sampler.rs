//! One tick: find, name, read, count, publish.

mod life;
mod names;
mod reads;
mod rows;
mod turns;

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroup_tree::{KubepodsTree, TreeOptions};
use cgroupfs::Hierarchy;
use cgroupfs::node::own_thread_cpu_ns;
use kernel_text::WeightRule;
use kubepods::{PodIndex, PodNames};
use snapshot::{FeatureState, NodeSnapshot, NodeWaits, Published, ends_window};

use crate::budget::DescriptorBudget;
use crate::cgroup::CgroupId;
use crate::features;
use crate::files::ReadErrors;
use crate::governor::Governor;
use crate::plan::Clock;
use crate::probe::NodeProbe;
use crate::publish::Publisher;
use crate::series::{ContainerSeries, PodSeries, Table};
use crate::slow::Slow;
use crate::tasks::TaskScan;
use crate::tree::Tree;
use crate::wake::{Cause, Wake};
use names::{ExitedUnnamed, Lookups};
use turns::DueReads;

/// Configuration of the sampler.
#[derive(Debug, Clone)]
pub struct SamplerConfig {
    /// The cgroup hierarchies.
    pub hierarchy: Hierarchy,
    /// The kubelet's top cgroups as paths below the cpu mount; if empty, they are searched for. Not
    /// used with a shared tree, which has its own.
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
    /// Rule that converts v1 shares to a weight; on v2, the default until a container shows its
    /// runtime's rule.
    pub weight_rule: WeightRule,
}

/// State of the sampler. It lives on one thread; consumers read what it [`Published`].
pub struct Sampler {
    names: Box<dyn PodNames>,
    proc_root: PathBuf,
    governor: Governor,
    started: Instant,
    reconcile_interval: Duration,
    tasks: TaskScan,
    tree: Tree,
    clock: Clock,
    wake: Wake,
    causes: Vec<Cause>,
    probe: NodeProbe,
    containers: Table<ContainerSeries>,
    pods: Table<PodSeries>,
    publisher: Publisher,
    buffer: Vec<u8>,
    slow: Slow,
    errors: ReadErrors,
    index: Arc<PodIndex>,
    lookups: Lookups,
    /// Containers that exited before they were named.
    exited: Vec<ExitedUnnamed>,
    /// Time of the last retry of failed operations.
    reconciled: Option<Instant>,
    due: DueReads,
    /// Cgroups of which a read has reported that they are gone.
    vanished: Vec<CgroupId>,
    path: PathBuf,
    window_began: Option<Instant>,
    /// Time at which the last tick read the counters.
    read_at: Option<Instant>,
    features: Vec<FeatureState>,
    /// Reason for the feature `pod_names`, as last returned by [`PodNames::missing`].
    names_missing: Option<&'static str>,
    waits: Published<NodeWaits>,
    /// Whether a container has shown the rule between shares and weights.
    is_weight_rule_shown: bool,
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
        let SamplerConfig { hierarchy, proc_root, sys_root, descriptors, weight_rule, .. } = config;
        // Required resources first.
        let wake = Wake::new()?;
        let tree = Tree::new(hierarchy, tree, descriptors)?;
        wake.on_tree(tree.as_fd())?;
        let mut probe = NodeProbe::new(&proc_root, &sys_root, &tree.hierarchy);
        probe.kernel.weight_rule = weight_rule;
        let clock = Clock::new(Instant::now(), tree.hierarchy.version);
        Ok(Self {
            names,
            governor: Governor::new(config.interval, config.cpu_budget_cores),
            started: Instant::now(),
            reconcile_interval: config.reconcile_interval,
            tasks: TaskScan::new(&proc_root),
            tree,
            clock,
            proc_root,
            wake,
            causes: Vec::new(),
            probe,
            containers: Table::default(),
            pods: Table::default(),
            publisher: Publisher::default(),
            buffer: vec![0; 16 * 1024],
            slow: Slow::default(),
            errors: ReadErrors::default(),
            index: Arc::default(),
            lookups: Lookups::default(),
            exited: Vec::new(),
            reconciled: None,
            due: DueReads::default(),
            vanished: Vec::new(),
            path: PathBuf::new(),
            window_began: None,
            read_at: None,
            features: Vec::new(),
            names_missing: None,
            waits: Published::default(),
            is_weight_rule_shown: false,
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
        self.waits.clone()
    }

    /// Time between ticks.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.governor.interval()
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
            self.tree.now = now;
            self.welcome(now);
            let news = self.lookups.awaited.polling_interval().map(|interval| now + interval);
            let until =
                [self.read_again(now), news].into_iter().flatten().fold(deadline, Instant::min);
            let left = until.saturating_duration_since(now);
            let mut causes = std::mem::take(&mut self.causes);
            self.wake.wait(left, |cause| causes.push(cause));
            let stop = causes.contains(&Cause::Stop);
            self.tree.now = Instant::now();
            for cause in causes.drain(..) {
                match cause {
                    Cause::Tree => {
                        self.tree.poll(&mut self.errors);
                        self.attend();
                    }
                    Cause::Exit(id) => self.read_last(id),
                    Cause::Stop => {}
                }
            }
            self.causes = causes;
            if stop {
                return ControlFlow::Break(());
            }
        }
    }

    /// Handles the changes of the tree: shows new cgroups, and reads the last counters of those that
    /// have just emptied.
    fn attend(&mut self) {
        self.settle();
        for id in std::mem::take(&mut self.tree.populated) {
            if self.tree.cgroups.contains(id) {
                self.read_twice(id);
            }
        }
        for id in std::mem::take(&mut self.tree.attached) {
            self.watch_exit(id);
        }
    }

    /// Runs one tick at `now`.
    pub fn tick(&mut self, now: Instant) {
        let began = Instant::now();
        self.tree.tick += 1;
        self.tree.now = now;
        self.clock.advance(now);
        // Before a walk: the counters of a cgroup that has emptied may be about to disappear.
        self.tree.poll(&mut self.errors);
        self.attend();
        let due =
            self.reconciled.is_none_or(|last| now.duration_since(last) >= self.reconcile_interval);
        if due {
            self.try_again(now);
        }
        let walked = self.tree.reconcile(due, &mut self.errors);
        if walked {
            self.probe.read_slow();
            self.attend();
        }
        self.rename(now);
        self.watch_exits(walked);
        self.read_at = Some(now + began.elapsed());
        self.read_all();
        self.read_slow_round();
        self.scan_tasks();
        self.close_windows(now);
        self.govern(now);
        let missing = self.names.missing();
        if walked || self.features.len() <= 1 || missing != self.names_missing {
            self.names_missing = missing;
            self.tell_features();
        }
        if walked || !self.is_weight_rule_shown {
            self.follow_weight_rule();
        }
        self.publish();
    }

    /// Retries what failed because descriptors were unavailable. The walk that follows opens files.
    fn try_again(&mut self, now: Instant) {
        self.reconciled = Some(now);
        self.probe.open_missing();
    }

    fn close_windows(&mut self, now: Instant) {
        let began = *self.window_began.get_or_insert(now);
        if !ends_window(began, now, self.interval()) {
            return;
        }
        self.window_began = Some(now);
        self.containers.iter_mut().for_each(ContainerSeries::close_window);
        self.pods.iter_mut().for_each(PodSeries::close_window);
    }

    /// Lengthens the interval if sampling costs too much, and logs it. Only this thread's CPU time
    /// counts: a longer interval would not reduce that of the other threads.
    fn govern(&mut self, now: Instant) {
        let Some(change) =
            self.governor.observe(now.duration_since(self.started), own_thread_cpu_ns())
        else {
            return;
        };
        let (interval, used_cores) = (change.interval, format!("{:.4}", change.used_cores));
        tracing::warn!(
            ?interval,
            used_cores,
            "changed the sample interval to keep sampling within --cpu-budget"
        );
        self.tell_features();
    }

    /// Derives the rule between shares and weights from containers with a known request. The
    /// majority decides: after an upgrade of the runtime, older containers still have the old
    /// rule's weight.
    fn follow_weight_rule(&mut self) {
        let shown = self.containers.iter_mut().filter_map(|series| series.row.shown_weight_rule());
        let balance: i64 = shown.map(|rule| if rule == WeightRule::Linear { 1 } else { -1 }).sum();
        if balance != 0 {
            self.is_weight_rule_shown = true;
            self.probe.kernel.weight_rule =
                if balance > 0 { WeightRule::Linear } else { WeightRule::Quadratic };
        }
    }

    fn tell_features(&mut self) {
        self.features = features::states(&self.tree, &self.probe.kernel);
        self.features.push(features::state("sample_interval", self.governor.reason()));
        self.features.extend(
            self.names_missing.map(|reason| features::state("pod_names", reason.to_owned())),
        );
        let unkept =
            self.tree.cgroups.iter().filter(|(_, cgroup)| cgroup.files.any_unkept()).count();
        let reason = match unkept {
            0 => String::new(),
            _ => "the agent opens some files for each read: raise --max-open-files, or the limit of open files \
                 (LimitNOFILE)"
                .to_owned(),
        };
        self.features.push(features::state("kept_descriptors", reason));
        let scan = self.tasks.cost();
        if scan.time > Duration::ZERO {
            let unseen = "no process of any container is visible: the agent needs the host's PID namespace (hostPID: \
                 true)";
            let reason = if scan.any_process { "" } else { unseen };
            self.features.push(features::state("run_queue_delay", reason.to_owned()));
        }
    }
}
