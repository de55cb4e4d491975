//! Best-effort pods that yield CPU, as a part of the agent.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use cgroupfs::Hierarchy;
use colocation::Settings;
use kernel_text::CpuSet;
use kubelet::{Pods, chain};
use metrics::AgentMetrics;
use pinning::DrainRequest;
use snapshot::{NodeSnapshot, Published};
use watchdog::{Part, Watchdog};
use yielding::{ActorConfig, Error, Inputs, Mode, Report, Round, Running};

use crate::config::{BestEffortMode, Config, PinningMode};
use crate::exit::Failure;

/// Restores what a crashed agent left, and starts the actor unless it is off.
///
/// # Errors
/// A thread that cannot be created.
pub(crate) fn start(
    config: &Config,
    hierarchy: &Hierarchy,
    pods: &Pods,
    published: &Published<NodeSnapshot>,
    metrics: &Arc<AgentMetrics>,
    watchdog: &Watchdog,
) -> Result<Option<Running>, Failure> {
    let actor = actor_config(config, hierarchy);
    restore_leftovers(&actor);
    if config.options.best_effort == BestEffortMode::Off {
        return Ok(None);
    }
    let request = DrainRequest::of(&actor.state_dir);
    if actor.enforce {
        // Starting an agent means that it should act, whatever was drained before.
        request.withdraw();
    }
    let (pods, published) = (pods.clone(), published.clone());
    let inputs = move || {
        pods.is_known().then(|| Inputs {
            snapshot: published.latest(),
            pods: pods.index(),
            exclusive: pods
                .exclusive_cpus()
                .all()
                .into_iter()
                .filter(|&cpu| cpu < kernel_text::MAX_CPUS)
                .collect::<CpuSet>(),
            draining: request.exists(),
        })
    };
    let (metrics, interval) = (Arc::clone(metrics), config.options.sample_interval.0);
    let beat = watchdog.watch(Part::Yielding, interval);
    let mut log = Log::default();
    let running = yielding::spawn(actor, inputs, interval, move |round| {
        match round {
            Round::Waited => {}
            Round::Passed(report) => {
                log.report(&report);
                export(&metrics, &report, interval);
            }
            Round::Panicked => {
                metrics.subsystem_restarted(Part::Yielding.as_str());
                return;
            }
        }
        beat.beat(interval);
    });
    Ok(Some(running.context("cannot start the thread that makes best-effort pods yield")?))
}

/// Restores what the agent or a crashed one left, for `cpuwarden drain`. A running agent sees the
/// request and releases the lock. Returns the number of restored settings.
///
/// # Errors
/// The first setting that could not be restored, or an agent that does not release the lock.
pub(crate) fn drain(
    config: &Config,
    hierarchy: &Hierarchy,
    patience: Duration,
) -> Result<usize, Failure> {
    let actor = actor_config(config, hierarchy);
    let failed = |error: &Error| {
        Failure::unavailable(format!("--state-dir: {}; see the log of the agent", chain(error)))
    };
    let leftovers = yielding::leftovers(&actor.state_dir, &actor.proc_root);
    if !leftovers.map_err(|error| failed(&error))? {
        return Ok(0);
    }
    DrainRequest::of(&actor.state_dir)
        .make()
        .map_err(|error| Failure::unavailable(format!("--state-dir: {}", chain(&error))))?;
    // An agent that restores everything itself leaves nothing to do here.
    yielding::restore(&actor, patience).map_err(|error| failed(&error))
}

fn restore_leftovers(actor: &ActorConfig) {
    let restored = match yielding::leftovers(&actor.state_dir, &actor.proc_root) {
        Ok(false) => return,
        Ok(true) => yielding::restore(actor, Duration::ZERO),
        Err(error) => Err(error),
    };
    match restored {
        Ok(restored) => {
            tracing::info!(restored, "restored the best-effort pods of an earlier agent");
        }
        Err(error) => tracing::error!(
            error = chain(&error),
            "failed to restore the best-effort pods of an earlier agent"
        ),
    }
}

fn actor_config(config: &Config, hierarchy: &Hierarchy) -> ActorConfig {
    let options = &config.options;
    ActorConfig {
        enforce: options.best_effort == BestEffortMode::Enforce,
        hierarchy: hierarchy.clone(),
        proc_root: options.proc_root.clone(),
        sys_root: options.sys_root.clone(),
        state_dir: options.state_dir.clone(),
        settings: Settings {
            floor_cpus: options.best_effort_floor,
            // Pinning owns the cpusets of all pods.
            can_move: options.pinning != PinningMode::Enforce,
            can_idle: has_cpu_idle(&hierarchy.cpu),
            ..Settings::default()
        },
        reserved_cores: config.pinning.reserved.len() as f64,
    }
}

/// Whether the kernel has `cpu.idle` (Linux 5.15): in any cgroup below the mount, since the root of
/// cgroup v2 has no settings.
fn has_cpu_idle(mount: &Path) -> bool {
    let children = cgroupfs::subdirectories(mount).unwrap_or_default();
    mount.join("cpu.idle").exists()
        || children.iter().any(|child| mount.join(&child.name).join("cpu.idle").exists())
}

/// Log lines for changes only.
#[derive(Debug, Default)]
struct Log {
    mode: Option<Mode>,
    errors: Vec<String>,
}

impl Log {
    fn report(&mut self, report: &Report) {
        if self.mode.as_ref() != Some(&report.mode) {
            match &report.mode {
                Mode::Enforcing => tracing::info!("best-effort pods yield while others wait"),
                Mode::Observing(reason) => {
                    tracing::info!(reason, "observing best-effort pods; writing nothing");
                }
            }
            self.mode = Some(report.mode.clone());
        }
        if let Some(change) = &report.transition {
            let (from, to) = (change.from.step().number(), change.to.step().number());
            let target = format!("{:?}", change.to);
            tracing::info!(from, to, reason = %change.reason, target, "best-effort pods");
        }
        if self.errors != report.errors {
            for error in &report.errors {
                tracing::warn!(error, "failed to write a setting of a best-effort pod");
            }
            self.errors.clone_from(&report.errors);
        }
    }
}

fn export(metrics: &AgentMetrics, report: &Report, interval: Duration) {
    let metrics = metrics.best_effort();
    let step = report.target.step().number();
    metrics.set_step(step, interval);
    metrics.set_enforcing(match &report.mode {
        Mode::Enforcing => None,
        Mode::Observing(reason) => Some(reason),
    });
    if let Some(harm) = &report.harm {
        metrics.set_harm(harm.lost);
    } else if !report.traced {
        metrics.remove_harm();
    }
    if let Some(change) = &report.transition {
        metrics.add_transition(change.to.step().number(), change.reason.name());
    }
    for (setting, times) in &report.written {
        metrics.add_writes(setting.name(), "ok", *times);
    }
    metrics.add_writes("all", "restored", report.restored);
    metrics.add_writes("all", "repaired", report.repaired);
    metrics.add_writes("all", "error", report.errors.len() as u64);
}
