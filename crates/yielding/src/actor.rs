//! One pass after the other: measure, decide, write, restore.

use std::time::Instant;

use cgroupfs::node;
use state_dir::Setting;

use crate::Error;
use crate::best_effort::{BestEffortReport, Yielding};
use crate::budget::{Node, UsageMeter};
use crate::burst::{BurstReport, Bursts};
use crate::config::{ActorConfig, Feature};
use crate::inputs::Inputs;
use crate::mode::Mode;
use crate::writer::{AllWrites, Pass, RequiredValues, Writer};
use state_dir::ActingMode;

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
        let mut yielded = (config.best_effort != ActingMode::Off).then(|| {
            let mode = self.writer.mode(config, Feature::BestEffort, now, inputs.draining);
            let (report, more) =
                self.yielding.pass(config, now, inputs, &best_effort, &cpus, &usage, mode);
            wanted.extend(more);
            report
        });
        let mut burst = (config.burst != ActingMode::Off).then(|| {
            let mode = self.writer.mode(config, Feature::Burst, now, inputs.draining);
            let (report, more) = self.bursts.pass(config, inputs, mode);
            wanted.extend(more);
            report
        });
        let pass = Pass { config, pods: &inputs.pods, resizes, now };
        self.writer.reconcile(pass, wanted, &mut writes);
        if let Some(report) = &mut yielded {
            report.writes = writes.remove(&Feature::BestEffort).unwrap_or_default();
        }
        if let Some(report) = &mut burst {
            report.writes = writes.remove(&Feature::Burst).unwrap_or_default();
            report.writes.add(Setting::Burst, lowered);
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
