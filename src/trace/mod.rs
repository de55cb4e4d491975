//! The trace of waits between pods, as a part of the agent: its state, its thread and its results.
//!
//! Runs on its own thread, because a poll takes longer than a tick may be delayed. Its results go to the sampler's slot
//! and are published with the next snapshot, so a scrape never waits for it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;
use cgroupfs::Hierarchy;
use kubelet::chain;
use metrics::AgentMetrics;
use sched_trace::{NodeTrace, Options, Program, SchedTrace, StartError, not_in_force};
use snapshot::{NodeSnapshot, NodeWaits, Published};
use tokio::sync::oneshot;
use watchdog::{Beat, Part, Watchdog, keep_running};

use crate::config::{Config, SchedTraceMode};
use crate::exit::Failure;

/// Interval between polls.
const INTERVAL: Duration = Duration::from_secs(1);

/// Dependencies of the trace, apart from its options.
#[derive(Clone)]
pub(crate) struct Wiring {
    pub(crate) hierarchy: Hierarchy,
    /// Source of the node's cgroups.
    pub(crate) published: Published<NodeSnapshot>,
    /// Destination of the waits.
    pub(crate) slot: Published<NodeWaits>,
    pub(crate) metrics: Arc<AgentMetrics>,
    pub(crate) watchdog: Watchdog,
}

/// Handle of the trace's thread, which stops on drop after its current work. The drop does not wait: loading the
/// program may take longer than a shutdown may, and the kernel removes the program with the process.
pub(crate) struct Tracing {
    _stop: mpsc::Sender<()>,
}

impl Tracing {
    /// Starts the trace, if enabled. With `auto` this returns at once, and any obstacle is reported as a feature that
    /// is not in force.
    ///
    /// # Errors
    /// With `on`, the obstacle and its fix.
    pub(crate) async fn start(config: &Config, wiring: Wiring) -> Result<Self, Failure> {
        if config.sched_trace == SchedTraceMode::Off {
            wiring.slot.publish(not_in_force("off: --sched-trace=off".to_owned()));
            return Ok(Self { _stop: mpsc::channel().0 });
        }
        let options = Options { sys_root: config.sys_root.clone(), budget: config.sched_trace_budget };
        let must_run = config.sched_trace == SchedTraceMode::On;
        let hierarchy = wiring.hierarchy.clone();
        let (tracing, outcome) = Self::spawn(wiring, must_run, move || try_start(&options, &hierarchy))
            .context("cannot start the trace's thread")?;
        if must_run && let Ok(Err(why)) = outcome.await {
            return Err(Failure::unavailable(format!("--sched-trace=on: {why}; or use --sched-trace=auto")));
        }
        Ok(tracing)
    }

    /// Starts the thread, which loads the program by `start`, and says what came of it.
    fn spawn<P: Program>(
        wiring: Wiring,
        must_run: bool,
        start: impl FnMut() -> Result<P, NotTraced> + Send + 'static,
    ) -> io::Result<(Self, oneshot::Receiver<Outcome>)> {
        let (stop, stopped) = mpsc::channel();
        let (started, outcome) = oneshot::channel();
        let beat = wiring.watchdog.watch(Part::SchedTrace, INTERVAL);
        let run = move || run(start, &wiring, must_run, started, beat, &stopped);
        std::thread::Builder::new().name("sched-trace".to_owned()).spawn(run)?;
        Ok((Self { _stop: stop }, outcome))
    }
}

/// Whether the program was loaded the first time; if not, why.
type Outcome = Result<(), String>;

/// Loads the program and polls it until the other end of `stopped` is gone; does both again after a panic.
fn run<P: Program>(
    mut start: impl FnMut() -> Result<P, NotTraced>,
    wiring: &Wiring,
    must_run: bool,
    started: oneshot::Sender<Outcome>,
    beat: Beat,
    stopped: &mpsc::Receiver<()>,
) {
    let (mut started, mut beat) = (Some(started), Some(beat));
    let panicked = || {
        wiring.metrics.subsystem_restarted(Part::SchedTrace.as_str());
        wiring.slot.publish(not_in_force("restarting: its thread has panicked".to_owned()));
    };
    keep_running(stopped, panicked, || match load(&mut start, wiring, must_run, started.take()) {
        Some(trace) => {
            let Some(beat) = &beat else { return };
            poll_until_stopped(trace, wiring, beat, stopped);
        }
        None => {
            if let Some(beat) = beat.take() {
                beat.retire();
            }
        }
    });
}

/// Polls until the other end of `stopped` is gone.
fn poll_until_stopped<P: Program>(trace: P, wiring: &Wiring, beat: &Beat, stopped: &mpsc::Receiver<()>) {
    let mut trace = NodeTrace::new(trace, wiring.hierarchy.cpu.clone());
    let mut deadline = Instant::now();
    loop {
        let now = Instant::now();
        wiring.slot.publish(trace.poll(now, &wiring.published.latest()));
        beat.beat(INTERVAL);
        deadline = (deadline + INTERVAL).max(now);
        let left = deadline.saturating_duration_since(Instant::now());
        if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Loads the program, and says what came of it: to the receiver, if one waits, and as a feature.
fn load<P>(
    start: impl FnOnce() -> Result<P, NotTraced>,
    wiring: &Wiring,
    must_run: bool,
    started: Option<oneshot::Sender<Outcome>>,
) -> Option<P> {
    let say = |outcome| {
        if let Some(started) = started {
            // With `auto` the receiver is gone.
            let _ = started.send(outcome);
        }
    };
    let (why, reason) = match start() {
        Ok(trace) => {
            say(Ok(()));
            tracing::info!("waits are traced, by an eBPF program on every context switch");
            return Some(trace);
        }
        Err(NotTraced::Start(error)) => {
            (format!("{}: {}", chain(&error), error.remedy()), format!("{}: {}", error.reason(), error.remedy()))
        }
        Err(NotTraced::NoKernelCgroups) => {
            let text = "no_cgroups: --cgroup-root is not this kernel's cgroup hierarchy".to_owned();
            (text.clone(), text)
        }
    };
    if !must_run {
        tracing::warn!(why, "waits are not traced; the bounds from schedstat remain");
    }
    wiring.slot.publish(not_in_force(reason));
    say(Err(why));
    None
}

/// Reason why nothing is traced.
enum NotTraced {
    Start(StartError),
    /// The program identifies cgroups by their inodes, which a copy of a hierarchy does not have.
    NoKernelCgroups,
}

fn try_start(options: &Options, hierarchy: &Hierarchy) -> Result<SchedTrace, NotTraced> {
    if !hierarchy.is_the_kernels() {
        return Err(NotTraced::NoKernelCgroups);
    }
    SchedTrace::start(options).map_err(NotTraced::Start)
}

#[cfg(test)]
mod tests;
