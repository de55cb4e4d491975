//! Best-effort pods that yield CPU, and CPU limits that burst, as a part of the agent.

use std::sync::Arc;
use std::time::Duration;

use advisor::Advisor;
use anyhow::Context;
use api::Colocation;
use cgroupfs::Hierarchy;
use pinning::Exclusive;
use reporting::ColocationReporter;
use snapshot::{NodeSnapshot, Published};
use state_dir::ActingMode;
use state_dir::DrainRequest;
use timeline::Timeline;
use watchdog::errors::chain;
use watchdog::{JoinedThread, Part};
use yielding::rules::ControllerSettings;
use yielding::{ActorConfig, BurstSettings, Error, Inputs, Resizes};

use crate::agent::StartContext;
use crate::config::Config;
use crate::exit::Failure;

/// Pause between attempts to restore what a crashed agent left, where the actor does not.
const RESTORE_INTERVAL: Duration = Duration::from_secs(30);

/// Restores what a crashed agent left, and starts the actor unless it is off. Returns its threads.
///
/// # Errors
/// A thread that cannot be created.
pub(crate) fn start(
    shared: &StartContext<'_>,
    published: &Published<NodeSnapshot>,
    advisor: Advisor,
    timeline: Option<Timeline>,
) -> Result<Vec<JoinedThread>, Failure> {
    let StartContext { config, hierarchy, pods, watchdog, .. } = shared;
    let actor = ActorConfig { resizes: shared.resizes.clone(), ..actor_config(config, hierarchy) };
    let is_restored = restore_leftovers(&actor);
    let mut threads = Vec::new();
    let is_enforcing = [actor.best_effort, actor.burst].contains(&ActingMode::Enforce);
    if !is_restored && !is_enforcing {
        let restoring = yielding::keep_restoring(actor.clone(), RESTORE_INTERVAL, log_restored);
        threads.push(restoring.context("cannot start the thread that restores settings of pods")?);
    }
    if actor.best_effort == ActingMode::Off && actor.burst == ActingMode::Off {
        return Ok(threads);
    }
    let request = DrainRequest::of(&actor.state_dir);
    if is_enforcing {
        // Starting an agent means that it should act, whatever was drained before.
        request.withdraw();
    }
    let (known, restricted) = (pods.clone(), advisor.restricted());
    let (pods, published, actor_of) = (pods.clone(), published.clone(), actor.clone());
    let inputs = move || {
        let bursts = actor_of.burst != ActingMode::Off;
        pods.is_known().then(|| {
            let ActorConfig { state_dir, proc_root, .. } = &actor_of;
            let exclusive = Exclusive::read(pods.exclusive_cpus(), state_dir, proc_root);
            let index = pods.index();
            Inputs {
                snapshot: published.latest(),
                exclusive: exclusive.cpus(&index),
                exclusive_pods: if bursts { exclusive.pods() } else { Default::default() },
                pods: index,
                forecasts: if bursts { advisor.burst_forecasts() } else { Default::default() },
                draining: request.exists(),
            }
        })
    };
    let interval = config.options.sample_interval.0;
    let beat = watchdog.watch(Part::Yielding, interval);
    let (metrics, events) = (Arc::clone(&shared.metrics), shared.events.clone());
    let of_pods = Arc::clone(&metrics);
    let show = Box::new(move |colocation: Colocation| {
        let index = known.index();
        let named = colocation.yields.iter().filter_map(|uid| index.pod(uid));
        of_pods.best_effort().set_restricted(named.map(|pod| [&*pod.namespace, &*pod.name]));
        restricted.publish(colocation.yields.clone());
        if let Some(timeline) = &timeline {
            timeline.set_colocation(colocation);
        }
    });
    let mut reporter = ColocationReporter::new(metrics, events, show, interval);
    let running = yielding::spawn(actor, inputs, interval, move |round| {
        if reporter.report(&round) {
            beat.beat(interval);
        }
    });
    threads.push(running.context("cannot start the thread that writes settings of pods")?);
    Ok(threads)
}

/// Restores what the agent or a crashed one left, for `cpuwarden drain`. A running agent sees the
/// request and releases the lock. Returns the number of restored settings.
///
/// # Errors
/// The first setting that could not be restored, or an agent that does not release the lock.
pub(crate) fn drain(
    config: &Config,
    hierarchy: &Hierarchy,
    timeout: Duration,
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
    yielding::restore(&actor, timeout).map_err(|error| failed(&error))
}

/// Returns whether nothing is left to restore.
fn restore_leftovers(actor: &ActorConfig) -> bool {
    let restored = match yielding::leftovers(&actor.state_dir, &actor.proc_root) {
        Ok(false) => return true,
        Ok(true) => yielding::restore(actor, Duration::ZERO),
        Err(error) => Err(error),
    };
    let is_restored = restored.is_ok();
    log_restored(restored);
    is_restored
}

fn log_restored(restored: Result<usize, Error>) {
    match restored {
        Ok(restored) => {
            tracing::info!(restored, "restored the settings of pods that an earlier agent wrote");
        }
        Err(error) => tracing::error!(
            error = chain(&error),
            "failed to restore the settings of pods that an earlier agent wrote; will retry"
        ),
    }
}

fn actor_config(config: &Config, hierarchy: &Hierarchy) -> ActorConfig {
    let options = &config.options;
    ActorConfig {
        best_effort: options.best_effort,
        burst: options.burst,
        hierarchy: hierarchy.clone(),
        proc_root: options.proc_root.clone(),
        sys_root: options.sys_root.clone(),
        state_dir: options.state_dir.clone(),
        settings: ControllerSettings {
            floor_cpus: options.best_effort_floor,
            // Pinning owns the cpusets of all pods.
            can_move: options.pinning != ActingMode::Enforce,
            can_idle: yielding::has_idle(hierarchy),
            ..ControllerSettings::default()
        },
        burst_settings: BurstSettings {
            most_percent: options.burst_percent,
            can_burst: yielding::has_burst(hierarchy),
            ..BurstSettings::default()
        },
        reserved: config.pinning.reserved.clone(),
        resizes: Resizes::default(),
    }
}
