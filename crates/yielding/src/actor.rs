//! One pass after the other: measure, decide, write, restore.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cgroupfs::{Hierarchy, node};
use colocation::{Controller, Harm, HarmMeter, Settings, Signal, Target, Transition, keep_cpus};
use kernel_text::{CgroupVersion, CpuSet};
use kubepods::PodIndex;
use placement::Topology;
use snapshot::NodeSnapshot;

use crate::budget::BudgetMeter;
use crate::checkpoint::{Checkpoint, Key, Lock, Written, directory};
use crate::pods::{BestEffort, may_have_quota};
use crate::setting::{self, Kind};
use crate::want::{Want, v1_period};
use crate::{Error, Result};

/// Configuration of the actor.
#[derive(Debug, Clone)]
pub struct ActorConfig {
    /// Whether to write, not only to decide.
    pub enforce: bool,
    /// Cgroup mounts.
    pub hierarchy: Hierarchy,
    /// The node's `/proc`.
    pub proc_root: PathBuf,
    /// The node's `/sys`.
    pub sys_root: PathBuf,
    /// Directory of the checkpoint and the lock.
    pub state_dir: PathBuf,
    /// Settings of the controller.
    pub settings: Settings,
    /// CPUs reserved for the host, for the utilization rule.
    pub reserved_cores: f64,
}

/// Whether steps are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Steps are written.
    Enforcing,
    /// Steps are only decided, for this reason.
    Observing(String),
}

/// Result of one pass.
#[derive(Debug)]
pub struct Report {
    /// Whether steps are written.
    pub mode: Mode,
    /// The target in force.
    pub target: Target,
    /// The change of the target, if any.
    pub transition: Option<Transition>,
    /// Whether waits are traced; if not, the target follows the utilization rule.
    pub traced: bool,
    /// Worst harm in this pass; `None` without a new measurement.
    pub harm: Option<Harm>,
    /// Number of best-effort pods.
    pub pods: usize,
    /// Whether harm lasts although every restriction is at its floor.
    pub exhausted: bool,
    /// Number of writes by setting.
    pub written: BTreeMap<Kind, u64>,
    /// Number of settings restored.
    pub restored: u64,
    /// Number of settings that another writer had changed.
    pub repaired: u64,
    /// Failed writes.
    pub errors: Vec<String>,
}

/// Time for which a foreign write counts, and how many are too many.
const CONFLICT_WINDOW: Duration = Duration::from_secs(60);
const MOST_CONFLICTS: usize = 5;
/// Time for which the actor only observes after too many conflicts.
const CONFLICT_PAUSE: Duration = Duration::from_secs(600);

/// Decides and writes. It is not a thread; [`crate::spawn`] runs it on one.
#[derive(Debug)]
pub struct Actor {
    config: ActorConfig,
    controller: Controller,
    harm: HarmMeter,
    budget: BudgetMeter,
    checkpoint: Checkpoint,
    lock: Option<Lock>,
    /// Time zero of the controller.
    start: Instant,
    topology: Option<Topology>,
    /// Passes with repairs within [`CONFLICT_WINDOW`].
    conflicts: VecDeque<Instant>,
    paused_until: Option<Instant>,
}

impl Actor {
    /// Creates an actor; writes nothing.
    #[must_use]
    pub fn new(config: ActorConfig, now: Instant) -> Self {
        let can_idle = config.settings.can_idle;
        let can_move = config.settings.can_move && config.hierarchy.cpuset.is_some();
        let settings = Settings { can_idle, can_move, ..config.settings };
        Self {
            controller: Controller::new(settings),
            harm: HarmMeter::default(),
            budget: BudgetMeter::default(),
            checkpoint: Checkpoint::default(),
            lock: None,
            start: now,
            topology: None,
            conflicts: VecDeque::new(),
            paused_until: None,
            config,
        }
    }

    /// Runs one pass. `exclusive` are the CPUs that containers have exclusively; `draining` is
    /// whether a drain is requested.
    pub fn pass(
        &mut self,
        now: Instant,
        snapshot: &NodeSnapshot,
        pods: &PodIndex,
        exclusive: &CpuSet,
        draining: bool,
    ) -> Report {
        let best_effort = BestEffort::new(snapshot, pods);
        let cpus = node::cpu_list(&self.config.sys_root, "online").unwrap_or_default();
        let pool = cpus.difference(exclusive);
        let (signal, harm) = self.signal(snapshot, &best_effort, cpus.len());
        let since = now.saturating_duration_since(self.start);
        let is_harmed = matches!(&signal, Signal::Waits(harm) if harm.lost > 0.0);
        let transition = self.controller.tick(since, signal, pool.len());
        let mut report = Report {
            mode: self.mode(now, draining),
            target: self.controller.target(),
            transition,
            traced: is_traced(snapshot),
            harm,
            pods: best_effort.cgroups.len(),
            exhausted: is_harmed && self.controller.is_exhausted(pool.len()),
            written: BTreeMap::new(),
            restored: 0,
            repaired: 0,
            errors: Vec::new(),
        };
        let wanted = match report.mode {
            Mode::Enforcing => self.wanted(&best_effort, &cpus, &pool, exclusive),
            Mode::Observing(_) => BTreeMap::new(),
        };
        if self.lock.is_some() {
            self.reconcile(&wanted, now, &mut report);
        }
        if matches!(report.mode, Mode::Observing(_)) && self.checkpoint.written.is_empty() {
            self.lock = None;
        }
        report
    }

