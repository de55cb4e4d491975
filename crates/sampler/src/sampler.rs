//! One tick: find, name, read, count, publish.

mod names;
mod rows;
mod turns;

use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use cgroupfs::node::own_cpu_ns;
use cgroupfs::{Hierarchy, Version};
use pods::PodIndex;

use crate::budget::DescriptorBudget;
use crate::cgroup::{Cgroup, CgroupId, ContainerKey, Gains, Kind, Naming, PathQuota};
use crate::features;
use crate::files::{Place, ReadErrors};
use crate::governor::Governor;
use crate::naming::PodNames;
use crate::probe::NodeProbe;
use crate::publish::{Published, Publisher};
use crate::reading::{Hot, Reader, Weight};
use crate::series::{ContainerSeries, PodSeries, SeriesId, Table, Track};
use crate::slow::Slow;
use crate::snapshot::FeatureState;
use crate::tasks::TaskScan;
use crate::tree::Tree;
use crate::waits::WaitsSlot;
use crate::wake::{Cause, Wake};

/// Ticks in which a new cgroup's missing files are looked for again: runtimes make a container's cgroup in one v1
/// hierarchy after the other.
const YOUNG_TICKS: u64 = 3;

/// A process is charged for its last microseconds after its end was told; a runtime takes longer to remove the cgroup.
const LAST_MICROSECONDS: Duration = Duration::from_millis(2);

/// How often news are looked for while a cgroup has no name, or a new one no usage.
const NEWS_EVERY: Duration = Duration::from_millis(100);

/// Of the histogram of throttled windows, where ticks are no longer.
const WINDOW: Duration = Duration::from_secs(1);

/// What the sampler reads and how often.
#[derive(Debug, Clone)]
pub struct SamplerConfig {
    /// The cgroup hierarchies.
    pub hierarchy: Hierarchy,
    /// The kubelet's top cgroups as paths below the cpu mount; empty: they are looked for.
    pub kubepods: Vec<String>,
    /// `/proc` of the node.
    pub proc_root: PathBuf,
    /// `/sys` of the node.
    pub sys_root: PathBuf,
    /// Time between ticks.
    pub interval: Duration,
    /// CPU time that the whole process may use, cores; above it the interval is doubled.
    pub cpu_budget_cores: f64,
    /// Time between walks that find what inotify has missed.
    pub reconcile_interval: Duration,
    /// Descriptors that may be kept.
    pub descriptors: DescriptorBudget,
}

/// The sampler's state. It lives on one thread; consumers read what it has [`Published`].
pub struct Sampler {
    names: Box<dyn PodNames>,
    proc_root: PathBuf,
    governor: Governor,
    started: Instant,
    reconcile_interval: Duration,
    tasks: TaskScan,
    tree: Tree,
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
    /// Some cgroup has no name yet, or a new one no usage.
    awaits_news: bool,
    ghosts: Vec<Ghost>,
    walked: Option<Instant>,
    /// Where the scan of threads goes on.
    next_scan: usize,
    /// Cgroups to be read once more, and when.
    again: Vec<(Instant, CgroupId)>,
    path: PathBuf,
    window_began: Option<Instant>,
    features: Vec<FeatureState>,
    waits: WaitsSlot,
}

/// A container that went before it had a name.
#[derive(Debug)]
struct Ghost {
    key: ContainerKey,
    found: SystemTime,
    series: SeriesId,
    pod: CgroupId,
}

impl Sampler {
    /// A sampler that has read nothing yet.
    ///
    /// # Errors
    /// No epoll instance is to be had.
    pub fn new(config: SamplerConfig, names: Box<dyn PodNames>) -> io::Result<Self> {
        let SamplerConfig { hierarchy, kubepods, proc_root, sys_root, descriptors, .. } = config;
        let probe = NodeProbe::new(&proc_root, &sys_root, &hierarchy);
        let tree = Tree::new(hierarchy, kubepods, descriptors);
        let wake = Wake::new()?;
        if let Some(watch) = tree.watch() {
            wake.on_tree(watch.as_fd())?;
        }
        Ok(Self {
            names,
            governor: Governor::new(config.interval, config.cpu_budget_cores),
            started: Instant::now(),
            reconcile_interval: config.reconcile_interval,
            tasks: TaskScan::new(&proc_root),
            tree,
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
            awaits_news: false,
            ghosts: Vec::new(),
            walked: None,
            next_scan: 0,
            again: Vec::new(),
            path: PathBuf::new(),
            window_began: None,
            features: Vec::new(),
            waits: WaitsSlot::default(),
        })
    }

