//! Best-effort pods that yield CPU, and CPU limits that burst, as a part of the agent.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use advisor::Advisor;
use anyhow::Context;
use cgroupfs::Hierarchy;
use colocation::{Settings, Step};
use events::Sender;
use kernel_text::CpuSet;
use kubelet::{Pods, chain};
use kubepods::PodName;
use metrics::AgentMetrics;
use pinning::DrainRequest;
use snapshot::{NodeSnapshot, Published};
use timeline::{BestEffort, Colocation, ContainerName, Timeline};
use watchdog::{JoinedThread, Part};
use yielding::{
    ActorConfig, BestEffortReport, BurstSettings, Bursting, Error, Inputs, Mode, Report, Resizes,
    Round, Switch,
};

use crate::agent::Shared;
use crate::burst;
use crate::config::{ActingMode, Config, PinningMode};
use crate::exit::Failure;

/// Restores what a crashed agent left, and starts the actor unless it is off.
///
/// # Errors
/// A thread that cannot be created.
pub(crate) fn start(
    shared: &Shared<'_>,
    published: &Published<NodeSnapshot>,
    advisor: Advisor,
    timeline: Option<Timeline>,
) -> Result<Option<JoinedThread>, Failure> {
    let Shared { config, hierarchy, pods, watchdog, .. } = shared;
    let actor = ActorConfig { resizes: shared.resizes.clone(), ..actor_config(config, hierarchy) };
    restore_leftovers(&actor);
    if actor.best_effort == Switch::Off && actor.burst == Switch::Off {
        return Ok(None);
    }
    let request = DrainRequest::of(&actor.state_dir);
    if [actor.best_effort, actor.burst].contains(&Switch::Enforce) {
        // Starting an agent means that it should act, whatever was drained before.
        request.withdraw();
    }
    let (pods, published, actor_of) = (pods.clone(), published.clone(), actor.clone());
    let inputs = move || {
        let bursts = actor_of.burst != Switch::Off;
        pods.is_known().then(|| Inputs {
            snapshot: published.latest(),
            pods: pods.index(),
            exclusive: pods
                .exclusive_cpus()
                .all()
                .into_iter()
                .filter(|&cpu| cpu < kernel_text::MAX_CPUS)
                .collect::<CpuSet>(),
            exclusive_pods: if bursts { exclusive_pods(&pods, &actor_of) } else { HashSet::new() },
            forecasts: if bursts { advisor.burst_forecasts() } else { Default::default() },
            draining: request.exists(),
        })
    };
    let interval = config.options.sample_interval.0;
    let beat = watchdog.watch(Part::Yielding, interval);
    let mut reporter = Reporter::new(shared, timeline);
    let running = yielding::spawn(actor, inputs, interval, move |round| {
        match round {
            Round::Waited => {}
            Round::Passed(report) => reporter.report(&report),
            Round::Panicked => {
                reporter.metrics.subsystem_restarted(Part::Yielding.as_str());
                return;
            }
        }
        beat.beat(interval);
    });
    Ok(Some(running.context("cannot start the thread that writes settings of pods")?))
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
            tracing::info!(restored, "restored the settings of pods that an earlier agent wrote");
        }
        Err(error) => tracing::error!(
            error = chain(&error),
            "failed to restore the settings of pods that an earlier agent wrote"
        ),
    }
}

/// Pods with exclusive CPUs, of the kubelet and of pinning.
fn exclusive_pods(pods: &Pods, actor: &ActorConfig) -> HashSet<PodName> {
    let exclusive = pods.exclusive_cpus();
    let name = |namespace: &str, pod: &str| (namespace.into(), pod.into());
    let of_kubelet = exclusive.holders().map(|(namespace, pod)| name(namespace, pod));
    // A checkpoint that cannot be read is reported by pinning itself.
    let checkpoint = pinning::Checkpoint::of_this_boot(&actor.state_dir, &actor.proc_root);
    let pins = checkpoint.ok().flatten().map(|checkpoint| checkpoint.pins).unwrap_or_default();
    of_kubelet.chain(pins.values().map(|pin| name(&pin.namespace, &pin.pod))).collect()
}

fn actor_config(config: &Config, hierarchy: &Hierarchy) -> ActorConfig {
    let options = &config.options;
    ActorConfig {
        best_effort: switch(options.best_effort),
        burst: switch(options.burst),
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
        burst_settings: BurstSettings {
            most_percent: options.burst_percent,
            quota_percent: options.burst_quota_percent,
            can_burst: yielding::has_burst(hierarchy),
            ..BurstSettings::default()
        },
        reserved_cores: config.pinning.reserved.len() as f64,
        resizes: Resizes::default(),
    }
}

const fn switch(mode: ActingMode) -> Switch {
    match mode {
        ActingMode::Off => Switch::Off,
        ActingMode::Observe => Switch::Observe,
        ActingMode::Enforce => Switch::Enforce,
    }
}

/// Whether the kernel has `cpu.idle` (Linux 5.15): in any cgroup below the mount, since the root of
/// cgroup v2 has no settings.
fn has_cpu_idle(mount: &Path) -> bool {
    let children = cgroupfs::subdirectories(mount).unwrap_or_default();
    mount.join("cpu.idle").exists()
        || children.iter().any(|child| mount.join(&child.name).join("cpu.idle").exists())
}

