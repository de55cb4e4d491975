//! One pass after the other: read what is, plan, and, when told to and nothing is in the way, bring it about.

mod enforce;
mod inputs;
mod overlap;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cgroupfs::{Hierarchy, node};
use kernel_text::CpuSet;
use placement::{Current, Plan, Profiles, Reason, Settings, Uid};
use pods::PodIndex;

use crate::checkpoint::{Checkpoint, Held};
use crate::repairs::Repairs;
use crate::report::{Report, Standing, Trace};
use crate::state_dir::{DrainWish, Lock};
use crate::tree::{PodTree, View};
use crate::{Error, Machine, Result};

use inputs::Inputs;

/// Between walks of the whole tree, which find what inotify has missed.
const WALK_EVERY: Duration = Duration::from_secs(30);
/// Between looks for other agents among the processes.
const OWNERS_EVERY: Duration = Duration::from_secs(30);

/// How to pin.
#[derive(Debug, Clone)]
pub struct PinnerConfig {
    /// Write, and not only plan.
    pub enforce: bool,
    /// The cgroup mounts.
    pub hierarchy: Hierarchy,
    /// The kubelet's top cgroups below the mount; empty: looked for.
    pub kubepods: Vec<String>,
    /// The node's `/proc`.
    pub proc_root: PathBuf,
    /// The node's `/sys`.
    pub sys_root: PathBuf,
    /// Checkpoint, lock and drain wish.
    pub state_dir: PathBuf,
    /// The kubelet's `cpu_manager_state`.
    pub cpu_manager_state: PathBuf,
    /// CPUs that are kept for the host.
    pub reserved: CpuSet,
    /// What the operator set.
    pub settings: Settings,
    /// The operator's word for pods without labels of their own.
    pub profiles: Profiles,
}

/// Plans and enforces. Not a thread of its own: see [`crate::spawn`].
#[derive(Debug)]
pub struct Pinner {
    config: PinnerConfig,
    machine: Machine,
    tree: PodTree,
    checkpoint: Checkpoint,
    /// Nothing is known of what was granted before: running pods are taken at their cpusets' word.
    adopt: bool,
    /// There was a checkpoint, and it cannot be read: an agent has confined pods here.
    torn: bool,
    /// What is granted.
    committed: Current,
    /// What the next plan starts from: what is granted or was about to be; in observation, what would be.
    planned: Current,
    lock: Option<Lock>,
    /// Why it does not write any more, for as long as it lives.
    stepped_back: Option<String>,
    repairs: Repairs,
    /// Effective sets that were brought about and hold since, with the cgroup's inode.
    established: BTreeMap<PathBuf, (u64, CpuSet)>,
    ceiling: CpuSet,
    /// The kubelet's CPU manager policy as it told itself.
    policy: Option<String>,
    owners: Option<(Instant, Vec<&'static str>)>,
    last: Option<(Inputs, Plan)>,
    refused: BTreeMap<Uid, Reason>,
    walked: Option<Instant>,
    passed: Option<Instant>,
}

impl Pinner {
    /// Reads the machine and the checkpoint. Writes nothing.
    ///
    /// # Errors
    /// No topology or no cpuset hierarchy.
    pub fn new(config: PinnerConfig) -> Result<Self> {
        let machine = Machine::read(&config.sys_root)?;
        let tree = PodTree::new(&config.hierarchy, config.kubepods.clone())?;
        let (found, torn) = match Checkpoint::of_this_boot(&config.state_dir, &config.proc_root) {
            Ok(found) => (found, false),
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(error, "running pods keep the CPUs that their cpusets show");
                (None, true)
            }
        };
        let adopt = found.is_none();
        let checkpoint = found.unwrap_or_default();
        let committed = checkpoint.committed.to_current();
        let planned = checkpoint.intent.as_ref().map_or_else(|| committed.clone(), Held::to_current);
        if config.enforce {
            // Who starts an agent wants it to pin, whatever was drained before.
            DrainWish::of(&config.state_dir).take_back();
        }
        Ok(Self {
            machine,
            tree,
            checkpoint,
            adopt,
            torn,
            committed,
            planned,
            lock: None,
            stepped_back: None,
            repairs: Repairs::default(),
            established: BTreeMap::new(),
            ceiling: CpuSet::new(),
            policy: None,
            owners: None,
            last: None,
            refused: BTreeMap::new(),
            walked: None,
            passed: None,
            config,
        })
    }

