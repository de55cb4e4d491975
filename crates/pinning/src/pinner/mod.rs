//! Runs one pass after the other: read the current state, decide ([`decide::pass`], a pure
//! function), apply.

mod decide;
mod enforce;
mod give_back;
mod inputs;
mod mode;
mod overlap;
mod publish;
mod record;
mod strays;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroup_tree::KubepodsTree;
use cgroupfs::node;
use kernel_text::CpuSet;
use kubepods::{ExclusiveCpus, PodIndex, Reported};
use placement::{Holding, Kubelet, PlacementSettings, Pod, Profiles, Reason, Uid};
use state_dir::{DrainRequest, Lock, Writer};
use watchdog::errors::chain;

use crate::admission::AdmissionState;
use crate::node_config::NodeConfig;
use crate::planned::{Planned, Rules};
use crate::report::{PassReport, PinningStatus, Trace};
use crate::tree::{PodTree, View};
use crate::{Admission, Error, Machine, Result};

use decide::{Inputs, Work, pass, plan_ahead};
use mode::{PinnerMode, Why};
use record::{Found, Record};
use strays::StraySearch;

/// [`PinnerConfig::settled_after`] of the agent.
pub const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// Configuration of pinning.
#[derive(Debug, Clone)]
pub struct PinnerConfig {
    /// Whether to write cpusets, not only plan.
    pub enforce: bool,
    /// Cgroups and files of the node.
    pub node: NodeConfig,
    /// Namespaces whose pods may be agents that place containers.
    pub owner_namespaces: Vec<String>,
    /// Maximum age of the last walk of the cgroup tree by any of its users; a walk finds cgroups
    /// missed by inotify.
    pub reconcile_interval: Duration,
    /// Minimum age of a cgroup before processes are moved back into it after a loss of CPUs. In a
    /// younger one the runtime may still be moving processes.
    pub settled_after: Duration,
    /// Maximum number of cpuset files kept open; beyond that, files are opened for each read.
    pub descriptors: usize,
    /// CPUs reserved for the host.
    pub reserved: CpuSet,
    /// Settings of the operator.
    pub settings: PlacementSettings,
    /// Profiles of the operator for pods without labels of their own.
    pub profiles: Profiles,
    /// Decisions about new containers, if the container runtime asks for them.
    pub admission: Option<Admission>,
}

/// Plans and enforces. It is not a thread; [`crate::spawn`] runs it on one.
#[derive(Debug)]
pub struct Pinner {
    config: PinnerConfig,
    rules: Arc<Rules>,
    machine: Arc<Machine>,
    tree: PodTree,
    record: Record,
    mode: PinnerMode,
    kubelet: KubeletReport,
    other_agents: OtherAgents,
    last: LastPass,
    strays: StraySearch,
}

/// Values that the kubelet reports about its own CPU manager.
#[derive(Debug, Default)]
struct KubeletReport {
    /// CPU manager policy. Unless it was read, the kubelet's state file is used.
    policy: Arc<Reported<String>>,
    /// Resources that the kubelet gave to containers, according to pod-resources.
    resources: Arc<ExclusiveCpus>,
}

/// Other agents that place containers.
#[derive(Debug, Default)]
enum OtherAgents {
    /// No search has run yet.
    #[default]
    NotSearched,
    /// Names found by the search at this time.
    Found { at: Instant, names: Vec<String> },
}

/// State that a pass leaves to the next one.
#[derive(Debug, Default)]
struct LastPass {
    /// Plan that the next pass uses if its inputs are the same; `None` if the plan must be made
    /// again.
    planned: Option<Planned>,
    /// Rejected requests, which are logged once.
    rejections: BTreeMap<Uid, Reason>,
    /// Status and plan in the file for other processes.
    status: Option<(PinningStatus, Vec<String>)>,
    /// Time at which the last complete pass ended.
    ended: Option<Instant>,
}

impl Pinner {
    /// Reads the machine and the checkpoint, and withdraws a drain request. Writes nothing else.
    ///
    /// # Errors
    /// No topology or no cpuset hierarchy.
    pub fn new(config: PinnerConfig) -> Result<Self> {
        Self::start(config, None)
    }