    /// Where consumers read.
    #[must_use]
    pub fn published(&self) -> Published {
        self.publisher.published()
    }

    /// Where the waits are to be put that the next snapshot publishes.
    #[must_use]
    pub fn waits(&self) -> WaitsSlot {
        self.waits.clone()
    }

    /// Time between ticks.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.governor.interval()
    }

    /// Lets [`Sampler::wait`] break when `stop` becomes readable.
    ///
    /// # Errors
    /// What epoll says.
    pub(crate) fn stop_when_readable(&self, stop: &OwnedFd) -> io::Result<()> {
        self.wake.on_stop(stop)
    }

    /// Waits for the deadline and meanwhile takes in what comes and goes; breaks when it is to stop.
    pub(crate) fn wait(&mut self, deadline: Instant) -> ControlFlow<()> {
        loop {
            let now = Instant::now();
            if deadline <= now {
                return ControlFlow::Continue(());
            }
            self.welcome();
            let news = self.awaits_news.then(|| now + NEWS_EVERY);
            let until = [self.read_again(now), news].into_iter().flatten().fold(deadline, Instant::min);
            let left = until.saturating_duration_since(now);
            let mut causes = std::mem::take(&mut self.causes);
            self.wake.wait(left, |cause| causes.push(cause));
            let stop = causes.contains(&Cause::Stop);
            for cause in causes.drain(..) {
                match cause {
                    Cause::Tree => self.attend(),
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

    /// The first process of a cgroup has ended: its counters may be about to go.
    fn read_last(&mut self, id: CgroupId) {
        let Some(cgroup) = self.tree.cgroups.get_mut(id) else { return };
        cgroup.exit = None;
        self.read(id);
        self.again.push((Instant::now() + LAST_MICROSECONDS, id));
    }

    /// Reads once more what is due by `now`; gives when the next is.
    fn read_again(&mut self, now: Instant) -> Option<Instant> {
        for (due, id) in std::mem::take(&mut self.again) {
            if due > now {
                self.again.push((due, id));
            } else if self.tree.cgroups.contains(id) {
                self.read(id);
            }
        }
        self.again.iter().map(|(due, _)| *due).min()
    }

    /// Finds the first process of containers that have none yet: on v1 nothing else tells of a container's end while
    /// its counters can still be read. On v2 `cgroup.events` does.
    fn watch_exits(&mut self, walked: bool) {
        if self.tree.hierarchy.version == Version::V2 {
            return;
        }
        let tick = self.tree.tick;
        for (id, cgroup) in &mut self.tree.cgroups {
            let young = tick < cgroup.born + YOUNG_TICKS;
            if cgroup.exit.is_some()
                || !(young || walked)
                || !cgroup.is_read()
                || !matches!(cgroup.kind, Kind::Container(_))
            {
                continue;
            }
            let pid = cgroupfs::first_pid(&self.tree.hierarchy.cpu.join(&*cgroup.relative));
            cgroup.exit = pid.and_then(|pid| self.wake.on_exit(id, pid).ok());
        }
    }

    /// Takes in what inotify tells: opens what is new at once and reads the last counters of what has just emptied.
    fn attend(&mut self) {
        self.tree.drain_events(&mut self.errors);
        self.settle();
        for id in std::mem::take(&mut self.tree.populated) {
            if self.tree.cgroups.contains(id) {
                self.read(id);
                self.again.push((Instant::now() + LAST_MICROSECONDS, id));
            }
        }
    }

    /// One tick at `now`.
    pub fn tick(&mut self, now: Instant) {
        self.tree.tick += 1;
        self.attend();
        let due = self.walked.is_none_or(|walked| now.duration_since(walked) >= self.reconcile_interval);
        if due || self.tree.must_walk() {
            self.tree.walk(&mut self.errors);
            self.walked = Some(now);
            self.probe.read_topology();
            self.settle();
        }
        self.rename();
        self.watch_exits(self.walked == Some(now));
        self.read_all();
        self.awaits_news |= self.awaits_usage();
        self.read_slow_round();
        self.scan_tasks(now);
        self.close_windows(now);
        self.govern(now);
        if self.walked == Some(now) || self.features.len() <= 1 {
            self.tell_features();
        }
        self.publish();
    }

    /// Lets series follow the cgroups that came and went.
    fn settle(&mut self) {
        for (id, cgroup) in std::mem::take(&mut self.tree.removed) {
            self.forget(id, &cgroup);
        }
        for id in std::mem::take(&mut self.tree.added) {
            self.greet(id);
        }
    }

    fn forget(&mut self, id: CgroupId, cgroup: &Cgroup) {
        match (&cgroup.kind, cgroup.series) {
            (Kind::Pod { .. }, series) => {
                if let Some(series) = series {
                    self.pods.detach(series);
                }
                self.pods.drop_pod(id);
                self.ghosts.retain(|ghost| ghost.pod != id);
                self.containers.drop_pod(id);
            }
            (Kind::Container(key), Some(series)) => {
                self.tasks.forget(id);
                self.containers.detach(series);
                if cgroup.naming != Naming::Named {
                    let pod = cgroup.parent.unwrap_or(id);
                    self.ghosts.push(Ghost { key: key.clone(), found: cgroup.found, series, pod });
                }
            }
            _ => {}
        }
    }

    fn greet(&mut self, id: CgroupId) {
        let cgroup = &mut self.tree.cgroups[id];
        let Kind::Container(key) = &cgroup.kind else { return };
        // Without names a sandbox can still be told by what runs in it.
        let directory = self.tree.hierarchy.cpu.join(&*cgroup.relative);
        let process = cgroupfs::first_pid(&directory).and_then(|pid| cgroupfs::process_name(&self.proc_root, pid));
        if process.as_deref() == Some("pause") {
            cgroup.naming = Naming::Sandbox;
            self.tree.close_files(id);
            return;
        }
        self.probe.kernel.cgroup_driver = key.driver.as_str();
        let (parent, born) = (cgroup.parent, cgroup.born);
        if parent.is_some_and(|parent| self.tree.cgroups[parent].born == born) {
            self.tree.cgroups[id].marks.inherit_history();
        }
        self.name(id);
        self.awaits_news = true;
    }

    /// Reads every cgroup.
    fn read_all(&mut self) {
        self.read_ranks(|_| true);
        let vanished = self.tree.cgroups.iter().filter(|(_, cgroup)| cgroup.vanished).map(|(id, _)| id);
        let vanished: Vec<CgroupId> = vanished.collect();
        for id in vanished {
            if self.tree.cgroups.contains(id) {
                self.tree.remove(id);
            }
        }
        self.settle();
    }

    /// Reads those that `wanted` selects, ancestors before descendants.
    fn read_ranks(&mut self, wanted: impl Fn(&Cgroup) -> bool) {
        for rank in 0..=3 {
            for id in 0..self.tree.cgroups.capacity() {
                let is_next = |cgroup: &Cgroup| cgroup.kind.rank() == rank && wanted(cgroup);
                if self.tree.cgroups.get(id).is_some_and(is_next) {
                    self.read(id);
                }
            }
        }
    }

    /// Reads one cgroup's counters into its series.
    fn read(&mut self, id: CgroupId) {
        let (is_turn, tells_settings) = (self.is_late_turn(id), self.tree.tells_settings());
        let above = self.tree.cgroups[id].parent.map_or(PathQuota::default(), |parent| self.tree.cgroups[parent].path);
        let cgroup = &mut self.tree.cgroups[id];
        if !cgroup.is_read() {
            return;
        }
        let is_young = self.tree.tick < cgroup.born + YOUNG_TICKS;
        let settings = std::mem::take(&mut cgroup.settings_changed) || is_young || is_turn || !tells_settings;
        let place = Place { hierarchy: &self.tree.hierarchy, relative: &cgroup.relative, settings };
        let (buffer, errors) = (&mut self.buffer, &mut self.errors);
        let mut reader = Reader { files: &cgroup.files, place, buffer, errors, vanished: false };
        let hot = Hot::read(&mut reader, cgroup.wanted(above, self.tree.hierarchy.version, self.tree.tick));
        if reader.vanished {
            cgroup.vanished = true;
            return;
        }
        let gains = cgroup.take(&hot, above, self.tree.tick);
        match cgroup.kind {
            Kind::Pod { .. } => self.count_pod(id, &gains),
            Kind::Container(_) => self.count_container(id, &gains),
            _ => {}
        }
    }

    fn count_pod(&mut self, id: CgroupId, gains: &Gains) {
        if !self.tree.cgroups[id].had_quota {
            return;
        }
        if self.tree.cgroups[id].series.is_none() {
            self.name_pod(id);
        }
        let cgroup = &self.tree.cgroups[id];
        if let Some(series) = cgroup.series {
            let limit = cgroup.bandwidth.and_then(|bandwidth| bandwidth.limit_cores());
            self.pods.get_mut(series).gain(gains, limit);
        }
    }

    fn count_container(&mut self, id: CgroupId, gains: &Gains) {
        let cgroup = &self.tree.cgroups[id];
        let Some(series) = cgroup.series else { return };
        let series = self.containers.get_mut(series);
        series.gain(gains, cgroup.had_quota);
        let row = series.row_mut();
        row.limit_cores = cgroup.path.limit_cores;
        row.weight = cgroup.weight.map(|weight| weight.weight() as f64);
        row.shares = cgroup.weight.map(Weight::shares);
        row.period_usec = cgroup.bandwidth.map(|bandwidth| bandwidth.period_usec);
        row.quota_usec = cgroup.bandwidth.and_then(|bandwidth| bandwidth.quota.usec());
        if !row.cgroup.as_ref().is_some_and(|path| Arc::ptr_eq(path, &cgroup.absolute)) {
            row.cgroup = Some(Arc::clone(&cgroup.absolute));
        }
    }

    /// Ends the window when it is a second long, or a tick where ticks are longer.
    fn close_windows(&mut self, now: Instant) {
        let began = *self.window_began.get_or_insert(now);
        // Half a tick of tolerance: a tick that comes a little early must not make a window of two.
        if now.duration_since(began) + self.interval().min(WINDOW) / 2 < WINDOW {
            return;
        }
        self.window_began = Some(now);
        self.containers.iter_mut().for_each(ContainerSeries::close_window);
        self.pods.iter_mut().for_each(PodSeries::close_window);
    }

    /// Lengthens the interval where the agent costs too much, and says so.
    fn govern(&mut self, now: Instant) {
        let Some(change) = self.governor.observe(now.duration_since(self.started), own_cpu_ns()) else { return };
        let (interval, used_cores) = (change.interval, format!("{:.4}", change.used_cores));
        tracing::warn!(?interval, used_cores, "the sample interval follows the agent's own cost");
        self.tell_features();
    }

    fn tell_features(&mut self) {
        self.features = features::states(&self.tree, &self.probe.kernel);
        self.features.push(features::state("sample_interval", self.governor.reason()));
        let unkept = self.tree.cgroups.iter().filter(|(_, cgroup)| cgroup.files.any_unkept()).count();
        let reason = match unkept {
            0 => String::new(),
            _ => {
                "some files are opened at every read: raise --max-open-files, or the limit of open files (LimitNOFILE)"
                    .to_owned()
            }
        };
        self.features.push(features::state("kept_descriptors", reason));
        let scan = self.tasks.cost();
        if scan.time > Duration::ZERO {
            let unseen = "no process of a container can be seen: the agent needs the host's PID namespace";
            let reason = if scan.any_process { "" } else { unseen };
            self.features.push(features::state("run_queue_delay", reason.to_owned()));
        }
    }
}
