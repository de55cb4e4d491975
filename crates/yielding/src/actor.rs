//! One pass after the other: measure, decide, write, restore.

use std::path::PathBuf;
use std::time::Instant;

use cgroupfs::{Hierarchy, node};
use colocation::Settings;
use kernel_text::CpuSet;

use crate::Error;
use crate::best_effort::{BestEffortReport, Yielding};
use crate::budget::{Node, UsageMeter};
use crate::burst::{BurstReport, BurstSettings, Bursts};
use crate::inputs::Inputs;
use crate::resize::Resizes;
use crate::setting::{Feature, Kind};
use crate::writer::{AllWrites, Pass, RequiredValues, Writer};

/// Value of `--best-effort` or `--burst`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Switch {
    /// The feature is off.
    #[default]
    Off,
    /// The feature decides and reports, and writes nothing.
    Observe,
    /// The feature writes its decisions to cgroups.
    Enforce,
}

impl Switch {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }
}

/// Configuration of the actor.
#[derive(Debug, Clone)]
pub struct ActorConfig {
    /// Best-effort pods that yield.
    pub best_effort: Switch,
    /// CPU limits that burst.
    pub burst: Switch,
    /// Cgroup mounts.
    pub hierarchy: Hierarchy,
    /// The node's `/proc`.
    pub proc_root: PathBuf,
    /// The node's `/sys`.
    pub sys_root: PathBuf,
    /// Directory of the checkpoint and the lock.
    pub state_dir: PathBuf,
    /// Settings of the controller of best-effort pods.
    pub settings: Settings,
    /// Settings of burst.
    pub burst_settings: BurstSettings,
    /// CPUs reserved for the host: best-effort pods avoid them, and the utilization rule counts
    /// them as used.
    pub reserved: CpuSet,
    /// Resizes of containers, from the container runtime.
    pub resizes: Resizes,
}

impl ActorConfig {
    pub(crate) const fn switch(&self, feature: Feature) -> Switch {
        match feature {
            Feature::BestEffort => self.best_effort,
            Feature::Burst => self.burst,
        }
    }
}

/// Whether a feature writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// The feature writes its decisions to cgroups.
    Enforcing,
    /// The feature only decides and reports, for this reason.
    Observing(String),
}

/// Result of one pass.
#[derive(Debug)]
pub struct Report {
    /// Best-effort pods; `None` if the feature is off.
    pub best_effort: Option<BestEffortReport>,
    /// Burst; `None` if the feature is off.
    pub burst: Option<BurstReport>,
}

/// Decides and writes. It is not a thread; [`crate::spawn`] runs it on one.
#[derive(Debug)]
pub struct Actor {
    config: ActorConfig,
    yielding: Yielding,
    bursts: Bursts,
    usage: UsageMeter,
    writer: Writer,
}

impl Actor {
    /// Creates an actor; writes nothing.
    #[must_use]
    pub fn new(config: ActorConfig, now: Instant) -> Self {
        Self {
            yielding: Yielding::new(&config, now),
            bursts: Bursts::new(config.burst_settings),
            usage: UsageMeter::default(),
            writer: Writer::default(),
            config,
        }
    }

    /// Runs one pass.
    pub fn pass(&mut self, now: Instant, inputs: &Inputs) -> Report {
        let (config, mut writes) = (&self.config, AllWrites::new());
        let (resizes, lowered) = config.resizes.begin(now);
        let cpus = node::cpu_list(&config.sys_root, "online").unwrap_or_default();
        let best_effort = inputs.best_effort();
        let usage = self.usage.read(
            &config.hierarchy,
            &inputs.snapshot,
            Node { cpus: cpus.len() as f64, reserved: config.reserved.len() as f64 },
            |row| best_effort.contains(&row.identity.namespace, &row.identity.pod),
        );
        let mut wanted = RequiredValues::new();
        let mut yielded = (config.best_effort != Switch::Off).then(|| {
            let mode = self.writer.mode(config, Feature::BestEffort, now, inputs.draining);
            let (report, more) =
                self.yielding.pass(config, now, inputs, &best_effort, &cpus, &usage, mode);
            wanted.extend(more);
            report
        });
        let mut burst = (config.burst != Switch::Off).then(|| {
            let mode = self.writer.mode(config, Feature::Burst, now, inputs.draining);
            let (report, more) = self.bursts.pass(config, inputs, mode);
            wanted.extend(more);
            report
        });
        let pass = Pass { config, pods: &inputs.pods, resizes, now };
        self.writer.reconcile(pass, &wanted, &mut writes);
        if let Some(report) = &mut yielded {
            report.writes = writes.remove(&Feature::BestEffort).unwrap_or_default();
        }
        if let Some(report) = &mut burst {
            report.writes = writes.remove(&Feature::Burst).unwrap_or_default();
            report.writes.add(Kind::Burst, lowered);
        }
        let is_enforcing = yielded.as_ref().is_some_and(|report| report.mode == Mode::Enforcing)
            || burst.as_ref().is_some_and(|report| report.mode == Mode::Enforcing);
        if !is_enforcing {
            self.writer.release_if_clean();
        }
        Report { best_effort: yielded, burst }
    }

    /// Restores everything that was written, and releases the lock. Returns the number of restored
    /// settings and the errors.
    pub fn give_back(&mut self) -> (usize, Vec<Error>) {
        self.writer.give_back(&self.config)
    }
}

/// All possible CPUs as a list, which has the same effect as an empty cpuset.
pub(crate) fn all_cpus(config: &ActorConfig) -> String {
    node::cpu_list(&config.sys_root, "possible").unwrap_or_default().to_string()
}
