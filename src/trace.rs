//! The trace of waits between pods, as a part of the agent: off, as far as the kernel allows it, or
//! required.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use anyhow::Context;
use metrics::AgentMetrics;
use sampler::BulkSource;
use sched_trace::{Options, Wiring, not_in_force};
use tokio::sync::oneshot;
use watchdog::errors::chain;
use watchdog::{Part, Worker};

use crate::config::{Config, SchedTraceMode};
use crate::counters;
use crate::exit::Failure;

/// Starts the trace, if enabled. With `auto` this returns at once, and any obstacle is reported as
/// a feature that is not in force. The collector of the counters is loaded after it, so that the
/// kernel's types are in memory once at a time.
///
/// # Errors
/// With `on`, the obstacle and its remedy.
pub(crate) async fn start(
    config: &Config,
    wiring: Wiring,
    metrics: Arc<AgentMetrics>,
    collector: Sender<BulkSource>,
) -> Result<Option<Worker>, Failure> {
    if config.options.sched_trace == SchedTraceMode::Off {
        let reason = "off: --sched-trace=off".to_owned();
        // The sampler exists: it is started later.
        let _ = collector.send(Err(reason.clone()));
        wiring.slot.publish(not_in_force(reason));
        return Ok(None);
    }
    let options = Options {
        sys_root: config.options.sys_root.clone(),
        budget: config.options.sched_trace_budget,
    };
    let must_run = config.options.sched_trace == SchedTraceMode::On;
    let (sys_root, hierarchy) = (options.sys_root.clone(), wiring.hierarchy.clone());
    let (report, outcome) = oneshot::channel();
    let started = move |outcome: Result<(), sched_trace::StartError>| {
        let outcome = outcome.map_err(|error| format!("{}: {}", chain(&error), error.remedy()));
        match &outcome {
            Ok(()) => tracing::info!("tracing waits with an eBPF program on every context switch"),
            Err(why) if !must_run => {
                tracing::warn!(why, "not tracing waits; only bounds from schedstat are available");
            }
            Err(_) => {}
        }
        // With `auto` nothing waits for it.
        let _ = report.send(outcome);
        let _ = collector.send(counters::load(&sys_root, &hierarchy));
    };
    let panicked = move || metrics.subsystem_restarted(Part::SchedTrace.as_str());
    let running = sched_trace::spawn(options, wiring, started, panicked)
        .context("cannot start the trace's thread")?;
    if must_run && let Ok(Err(why)) = outcome.await {
        return Err(Failure::unavailable(format!(
            "--sched-trace=on: {why}; or use --sched-trace=auto"
        )));
    }
    Ok(Some(running))
}
