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

use crate::config::{BpfCountersMode, Config, SchedTraceMode};
use crate::counters::source;
use crate::exit::Failure;

/// Starts the trace, if enabled. With `auto` this returns at once, and any obstacle is reported as
/// a feature that is not in force. The thread of the trace also loads the source of the counters,
/// and sends it, or the reason why there is none.
///
/// # Errors
/// With `on`, the obstacle and its remedy.
pub(crate) async fn start(
    config: &Config,
    wiring: Wiring,
    metrics: Arc<AgentMetrics>,
    counters: Sender<BulkSource>,
) -> Result<Option<Worker>, Failure> {
    let wanted = config.options.bpf_counters;
    if wanted == BpfCountersMode::Off {
        // The sampler exists: it is started later.
        let _ = counters.send(Err("off: --bpf-counters=off".to_owned()));
    }
    if config.options.sched_trace == SchedTraceMode::Off {
        let hint = config.options.sched_trace_hint.as_deref();
        let reason = format!("off: {}", hint.unwrap_or("--sched-trace=off"));
        match wanted {
            BpfCountersMode::Off => {}
            BpfCountersMode::Auto => _ = counters.send(Err("off: --sched-trace=off".to_owned())),
            BpfCountersMode::On => load_counters(config, &wiring, counters),
        }
        wiring.slot.publish(not_in_force(reason));
        return Ok(None);
    }
    let options = Options {
        sys_root: config.options.sys_root.clone(),
        budget: config.options.sched_trace_budget,
    };
    let must_run = config.options.sched_trace == SchedTraceMode::On;
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
    };
    let collected = move |loaded| {
        // The sampler may be gone by now.
        let _ = counters.send(source(loaded));
    };
    let panicked = move || metrics.subsystem_restarted(Part::SchedTrace.as_str());
    let collected = (wanted != BpfCountersMode::Off).then_some(collected);
    let running = sched_trace::spawn(options, wiring, started, collected, panicked)
        .context("cannot start the trace's thread")?;
    if must_run && let Ok(Err(why)) = outcome.await {
        return Err(Failure::unavailable(format!(
            "--sched-trace=on: {why}; or use --sched-trace=auto"
        )));
    }
    Ok(Some(running))
}

/// Loads the source of the counters without the trace, and sends it or the reason why there is
/// none. Nothing waits for it.
fn load_counters(config: &Config, wiring: &Wiring, counters: Sender<BulkSource>) {
    let (sys_root, hierarchy) = (config.options.sys_root.clone(), wiring.hierarchy.clone());
    tokio::task::spawn_blocking(move || {
        // The sampler may be gone by now.
        let _ = counters.send(source(sched_trace::load_counters(&sys_root, &hierarchy)));
    });
}