    /// What the kubelet itself says of its CPU manager; without, its state file is believed.
    pub fn set_policy(&mut self, policy: Option<String>) {
        self.policy = policy;
    }

    /// Becomes readable when cgroups come and go.
    #[must_use]
    pub fn watch_fd(&self) -> Option<BorrowedFd<'_>> {
        self.tree.watch_fd()
    }

    /// One pass. `pods` must be known ([`pods::Pods::is_known`]); `given` are the CPUs that the kubelet gave to
    /// containers, as pod-resources tells. `trace` is told of each step once it is done.
    pub fn pass(&mut self, pods: &PodIndex, given: &CpuSet, trace: &mut dyn FnMut(Trace<'_>)) -> Report {
        let began = Instant::now();
        match self.try_pass(pods, given, began, trace) {
            Ok(report) => report,
            Err(error) => Report::idle(chain(&error)),
        }
    }

    fn try_pass(
        &mut self,
        pods: &PodIndex,
        given: &CpuSet,
        began: Instant,
        trace: &mut dyn FnMut(Trace<'_>),
    ) -> Result<Report> {
        self.refresh(began)?;
        let view = self.tree.view(&self.machine.possible)?;
        let mut report = Report::idle(String::new());
        self.drain_if_wished(&view, &mut report);
        let (kubelet, obstacle) = self.kubelet(pods, given, began);
        let plan = self.plan(&view, pods, &kubelet)?;
        report.pools = Some(plan.pools.clone());
        report.decisions = self.new_refusals(&plan, pods);
        let planned = plan.outcome().held;
        let overlapping = self.overlapping(&view, &plan, &planned);
        report.standing = match self.stepped_back.clone().or(obstacle).or_else(|| self.obstacle(&view)) {
            Some(reason) => Standing::Observing(reason),
            None => self.enforce(&view, &plan, pods, &mut report, trace),
        };
        if report.standing == Standing::Enforcing {
            report.overlaps = self.charge(&overlapping, planned.keys(), pods, Instant::now());
        } else {
            report.overlaps = self.unguarded(&view, &plan, pods);
            self.planned = plan.outcome();
        }
        let granted = |uid: &str| report.standing != Standing::Enforcing || self.committed.held.contains_key(uid);
        report.pins = self.pins(&plan, pods).into_iter().filter(|(uid, _)| granted(uid)).map(|(_, pin)| pin).collect();
        self.passed = Some(Instant::now());
        Ok(report)
    }

    /// Takes in hotplug and cgroups that came and went.
    fn refresh(&mut self, now: Instant) -> Result<()> {
        if node::cpu_list(&self.config.sys_root, "online")? != *self.machine.topology.online() {
            self.machine = Machine::read(&self.config.sys_root)?;
            self.last = None;
            tracing::info!(online = %self.machine.topology.online(), "CPUs came or went");
        }
        self.tree.drain_events(now);
        if self.tree.must_walk() || self.walked.is_none_or(|at| now.duration_since(at) >= WALK_EVERY) {
            self.tree.walk(now);
            self.walked = Some(now);
        }
        Ok(())
    }

    /// Before anything else: whatever keeps it from writing by now, what it has written is its own to give back. Where
    /// it never came to write, who wished so gives back.
    fn drain_if_wished(&mut self, view: &View, report: &mut Report) {
        if self.config.enforce && self.stepped_back.is_none() && DrainWish::of(&self.config.state_dir).is_there() {
            if self.lock.is_some() {
                self.drain(view, report);
            }
            self.step_back("drained by the operator, until the agent is started again".to_owned());
        }
    }

    /// What keeps it from writing, apart from other owners.
    fn obstacle(&mut self, view: &View) -> Option<String> {
        if !self.config.enforce {
            return Some("told to observe".to_owned());
        }
        if let Some((level, cpus)) = &view.confined {
            // A pool is for pods of every level: all would have to share what one of them is left with.
            return Some(format!("{} has only the CPUs {cpus}: somebody else places containers here", level.display()));
        }
        if self.lock.is_none() {
            match Lock::take(&self.config.state_dir) {
                Ok(lock) => self.lock = Some(lock),
                Err(error) => return Some(chain(&error)),
            }
        }
        None
    }

    fn step_back(&mut self, reason: String) -> Standing {
        self.stepped_back = Some(reason.clone());
        self.lock = None;
        Standing::Observing(reason)
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