    /// Restores everything that was written, and releases the lock. Returns the number of restored settings and the
    /// errors.
    pub fn give_back(&mut self) -> (usize, Vec<Error>) {
        let all = all_cpus(&self.config);
        let (restored, mut errors) =
            self.checkpoint.restore(&self.config.hierarchy, &all, |_| true);
        if self.lock.is_some()
            && let Err(error) =
                self.checkpoint.write(&self.config.state_dir, &self.config.proc_root)
        {
            errors.push(error);
        }
        if self.checkpoint.written.is_empty() {
            self.lock = None;
        }
        (restored, errors)
    }

    /// The signal of this tick, and the harm if it was measured. Without a trace the signal is the
    /// utilization rule.
    fn signal(
        &mut self,
        snapshot: &NodeSnapshot,
        best_effort: &BestEffort,
        capacity: usize,
    ) -> (Signal, Option<Harm>) {
        let is_best_effort = |namespace: &str, pod: &str| best_effort.contains(namespace, pod);
        let budget = self.budget.read(
            &self.config.hierarchy,
            snapshot,
            capacity,
            self.config.reserved_cores,
            is_best_effort,
        );
        let is_traced = is_traced(snapshot);
        match self.harm.read(snapshot, is_best_effort) {
            Some(harm) => (Signal::Waits(harm.clone()), Some(harm)),
            None if is_traced => (Signal::Missing, None),
            None => (budget.map_or(Signal::Missing, Signal::Utilization), None),
        }
    }

    /// Takes the lock if steps are to be written, and adopts what an earlier process left.
    fn mode(&mut self, now: Instant, draining: bool) -> Mode {
        let observing = |reason: &str| Mode::Observing(reason.to_owned());
        if !self.config.enforce {
            return observing("--best-effort=observe");
        }
        if draining {
            return observing("a drain is requested");
        }
        if self.paused_until.is_some_and(|until| now < until) {
            return observing("another agent writes the same cgroups");
        }
        self.paused_until = None;
        if self.lock.is_none() {
            match self.take_lock() {
                Ok(lock) => self.lock = Some(lock),
                Err(error) => return Mode::Observing(error.to_string()),
            }
        }
        Mode::Enforcing
    }

    fn take_lock(&mut self) -> Result<Lock> {
        let lock = Lock::take(&self.config.state_dir)?;
        self.checkpoint = Checkpoint::read(&self.config.state_dir, &self.config.proc_root)?;
        Ok(lock)
    }

    /// The values that the target requires, by cgroup and setting.
    fn wanted(
        &mut self,
        best_effort: &BestEffort,
        online: &CpuSet,
        pool: &CpuSet,
        exclusive: &CpuSet,
    ) -> BTreeMap<Key, Want> {
        let Target { idle, cpus, quota_cores } = self.controller.target();
        let kept = cpus.and_then(|cpus| {
            let topology = self.topology(online)?;
            Some(keep_cpus(topology, pool, exclusive, cpus))
        });
        let mut wanted = BTreeMap::new();
        for (pod, containers) in &best_effort.cgroups {
            if idle {
                wanted.insert((pod.clone(), Kind::Idle), Want::Idle);
            }
            if let Some(cores) = quota_cores
                && may_have_quota(pod, self.config.hierarchy.version)
            {
                let share = cores / best_effort.cgroups.len() as f64;
                wanted.insert((pod.clone(), Kind::Quota), Want::Quota(share));
            }
            if let Some(kept) = &kept {
                let keys = containers.iter().map(|path| (path.clone(), Kind::Cpus));
                wanted.extend(keys.map(|key| (key, Want::Cpus(kept.clone(), online.clone()))));
            }
        }
        wanted
    }