    /// Like [`Pinner::new`], on a shared tree. It is used if it is that of the cpuset controller's
    /// hierarchy, and must then include the roots of other kubelets.
    ///
    /// # Errors
    /// As [`Pinner::new`].
    pub fn on(tree: &Arc<KubepodsTree>, config: PinnerConfig) -> Result<Self> {
        Self::start(config, Some(tree))
    }

    fn start(config: PinnerConfig, shared: Option<&Arc<KubepodsTree>>) -> Result<Self> {
        let pinner = Self::resume(config, shared)?;
        if pinner.config.enforce {
            // Starting an agent means that it should pin, whatever was drained before.
            DrainRequest::of(&pinner.config.node.state_dir).withdraw();
        }
        Ok(pinner)
    }

    /// Creates a pinner after a panic of the previous one; unlike [`Pinner::new`], it keeps a drain
    /// request.
    pub(crate) fn resume(config: PinnerConfig, shared: Option<&Arc<KubepodsTree>>) -> Result<Self> {
        let machine = Arc::new(Machine::read(&config.node.sys_root)?);
        let tree = PodTree::new(
            &config.node.hierarchy,
            config.node.kubepods.clone(),
            config.descriptors,
            shared,
        )?;
        let record = Record::read(&config, tree.mount());
        let why = if config.enforce { Why::NotStarted } else { Why::Configured };
        Ok(Self {
            machine,
            tree,
            record,
            mode: PinnerMode::Observing(why),
            kubelet: KubeletReport::default(),
            other_agents: OtherAgents::default(),
            last: LastPass::default(),
            strays: StraySearch::default(),
            rules: Arc::new(Rules::of(&config)),
            config,
        })
    }

    /// Replaces the operator's profiles from the next pass on.
    pub fn set_profiles(&mut self, profiles: Profiles) {
        self.config.profiles = profiles;
        self.rules = Arc::new(Rules::of(&self.config));
        // The profiles are not among the inputs compared for reuse of the plan.
        self.last.planned = None;
    }

    pub(crate) fn config(&self) -> &PinnerConfig {
        &self.config
    }

    /// Sets the resources that the kubelet gave to containers, according to pod-resources.
    pub fn set_resources(&mut self, resources: Arc<ExclusiveCpus>) {
        self.kubelet.resources = resources;
    }

    /// Sets the CPU manager policy reported by the kubelet; unless it was read, the kubelet's state
    /// file is used.
    pub fn set_policy(&mut self, policy: Arc<Reported<String>>) {
        self.kubelet.policy = policy;
    }

    /// The tree, shared with its other users.
    pub(crate) fn tree(&self) -> &Arc<KubepodsTree> {
        self.tree.shared()
    }

