//! The thread of the trace: loads the program, polls it, and does both again after a panic.
//!
//! Has its own thread, because a poll takes longer than a tick may be delayed. The results go to
//! the sampler's slot and are published with the next snapshot, so a scrape never waits for it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use cgroup_tree::{KubepodsTree, PathIndex};
use cgroupfs::Hierarchy;
use snapshot::{NodeSnapshot, NodeWaits, Published};
use watchdog::{Beat, Part, Watchdog, Worker, keep_running};

use crate::{
    GroupCounters, KernelTypes, NodeTrace, Options, Program, SchedTrace, StartError, heap,
    not_in_force,
};

/// Interval between polls.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time from a poll to the tick of the sampler that publishes its counts. A poll takes tens of
/// milliseconds.
const LEAD: Duration = Duration::from_millis(150);
/// Maximum change of the time between two polls: ticks are sometimes late, and a burst is counted in
/// polls.
const MAX_SHIFT: Duration = Duration::from_millis(50);

/// Inputs and outputs of the thread, apart from its options.
#[derive(Debug, Clone)]
pub struct Wiring {
    /// The node's hierarchy.
    pub hierarchy: Hierarchy,
    /// Tree of the cpu controller's hierarchy, if there is one; otherwise paths are found by walks.
    pub tree: Option<Arc<KubepodsTree>>,
    /// Source of the node's cgroups.
    pub published: Published<NodeSnapshot>,
    /// Destination of the waits.
    pub slot: Published<NodeWaits>,
    /// Watches the thread; a trace that cannot be loaded is not watched.
    pub watchdog: Watchdog,
}

/// Starts the thread, `sched-trace`. The drop of its handle does not wait, because loading the
/// program may take longer than a shutdown may; the kernel removes the program with the process.
/// The thread calls `started` when the program was loaded the first time or could not be, and
/// `panicked` after each panic. An obstacle is published as a feature that is not in force.
///
/// The thread also loads the program that collects counters for `collected`, because both need the
/// kernel's types, and calls it with the program, or with the reason why it cannot run here.
///
/// # Errors
/// The system cannot create a thread.
pub fn spawn(
    options: Options,
    wiring: Wiring,
    started: impl FnOnce(Result<(), StartError>) + Send + 'static,
    mut collected: Option<impl FnOnce(Result<GroupCounters, String>) + Send + 'static>,
    panicked: impl FnMut() + Send + 'static,
) -> io::Result<Worker> {
    let hierarchy = wiring.hierarchy.clone();
    let load = move || {
        let loaded = load(&options, &hierarchy, collected.take());
        heap::give_back();
        loaded
    };
    spawn_with(wiring, load, started, panicked)
}

/// Loads the program that collects counters, without the trace.
///
/// # Errors
/// The reason why it cannot run here.
pub fn load_counters(sys_root: &Path, hierarchy: &Hierarchy) -> Result<GroupCounters, String> {
    let types = kernel_types(sys_root, hierarchy);
    let loaded = types.and_then(|types| GroupCounters::load(sys_root, &types, hierarchy.version));
    heap::give_back();
    loaded.map_err(|error| error.summary())
}

/// Loads the trace, and for `collected` the other program. The kernel's types are read once and
/// dropped here.
fn load(
    options: &Options,
    hierarchy: &Hierarchy,
    collected: Option<impl FnOnce(Result<GroupCounters, String>)>,
) -> Result<SchedTrace, StartError> {
    match kernel_types(&options.sys_root, hierarchy) {
        Ok(types) => {
            let trace = SchedTrace::start_with(options, &types);
            if let Some(collected) = collected {
                let counters = GroupCounters::load(&options.sys_root, &types, hierarchy.version);
                collected(counters.map_err(|error| error.summary()));
            }
            trace
        }
        Err(error) => {
            if let Some(collected) = collected {
                collected(Err(error.summary()));
            }
            Err(error)
        }
    }
}

fn kernel_types(sys_root: &Path, hierarchy: &Hierarchy) -> Result<KernelTypes, StartError> {
    match hierarchy.is_the_kernels() {
        true => KernelTypes::read(sys_root),
        false => Err(StartError::NoKernelCgroups),
    }
}

fn spawn_with<P: Program>(
    wiring: Wiring,
    load: impl FnMut() -> Result<P, StartError> + Send + 'static,
    started: impl FnOnce(Result<(), StartError>) + Send + 'static,
    panicked: impl FnMut() + Send + 'static,
) -> io::Result<Worker> {
    let beat = wiring.watchdog.watch(Part::SchedTrace, INTERVAL);
    Worker::spawn("sched-trace", move |stopped| {
        run(load, &wiring, started, panicked, beat, stopped);
    })
}

/// Loads the program and polls it until the other end of `stopped` is gone; does both again after a
/// panic.
fn run<P: Program>(
    mut load: impl FnMut() -> Result<P, StartError>,
    wiring: &Wiring,
    started: impl FnOnce(Result<(), StartError>),
    mut panicked: impl FnMut(),
    beat: Beat,
    stopped: &Receiver<()>,
) {
    let (mut started, mut beat) = (Some(started), Some(beat));
    let mut report = |outcome| {
        if let Some(started) = started.take() {
            started(outcome);
        }
    };
    let restarting = || {
        panicked();
        wiring.slot.publish(not_in_force("restarting: the trace's thread panicked".to_owned()));
    };
    keep_running(stopped, restarting, || match load() {
        Ok(trace) => {
            report(Ok(()));
            let Some(beat) = &beat else { return };
            poll_until_stopped(trace, wiring, beat, stopped);
        }
        Err(error) => {
            wiring.slot.publish(not_in_force(error.summary()));
            report(Err(error));
            if let Some(beat) = beat.take() {
                beat.retire();
            }
        }
    });
}

/// Polls until the other end of `stopped` is gone.
fn poll_until_stopped<P: Program>(trace: P, wiring: &Wiring, beat: &Beat, stopped: &Receiver<()>) {
    let index = PathIndex::new(&wiring.hierarchy.cpu, wiring.tree.clone());
    let mut trace = NodeTrace::new(trace, index);
    let mut deadline = Instant::now();
    loop {
        let now = Instant::now();
        let snapshot = wiring.published.latest();
        wiring.slot.publish(trace.poll(now, &snapshot));
        beat.beat(INTERVAL);
        let ticked = snapshot.read_at.filter(|_| snapshot.interval == INTERVAL);
        deadline = next_poll(deadline, ticked).max(now);
        let left = deadline.saturating_duration_since(Instant::now());
        if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// The poll after that at `last`: shortly before a tick, if there was one at `ticked`.
fn next_poll(last: Instant, ticked: Option<Instant>) -> Instant {
    let due = last + INTERVAL;
    let Some(after) = ticked.and_then(|tick| (due + LEAD).checked_duration_since(tick)) else {
        return due;
    };
    let late = Duration::from_nanos((after.as_nanos() % INTERVAL.as_nanos()) as u64);
    if late < INTERVAL / 2 {
        due - late.min(MAX_SHIFT)
    } else {
        due + (INTERVAL - late).min(MAX_SHIFT)
    }
}

#[cfg(test)]
mod tests;