/// Reports each pass: to the views, the log, the metrics, and as Events.
struct Reporter {
    timeline: Option<Timeline>,
    metrics: Arc<AgentMetrics>,
    /// `None` without `--events`.
    events: Option<Sender>,
    interval: Duration,
    log: Log,
    steps: Steps,
    burst_log: burst::Log,
    bursts: burst::Bursts,
}

impl Reporter {
    fn new(shared: &Shared<'_>, timeline: Option<Timeline>) -> Self {
        Self {
            timeline,
            metrics: Arc::clone(&shared.metrics),
            events: shared.events.clone(),
            interval: shared.config.options.sample_interval.0,
            log: Log::default(),
            steps: Steps::default(),
            burst_log: burst::Log::default(),
            bursts: burst::Bursts::default(),
        }
    }

    fn report(&mut self, report: &Report) {
        if let Some(timeline) = &self.timeline {
            timeline.set_colocation(colocation(report));
        }
        if let Some(report) = &report.best_effort {
            self.log.report(report);
            export(&self.metrics, report, self.interval);
            if let (Some(events), Some((step, reason))) = (&self.events, self.steps.next(report)) {
                events.best_effort(step, &reason);
            }
        }
        if let Some(report) = &report.burst {
            self.burst_log.report(report);
            burst::export(self.metrics.burst(), report);
            if let Some(events) = &self.events {
                for (one, burst) in self.bursts.next(report) {
                    events.burst([&one.namespace, &one.pod, &one.uid], &burst);
                }
            }
        }
    }
}

/// The state for the views.
fn colocation(report: &Report) -> Colocation {
    let best_effort = report.best_effort.as_ref().map(|report| BestEffort {
        step: report.target.step().number(),
        enforcing: report.mode == Mode::Enforcing,
    });
    let restricted = report.best_effort.iter().flat_map(|report| &report.restricted);
    let written = report.burst.iter().filter(|report| report.mode == Mode::Enforcing);
    let name =
        |one: &Bursting| ContainerName { uid: one.uid.clone(), container: one.container.clone() };
    Colocation {
        best_effort,
        yields: restricted.map(ToString::to_string).collect(),
        bursts: written.flat_map(|report| report.containers.iter().map(name)).collect(),
    }
}

/// Steps that are written, for Events.
#[derive(Debug, Default)]
struct Steps {
    written: Step,
}

impl Steps {
    /// The step of a pass with its reason, if it differs from the one before: without enforcement
    /// there is none.
    fn next(&mut self, report: &BestEffortReport) -> Option<(Step, String)> {
        let step = match report.mode {
            Mode::Enforcing => report.target.step(),
            Mode::Observing(_) => Step::None,
        };
        if std::mem::replace(&mut self.written, step) == step {
            return None;
        }
        let reason = match (&report.mode, &report.transition) {
            (Mode::Observing(reason), _) => reason.clone(),
            (Mode::Enforcing, Some(change)) => change.reason.to_string(),
            (Mode::Enforcing, None) if step == Step::None => "the decision starts again".to_owned(),
            (Mode::Enforcing, None) => "the step is written again".to_owned(),
        };
        Some((step, reason))
    }
}

/// Log lines for changes only.
#[derive(Debug, Default)]
struct Log {
    mode: Option<Mode>,
    errors: Vec<String>,
}

impl Log {
    fn report(&mut self, report: &BestEffortReport) {
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
        if self.errors != report.writes.errors {
            for error in &report.writes.errors {
                tracing::warn!(error, "failed to write a setting of a best-effort pod");
            }
            self.errors.clone_from(&report.writes.errors);
        }
    }
}

fn export(metrics: &AgentMetrics, report: &BestEffortReport, interval: Duration) {
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
    for (setting, times) in &report.writes.written {
        metrics.add_writes(setting.name(), "ok", *times);
    }
    metrics.add_writes("all", "restored", report.writes.restored);
    metrics.add_writes("all", "repaired", report.writes.repaired);
    metrics.add_writes("all", "error", report.writes.errors.len() as u64);
}

#[cfg(test)]
mod tests {
    use colocation::{Harm, Reason, Target, Transition};

    use super::*;

    fn pass(mode: &Mode, idle: bool, changed: bool) -> BestEffortReport {
        let target = Target { idle, ..Target::default() };
        let from = Target { idle: idle != changed, ..Target::default() };
        let harm = Harm { lost: 0.2, victim: "shop/cart-0".to_owned() };
        let transition = Transition { from, to: target, reason: Reason::Harm(harm) };
        BestEffortReport {
            mode: mode.clone(),
            target,
            transition: changed.then_some(transition),
            traced: true,
            harm: None,
            pods: 1,
            restricted: Vec::new(),
            exhausted: false,
            writes: Default::default(),
        }
    }

    #[test]
    fn a_written_step_is_reported_once_and_its_end_with_the_reason() {
        let (mut steps, observing) = (Steps::default(), Mode::Observing("a drain".to_owned()));
        let mut next = |mode: &Mode, idle, changed| steps.next(&pass(mode, idle, changed));
        assert_eq!(next(&observing, true, true), None, "computed, not written");
        let again = (Step::Idle, "the step is written again".to_owned());
        assert_eq!(next(&Mode::Enforcing, true, false), Some(again));
        assert_eq!(next(&Mode::Enforcing, true, false), None);
        assert_eq!(next(&observing, true, false), Some((Step::None, "a drain".to_owned())));
        assert_eq!(next(&observing, false, true), None);
        let (step, reason) = next(&Mode::Enforcing, true, true).unwrap();
        assert!(step == Step::Idle && reason.contains("shop/cart-0 waits"), "{reason}");
    }
}