    /// Descriptor that becomes readable when the tree may have changes.
    #[must_use]
    pub fn watch_fd(&self) -> BorrowedFd<'_> {
        self.tree.watch_fd()
    }

    /// Whether a cgroup came or went, a cpuset was written or a process was moved since the last
    /// pass or call.
    pub(crate) fn has_changes(&mut self, now: Instant) -> bool {
        self.tree.reconcile(now, Duration::MAX).has_changed
    }

    /// Runs one pass. `pods` must be known, not just empty; `given` are the CPUs that the kubelet
    /// gave to containers, according to pod-resources. `trace` is called after each step.
    pub fn pass(
        &mut self,
        pods: &PodIndex,
        given: &CpuSet,
        trace: &mut dyn FnMut(Trace<'_>),
    ) -> PassReport {
        let began = Instant::now();
        let mut report = match self.try_pass(pods, given, began, trace) {
            Ok(report) => report,
            Err(error) => self.failed(&error),
        };
        report.stepped_back = self.mode.stepped_back(&report.status, began);
        self.publish_status(&report.status);
        self.write_status(&report);
        report
    }

    /// Report of a pass that could not read the node. If a drain is requested, releases the lock
    /// anyway, so that `cpuwarden drain` can drain by the checkpoint.
    fn failed(&mut self, error: &Error) -> PassReport {
        if self.mode.has_lock() && DrainRequest::of(&self.config.node.state_dir).exists() {
            if let Err(error) = self.record.write(&self.config.node, self.tree.mount()) {
                tracing::warn!(
                    error = chain(&error),
                    "failed to write the checkpoint; keeping the last one"
                );
            }
            self.record.clear();
            self.mode = PinnerMode::Drained;
        }
        PassReport::idle(chain(error))
    }

    fn try_pass(
        &mut self,
        pods: &PodIndex,
        given: &CpuSet,
        began: Instant,
        trace: &mut dyn FnMut(Trace<'_>),
    ) -> Result<PassReport> {
        self.renew_state();
        self.refresh(began)?;
        self.tree.find_home(|uid| pods.pod(uid).is_some());
        let view = self.tree.view(&self.machine.possible)?;
        let drained = self.drain_if_requested(&view, pods);
        let (kubelet, obstacle) = self.kubelet(pods, given, began);
        let obstacle = obstacle.map(Why::Obstacle).or_else(|| self.obstacle(&view));
        self.mode
            .update(obstacle, began, || Lock::take(&self.config.node.state_dir, Writer::Pinning));
        let (work, mut report) = self.decide(&view, pods, kubelet, began);
        report.take_in(drained);
        if let Some(work) = work {
            self.apply(&view, work, pods, &mut report, trace);
        }
        self.last.ended = Some(Instant::now());
        Ok(report)
    }

    /// Plans, and publishes the plan. No container gets its CPUs in between, so that the plan knows
    /// all of them.
    ///
    /// Starts of containers wait for the lock. So the plan is made before it, and again only if a
    /// start has changed its inputs meanwhile.
    fn decide(
        &mut self,
        view: &View,
        pods: &PodIndex,
        kubelet: Kubelet,
        now: Instant,
    ) -> (Option<Work>, PassReport) {
        let admission = self.config.admission.clone();
        if let Some(admission) = &admission {
            let (claims, reserved) = self.requests(view, pods, Some(&mut *admission.lock()), now);
            let (mode, inputs) = self.mode_and_inputs(view, claims, reserved, kubelet.clone(), now);
            self.last.planned = plan_ahead(mode, &inputs);
        }
        let mut admitted = admission.as_ref().map(Admission::lock);
        let (claims, reserved) = self.requests(view, pods, admitted.as_deref_mut(), now);
        let (mode, inputs) = self.mode_and_inputs(view, claims, reserved, kubelet, now);
        let (work, report) = pass(mode, &inputs);
        if let (Some(state), Some(work)) = (&mut admitted, &work)
            && report.status == PinningStatus::Enforcing
        {
            self.publish(state, view, work, now);
        }
        (work, report)
    }

    /// Pods of the pass, and the CPUs in which containers have started since the last plan.
    fn requests(
        &mut self,
        view: &View,
        pods: &PodIndex,
        mut admitted: Option<&mut AdmissionState>,
        now: Instant,
    ) -> (Vec<Pod>, BTreeMap<Uid, Holding>) {
        let reservations = admitted.as_mut().map(|state| state.reservations(now).clone());
        let reservations = reservations.unwrap_or_default();
        let mut claims = self.claims(view, pods, &reservations);
        if let Some(state) = admitted {
            state.apply_resizes(&mut claims, now);
        }
        (claims, reservations.into_iter().map(|(uid, one)| (uid, one.holding)).collect())
    }

    /// The mode and the inputs of the pass, which borrow different fields.
    fn mode_and_inputs<'a>(
        &'a mut self,
        view: &'a View,
        claims: Vec<Pod>,
        reserved: BTreeMap<Uid, Holding>,
        kubelet: Kubelet,
        now: Instant,
    ) -> (&'a mut PinnerMode, Inputs<'a>) {
        let inputs = Inputs {
            now,
            rules: &self.rules,
            machine: &self.machine,
            view,
            claims,
            reserved,
            record: &self.record,
            kubelet,
            last: self.last.planned.as_ref(),
        };
        (&mut self.mode, inputs)
    }

    /// Carries out the work of a pass, and completes the report with the results.
    fn apply(
        &mut self,
        view: &View,
        work: Work,
        pods: &PodIndex,
        report: &mut PassReport,
        trace: &mut dyn FnMut(Trace<'_>),
    ) {
        if let Some(written) = &work.adopted {
            self.record.checkpoint.written.clone_from(written);
        }
        self.record.found = Found::Known;
        let plan = &*work.planned.plan;
        report.decisions.extend(self.new_rejections(plan, pods));
        let planned = plan.outcome();
        let overlapping = self.overlapping(view, plan, &planned.held);
        self.carry_out(view, &work, pods, report, trace);
        self.publish_results(view, plan);
        self.bring_back(view, report);
        let is_enforcing = report.status == PinningStatus::Enforcing;
        report.overlaps = match is_enforcing {
            true => self.charge(&overlapping, planned.held.keys(), pods, Instant::now()),
            false => self.unguarded(view, plan, pods),
        };
        report.overlaps.extend(self.overlaps_of_claims(view, plan, pods));
        let granted = |uid: &str| !is_enforcing || self.record.committed.held.contains_key(uid);
        report.pins = self
            .pins(plan, pods)
            .into_iter()
            .filter(|(uid, _)| granted(uid))
            .map(|(_, pin)| pin)
            .collect();
        if !is_enforcing {
            self.record.planned = planned;
        }
        self.last.planned = Some(work.planned);
    }

    /// Recreates a removed state directory, so that `cpuwarden drain` finds the lock taken and the
    /// checkpoint.
    fn renew_state(&mut self) {
        let state_dir = &self.config.node.state_dir;
        let Some(lock) = self.mode.lock().filter(|lock| !lock.is_in_place()) else {
            return;
        };
        // If it cannot be created, the old lock and the checkpoint in memory stay valid.
        let Ok(renewed) = Lock::take(state_dir, Writer::Pinning) else { return };
        *lock = renewed;
        tracing::warn!(state_dir = %state_dir.display(), "the state directory was removed; creating it again");
        // After a failure the next pass writes it.
        let _ = self.record.write(&self.config.node, self.tree.mount());
    }

    /// Applies CPU hotplug and cgroup changes.
    fn refresh(&mut self, now: Instant) -> Result<()> {
        if node::cpu_list(&self.config.node.sys_root, "online")? != *self.machine.topology.online()
        {
            self.machine = Arc::new(Machine::read(&self.config.node.sys_root)?);
            self.last.planned = None;
            self.strays.after_loss();
            tracing::info!(online = %self.machine.topology.online(), "online CPUs changed");
        }
        let walked = self.tree.reconcile(now, self.config.reconcile_interval).walked;
        self.strays.refresh(now, walked);
        Ok(())
    }

    /// Drains if requested, before anything else and whatever the obstacles: an agent that has
    /// written must restore it. If this agent never wrote, `cpuwarden drain` itself restores.
    fn drain_if_requested(&mut self, view: &View, pods: &PodIndex) -> PassReport {
        let mut report = PassReport::idle(String::new());
        let is_drained = matches!(self.mode, PinnerMode::Drained);
        if self.config.enforce
            && !is_drained
            && DrainRequest::of(&self.config.node.state_dir).exists()
        {
            self.close_admission(view);
            if self.mode.has_lock() {
                self.drain(view, pods, &mut report);
            }
            self.mode = PinnerMode::Drained;
        }
        report
    }

    /// The obstacle to writing, apart from other owners.
    fn obstacle(&self, view: &View) -> Option<Why> {
        if !self.config.enforce {
            return Some(Why::Configured);
        }
        if let Some(other) = &view.other_root {
            let other = other.display();
            return Some(Why::Obstacle(format!(
                "{other} also contains running pods: set --kubepods to the kubepods root of this kubelet"
            )));
        }
        // The pool is for pods of every QoS level: all of them would have to share the CPUs that
        // one level is left with.
        let (level, cpus) = view.confined.as_ref()?;
        let level = level.display();
        Some(Why::Obstacle(format!(
            "{level} is restricted to CPUs {cpus}: another program places containers on this node"
        )))
    }
}