    fn topology(&mut self, online: &CpuSet) -> Option<&Topology> {
        if self.topology.as_ref().is_none_or(|known| known.online() != online) {
            let cpu = |place: &kernel_text::CpuPlace| placement::Cpu {
                id: place.cpu,
                core: place.core.unwrap_or(place.cpu),
                l3: place.llc.or(place.cluster),
                die: place.die,
                node: place.numa_node.unwrap_or_default(),
                socket: place.socket.unwrap_or_default(),
                kind: None,
            };
            let places = node::cpu_places(&self.config.sys_root, online);
            self.topology = Topology::ranked(places.iter().map(cpu).collect()).ok();
        }
        self.topology.as_ref()
    }

    /// Restores what is no longer wanted, then writes what is. The checkpoint holds every original
    /// value before its first write.
    fn reconcile(&mut self, wanted: &BTreeMap<Key, Want>, now: Instant, report: &mut Report) {
        let before = self.checkpoint.clone();
        let (hierarchy, all) = (self.config.hierarchy.clone(), all_cpus(&self.config));
        let is_due = |key: &Key| !wanted.contains_key(key);
        let (restored, errors) = self.checkpoint.restore(&hierarchy, &all, is_due);
        report.restored = restored as u64;
        report.errors.extend(errors.iter().map(chain));
        let mut writes = Vec::new();
        for (key, want) in wanted {
            match self.plan(key, want, report) {
                Ok(Some(value)) => writes.push((key, value)),
                Ok(None) => {}
                Err(error) if error.is_vanished() => {}
                Err(error) => report.errors.push(chain(&error)),
            }
        }
        if report.repaired > 0 {
            self.note_conflict(now);
        }
        if self.checkpoint != before
            && let Err(error) =
                self.checkpoint.write(&self.config.state_dir, &self.config.proc_root)
        {
            // Without the original values on disk nothing may be written.
            report.errors.push(chain(&error));
            return;
        }
        for (key, value) in writes {
            let Some(directory) = directory(&hierarchy, key) else { continue };
            match setting::write(&directory, key.1, hierarchy.version, &value) {
                Ok(()) => {
                    *report.written.entry(key.1).or_default() += 1;
                    // On disk it stays until the next change: a restart cannot know.
                    self.checkpoint
                        .written
                        .entry(key.clone())
                        .and_modify(|was| was.replaces = None);
                }
                Err(error) if error.is_vanished() => {}
                Err(error) => report.errors.push(chain(&error)),
            }
        }
    }

    /// The value to write, if any; enters it with the original value into the checkpoint.
    fn plan(&mut self, key: &Key, want: &Want, report: &mut Report) -> Result<Option<String>> {
        let version = self.config.hierarchy.version;
        let Some(directory) = directory(&self.config.hierarchy, key) else { return Ok(None) };
        let Some(found) = setting::read(&directory, key.1, version)? else { return Ok(None) };
        let inode = cgroupfs::inode(&directory)?;
        let known = self.checkpoint.written.get(key).filter(|was| was.inode == inode);
        let original = match known {
            Some(was) if was.is_ours(&found.value) => was.original.clone(),
            Some(was) => {
                report.repaired += 1;
                setting::rebase(&was.original, found.clone(), version)
            }
            None => found.clone(),
        };
        let period = match version {
            CgroupVersion::V1 => v1_period(&directory),
            CgroupVersion::V2 => None,
        };
        let value = match want.value(&original, version, period) {
            Some(value) => value,
            // Nothing to restrict: the original is at least as strict.
            None if known.is_none() => return Ok(None),
            None if original.value.is_empty() => all_cpus(&self.config),
            None => original.value.clone(),
        };
        let is_there = found.value == value;
        let replaces = (!is_there).then_some(found.value);
        let written = Written { inode, original, wrote: value.clone(), replaces };
        self.checkpoint.written.insert(key.clone(), written);
        Ok((!is_there).then_some(value))
    }

    /// Pauses after too many passes in which another writer had changed a setting.
    fn note_conflict(&mut self, now: Instant) {
        self.conflicts.push_back(now);
        while self
            .conflicts
            .front()
            .is_some_and(|&at| now.saturating_duration_since(at) > CONFLICT_WINDOW)
        {
            self.conflicts.pop_front();
        }
        if self.conflicts.len() > MOST_CONFLICTS {
            self.conflicts.clear();
            self.paused_until = Some(now + CONFLICT_PAUSE);
        }
    }
}

fn is_traced(snapshot: &NodeSnapshot) -> bool {
    let trace = snapshot.waits.trace.as_ref();
    trace.is_some_and(|trace| trace.mode != snapshot::TraceMode::Detached)
}

/// All possible CPUs as a list, which has the same effect as an empty cpuset.
pub(crate) fn all_cpus(config: &ActorConfig) -> String {
    node::cpu_list(&config.sys_root, "possible").unwrap_or_default().to_string()
}

/// An error with its causes.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
